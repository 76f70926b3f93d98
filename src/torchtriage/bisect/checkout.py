"""Goes on in a git checkout: commits in place of versions, a build command in place of an installer, incrementally.

The checkout is left as it was found; what `git bisect replay` reads is written beside the report.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchtriage.bisect.commits import git
from torchtriage.bisect.errors import BadInput, CannotInstall, Stopped
from torchtriage.bisect.trial import end
from torchtriage.model.bisection import Verdict

LAST = 400


@dataclass(frozen=True)
class Checkout:
    """A checkout, how it is built, and the interpreter that the build installs into or that can import it."""

    folder: Path
    build: str
    python: Path
    seconds: float = 7200.0
    """What one build may take."""
    memory: Path | None = None
    """A file that keeps where the checkout was, for the run after one that was killed."""

    def commits(self, good: str, bad: str) -> tuple[str, ...]:
        """From good to bad along first parents, both in it. Raises BadInput."""
        first, last = self.resolve(good), self.resolve(bad)
        if git(str(self.folder), "merge-base", "--is-ancestor", first, last) is None:
            base = (git(str(self.folder), "merge-base", first, last) or "").strip()
            hint = f": they part at {base[:12]}, which may be given as the good end" if base else ""
            raise BadInput(f"{good} is not an ancestor of {bad} in {self.folder}{hint}")
        listed = git(str(self.folder), "rev-list", "--first-parent", "--reverse", f"{first}..{last}")
        return (first, *(listed or "").split())

    def resolve(self, revision: str) -> str:
        found = git(str(self.folder), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if found is None:
            raise BadInput(f"{self.folder} has no commit {revision}: `git fetch` there first")
        return found.strip()

    def prepare(self, commit: str) -> Path:
        """Check it out and build it. Raises CannotInstall where the build fails: that commit is skipped."""
        for step in (
            [
                "checkout",
                "--quiet",
                "--force",
                "--detach",
                commit,
            ],  # forced: a build may change what is tracked
            ["submodule", "update", "--init", "--recursive"],
        ):
            done = subprocess.run(
                ["git", "-C", str(self.folder), *step], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise BadInput(f"git {step[0]} fails in {self.folder}: {done.stderr.strip()[-LAST:]}")
        if not self.build:
            return self.python
        status, said = self._run_build()
        if status:
            last = said.strip().splitlines()[-1:] or [""]
            raise CannotInstall(f"the build fails (exit status {status}): {last[0][-LAST:]}")
        return self.python

    def _run_build(self) -> tuple[int, str]:
        """(exit status, the end of its output). What it leaves running is ended."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self.build, shell=True, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                process.wait(self.seconds)
            except subprocess.TimeoutExpired as error:
                raise CannotInstall(f"the build takes more than {self.seconds:.0f} s") from error
            finally:
                end(process)
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - 4 * LAST))
            return process.returncode, output.read().decode("utf-8", "replace")

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Refuse a checkout with changes in it, and go back to where it was in the end."""
        changed = git(str(self.folder), "status", "--porcelain", "--untracked-files=no")
        if changed:
            raise BadInput(f"{self.folder} has changes that are not committed: commit or stash them first")
        here = self._here()
        try:
            yield
        finally:
            if git(str(self.folder), "checkout", "--quiet", "--force", here) is None:
                raise Stopped(
                    f"{self.folder} cannot be put back to {here}: `git checkout --force {here}` there"
                )
            if self.memory is not None:
                self.memory.unlink(missing_ok=True)

    def check(self) -> None:
        """Raises BadInput for what is no checkout."""
        if git(str(self.folder), "rev-parse", "--git-dir") is None:
            raise BadInput(f"{self.folder} is not a git checkout")

    def has(self, revision: str) -> bool:
        return bool(git(str(self.folder), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"))

    def _here(self) -> str:
        """The branch or commit to go back to: where a killed run has left it detached, the one that it had found."""
        branch = (git(str(self.folder), "symbolic-ref", "--quiet", "--short", "HEAD") or "").strip()
        if self.memory is not None and self.memory.exists() and not branch:
            return self.memory.read_text()
        here = branch or self.resolve("HEAD")
        if self.memory is not None:
            self.memory.write_text(here)
        return here


def replay_text(verdicts: tuple[Verdict, ...]) -> str:
    """What `git bisect replay` reads."""
    return "git bisect start\n" + "".join(f"git bisect {v.word} {v.version}\n" for v in verdicts)
