"""A git checkout in place of wheels: what a build may do to it, and that it is left as it was found."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from torchtriage.bisect.checkout import Checkout
from torchtriage.bisect.errors import BadInput, CannotInstall
from torchtriage.bisect.provide import Provider
from torchtriage.bisect.run import Settings, rule_of

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in a repository of four commits with the tags v1.0 to v1.3, on the branch trunk."""

    def run(*args: str) -> str:
        names = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path / "r"), *names, *args], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    (tmp_path / "r").mkdir()
    run("init", "-q", "-b", "trunk")
    for number in range(4):
        (tmp_path / "r" / "value").write_text(str(number))
        run("add", ".")
        run("commit", "-qm", f"number {number}")
        run("tag", f"v1.{number}")
    return run


def checkout(tmp_path: Path, build: str, seconds: float = 60.0) -> Checkout:
    return Checkout(tmp_path / "r", build, Path(sys.executable), seconds, tmp_path / "memory")


def test_a_build_may_change_what_is_tracked(tmp_path: Path, git: Git) -> None:
    there = checkout(tmp_path, "echo built >> value")
    with there.kept():
        for tag in ("v1.0", "v1.2", "v1.1"):
            there.prepare(git("rev-parse", tag))
            assert (tmp_path / "r" / "value").read_text() == f"{tag[-1]}built\n"
    assert git("status", "-sb") == "## trunk"
    assert (tmp_path / "r" / "value").read_text() == "3"


def test_what_a_build_leaves_running_is_ended(tmp_path: Path, git: Git) -> None:
    there = checkout(tmp_path, "sleep 60 & echo $! > pid")
    begin = time.monotonic()
    there.prepare(git("rev-parse", "v1.0"))
    assert time.monotonic() - begin < 30
    pid = (tmp_path / "r" / "pid").read_text().strip()
    while runs(pid):
        assert time.monotonic() - begin < 30
        time.sleep(0.05)


def runs(pid: str) -> bool:
    """Whether it is there, and not only waits to be told of."""
    try:
        return "State:\tZ" not in Path("/proc", pid, "status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ("echo no compiler; exit 7", r"the build fails \(exit status 7\): no compiler"),
        ("sleep 60 & sleep 60", "the build takes more than 1 s"),
    ],
)
def test_a_build_that_fails_or_takes_too_long_is_a_skip(
    tmp_path: Path, git: Git, build: str, said: str
) -> None:
    with pytest.raises(CannotInstall, match=said):
        checkout(tmp_path, build, 1.0).prepare(git("rev-parse", "v1.0"))


def test_the_branch_is_found_again_after_a_kill(tmp_path: Path, git: Git) -> None:
    code = (
        "import os, sys; from pathlib import Path; from torchtriage.bisect.checkout import Checkout\n"
        "there = Checkout(Path(sys.argv[1]) / 'r', '', Path('python'), memory=Path(sys.argv[1]) / 'memory')\n"
        "with there.kept():\n    there.prepare(sys.argv[2]); os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), git("rev-parse", "v1.1")], check=False)
    assert git("status", "-sb") == "## HEAD (no branch)"
    with checkout(tmp_path, "").kept():
        pass
    assert git("status", "-sb") == "## trunk"
    assert not (tmp_path / "memory").exists()


@pytest.mark.parametrize(
    ("package", "good", "by_commit"),
    [("thing", "v1.0", True), ("thing", "HEAD~3", True), ("torch", "HEAD~3", True)],
)
def test_tags_that_look_like_versions_are_revisions_of_a_checkout(
    tmp_path: Path, git: Git, package: str, good: str, by_commit: bool
) -> None:
    settings = Settings(good, "v1.3", package=package, checkout=str(tmp_path / "r"), build="true", jobs=4)
    provider = Provider(settings, tmp_path, lambda text: None)
    assert provider.by_commit == by_commit and len(provider.versions) == 4
    assert rule_of(settings, provider.by_commit).jobs == 1


def test_of_torch_versions_come_first(tmp_path: Path, git: Git) -> None:
    settings = Settings("v1.0", "v1.3", versions="1.0 1.3", checkout=str(tmp_path / "r"))
    assert not Provider(settings, tmp_path, lambda text: None).by_commit


def test_what_is_no_checkout_is_told_before_anything_is_run(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a git checkout"):
        Provider(Settings("1", "2", checkout=str(tmp_path)), tmp_path, lambda text: None)
