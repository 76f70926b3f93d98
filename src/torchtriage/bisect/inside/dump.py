"""Reads what may differ between two versions: default configs, decompositions, lowerings, distributions, operators used."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
PLAIN = (int, float, bool, str, type(None))
#: table -> where it is: module and attribute.
TABLES = {
    "decomposition": ("torch._inductor.decomposition", "decompositions"),
    "core decomposition": ("torch._decomp", "decomposition_table"),
    "lowering": ("torch._inductor.lowering", "lowerings"),
}


def configs() -> dict[str, dict[str, Any]]:
    """{config module: {name: value}} of plain values; a module that this torch has not is left out."""
    found = {}
    for module in CONFIGS:
        try:
            config = importlib.import_module(module)
        except Exception:
            continue
        found[module] = {
            k: v for k, v in sorted(values(config).items()) if isinstance(v, PLAIN) and not is_place(v)
        }
    return found


def is_place(value: Any) -> bool:
    """Whether it names this very environment: that differs between any two, and no version changed it."""
    return isinstance(value, str) and sys.prefix in value


def values(config: Any) -> dict[str, Any]:
    """All values by their dotted names, by whichever method this version has; else what the module holds."""
    for name in ("get_config_copy", "shallow_copy_dict", "to_dict"):
        method = getattr(config, name, None)
        if method is not None:
            with contextlib.suppress(Exception):
                got = dict(method())
                if got:
                    return got
    return {k: v for k, v in vars(config).items() if not k.startswith("_") and not inspect.ismodule(v)}


def tables() -> dict[str, dict[str, str]]:
    """{table: {operator: mark}}; the mark changes when the source of the entry does."""
    found: dict[str, dict[str, str]] = {}
    for table, (module, attribute) in TABLES.items():
        try:
            entries = getattr(importlib.import_module(module), attribute)
        except Exception:
            continue
        found[table] = {str(operator): mark(function) for operator, function in dict(entries).items()}
    return found


def mark(function: Any) -> str:
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError, ValueError):
        source = getattr(function, "__qualname__", type(function).__qualname__)
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def packages() -> dict[str, str]:
    """{name: version} of all distributions; of two with one name the first on the path, which is the one imported."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(canonical(name), distribution.version)
    return found


def canonical(name: str) -> str:
    """As package indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def module_of(name: str) -> str:
    """The module that a distribution is there for: the one of its name, else that with most files. Empty if none is there."""
    own = canonical(name).replace("-", "_")
    if importlib.util.find_spec(own) is not None:
        return own
    try:
        files = importlib.metadata.distribution(name).files or ()
    except importlib.metadata.PackageNotFoundError:
        return ""
    counts = count_modules([path.as_posix() for path in files])
    same = [module for module in counts if canonical(module) == canonical(name)]
    return same[0] if same else max(counts, key=lambda module: counts[module], default="")


def count_modules(files: list[str]) -> dict[str, int]:
    """{public module: number of its files}, without those inside another; namespaces are no modules."""
    outer: list[str] = []
    for folder in sorted(
        (path[: -len("/__init__.py")] for path in files if path.endswith("/__init__.py")), key=parts
    ):
        if not (outer and folder.startswith(outer[-1] + "/")):
            outer.append(folder)
    single = (re.fullmatch(r"(\w+)(?:\.[\w-]+)*\.(?:py|so)", path) for path in files)
    counts = {match.group(1): 1 for match in single if match}
    counts.update({".".join(parts(f)): sum(path.startswith(f + "/") for path in files) for f in outer})
    return {m: n for m, n in counts.items() if re.fullmatch(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", m)}


def parts(path: str) -> list[str]:
    return path.split("/")


def operators(torch: Any, run: Callable[[], Any]) -> list[str]:
    """Names such as `aten.add.Tensor` that the target runs with torch.compile doing nothing."""
    mode_class = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    seen: set[str] = set()

    def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        return model if model is not None else (lambda given: given)

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen.add(str(func))
        return func(*args, **(kwargs or {}))

    mode = type("Seen", (mode_class,), {"__torch_dispatch__": dispatch})
    torch.compile = compile_
    with contextlib.suppress(Exception, SystemExit), mode():
        run()
    return sorted(seen)
