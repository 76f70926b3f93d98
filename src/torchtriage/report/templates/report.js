"use strict";
(() => {
  const say = document.getElementById("said");
  const copied = (button) => {
    const label = button.textContent;
    button.textContent = "Copied";
    say.textContent = "Copied to the clipboard";
    setTimeout(() => { button.textContent = label; say.textContent = ""; }, 1600);
  };
  const select = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  };
  for (const block of document.querySelectorAll("[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy " + block.dataset.copy);
    const source = block.querySelector("code, pre") || block;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
        copied(button);
      } catch {
        if (select(source)) copied(button);
      }
    });
    block.append(button);
  }
  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const d of document.querySelectorAll("details:not([open])")) { d.open = true; opened.push(d); }
  });
  window.addEventListener("afterprint", () => { for (const d of opened.splice(0)) d.open = false; });
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target && target.closest("details");
    if (fold) fold.open = true;
  };
  window.addEventListener("hashchange", reveal);
  reveal();
})();
