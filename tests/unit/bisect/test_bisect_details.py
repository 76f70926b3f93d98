"""Commits, companions, requirements, logs, and what differs in between."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from torchtriage.bisect import between
from torchtriage.bisect.commits import Commit, commit_of_wheel, on_main, span
from torchtriage.bisect.companions import matching
from torchtriage.bisect.errors import BadInput, CannotInstall
from torchtriage.bisect.provide import Provider
from torchtriage.bisect.record import Replayed, log_text, read_log
from torchtriage.bisect.requirements import beside, read_lines
from torchtriage.bisect.run import Settings, check
from torchtriage.bisect.trial import Target
from torchtriage.bisect.versions import Wheel, wheel_of
from torchtriage.model.bisection import Bisection, Verdict

SHA = "0123456789" * 4


# --- commits --------------------------------------------------------------------------------------


def test_the_commit_is_read_out_of_the_wheel(tmp_path: Path) -> None:
    path = tmp_path / "torch-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch/version.py", f"__version__ = '1.0'\ngit_version = '{SHA}'\n")
    assert commit_of_wheel(path.as_uri()) == Commit(SHA)


def test_a_wheel_without_a_commit_says_so(tmp_path: Path) -> None:
    path = tmp_path / "torch-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch/other.py", "")
    assert commit_of_wheel(path.as_uri()).note == "the wheel has no torch/version.py"
    path.write_bytes(b"no zip")
    assert "could not be read" in commit_of_wheel(path.as_uri()).note


@pytest.fixture
def checkout(tmp_path: Path) -> tuple[str, str, str]:
    """(folder, the commit whose subject names SHA, another one)."""
    folder = tmp_path / "checkout"
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    found = []
    for subject in (f"2025-11-20 nightly release ({SHA})", "something else"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True)
        found.append(
            subprocess.run(
                [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
            ).stdout.strip()
        )
    return str(folder), found[0], found[1]


def test_a_nightly_s_commit_is_mapped_to_main_by_its_subject(checkout: tuple[str, str, str]) -> None:
    folder, nightly, other = checkout
    assert on_main(Commit(nightly), True, folder).sha == SHA
    assert "names no commit on main" in on_main(Commit(other), True, folder).note
    assert "git fetch origin nightly" in on_main(Commit(SHA), True, folder).note
    assert span(Commit(nightly), Commit(other), folder) == f"{nightly}..{other} (1 commit)"


def test_without_a_checkout_it_is_told_that_it_is_not_mapped() -> None:
    assert on_main(Commit(SHA), True) == Commit(
        SHA, "on the branch nightly; not mapped to main, which needs a checkout of PyTorch (--checkout)"
    )
    assert on_main(Commit(SHA), False) == Commit(SHA)
    assert span(Commit(SHA), Commit()) == ""


# --- companions and requirements ------------------------------------------------------------------


def companion(version: str, date: str = "") -> Wheel:
    found = wheel_of(f"torchvision-{version}-py3-none-any.whl", "u", date=date)
    assert found is not None
    return found


def test_the_companion_is_the_one_whose_metadata_asks_for_this_torch() -> None:
    asks = {"0.23.0": "torch==2.8.0", "0.24.0": "torch==2.9.0", "0.24.1": "torch==2.9.1"}
    wheels = [companion(version) for version in asks]
    read = lambda wheel: [Requirement("numpy"), Requirement(asks[str(wheel.version)])]  # noqa: E731
    assert matching("torchvision", wheels, None, "2.9.1", read) == "torchvision==0.24.1"
    assert matching("torchvision", wheels, None, "2.9.0+cpu", read) == "torchvision==0.24.0"
    with pytest.raises(CannotInstall, match=r"no torchvision goes with torch 2\.7\.0 \(3 were looked at\)"):
        matching("torchvision", wheels, None, "2.7.0", read)


def test_those_of_about_the_same_day_are_looked_at_first() -> None:
    looked: list[str] = []

    def read(wheel: Wheel) -> list[Requirement]:
        looked.append(str(wheel.version))
        return [Requirement("torch==2.9.0")] if str(wheel.version) == "0.24.0" else []

    torch = wheel_of("torch-2.9.0-py3-none-any.whl", "u", date="2025-10-15")
    wheels = [
        companion("0.1.0", "2018-01-01"),
        companion("0.24.0", "2025-10-16"),
        companion("0.30.0", "2026-09-01"),
    ]
    matching("torchvision", wheels, torch, "2.9.0", read)
    assert looked == ["0.24.0"]


def test_requirements_lose_what_is_bisected_and_set_free_what_follows_torch(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("einops\n")
    file = tmp_path / "r.txt"
    file.write_text(
        "torch==2.9.1  # pinned\ntorchvision==0.24.1\ntriton==3.5.0\nnumpy<2\n-r more.txt\n--no-binary x\ngit+https://example.org/x\n"
    )
    found = beside("torch", ("numpy<2", "rich"), (str(file),), (), tmp_path)
    assert found.fixed == ("numpy<2", "rich", "einops")
    assert found.matched == ("torchvision",)
    (rest,) = found.files
    assert Path(rest).read_text() == "--no-binary x\ngit+https://example.org/x\n"


def test_extras_of_what_is_bisected_are_kept(tmp_path: Path) -> None:
    """They bring packages that the program may need."""
    file = tmp_path / "r.txt"
    file.write_text("Thing[fast, extra]==1.0 --hash=sha256:ab\n")
    found = beside("thing", ("thing[dev]", "numpy"), (str(file),), (), tmp_path)
    assert (found.fixed, found.extras) == (("numpy",), ("dev", "extra", "fast"))
    settings = Settings(
        "1.0", "2.0", package="thing", files=(str(file),), hold=("torch==1",), versions="1.0 2.0"
    )
    provider = Provider(settings, tmp_path, lambda text: None)
    assert provider.wanted("2.0").requirements == ("thing[extra,fast]==2.0", "torch==1")


@pytest.mark.parametrize("name", ["thing[fast]", "", "../x", "a b", "thing==1.0"])
def test_a_package_is_named_without_anything_else(name: str) -> None:
    with pytest.raises(BadInput, match="takes the name of a package"):
        check(Settings("1", "2", package=name), Target("script", "x.py"))


def test_where_another_package_is_bisected_torch_and_its_companions_stay(tmp_path: Path) -> None:
    found = beside("triton", ("triton", "torchvision==0.24.1"), (), ("torch==2.9.1",), tmp_path)
    assert found.fixed == ("torchvision==0.24.1", "torch==2.9.1")


def test_options_of_a_requirements_file_keep_their_place(tmp_path: Path) -> None:
    """What is left of a file is written to the run folder, from where a name beside the file would lead nowhere."""
    place = tmp_path / "my project"
    (place / "wheels").mkdir(parents=True)
    for name in ("cons.txt", "r.txt"):
        (place / name).write_text("-c cons.txt\n--find-links ./wheels\n--find-links nowhere\nnumpy\n")
    found = beside("torch", (), (str(place / "r.txt"),), (), tmp_path)
    assert found.fixed == ("numpy",)
    lines = [
        f"-c {(place / 'cons.txt').as_uri()}",
        f"--find-links {(place / 'wheels').as_uri()}",
        "--find-links nowhere",
    ]
    assert Path(found.files[0]).read_text().splitlines() == lines


def test_a_requirements_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("-r b.txt\n-r b.txt\n")
    (tmp_path / "b.txt").write_text("numpy\n")
    assert read_lines(tmp_path / "a.txt") == ["numpy", "numpy"]
    (tmp_path / "b.txt").write_text("-r a.txt\n")
    with pytest.raises(BadInput, match="includes itself"):
        read_lines(tmp_path / "a.txt")


# --- record ---------------------------------------------------------------------------------------


def test_a_log_comes_back_as_it_was_written() -> None:
    verdicts = (
        Verdict("2.9.0", "good", 14, 0),
        Verdict("2.10.0", "skip", reason='pip: "no" such'),
        Verdict("2.11.0", "bad", 5, 3),
    )
    found = read_log(log_text(Bisection("torch", "p.py", "range", "said", verdicts=verdicts)))
    assert found == {
        "2.9.0": Replayed((False,) * 14),
        "2.10.0": Replayed(None, 'pip: "no" such'),
        "2.11.0": Replayed((False, False, True, True, True)),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [("fine 2.9", "line 1 of the log is not"), ("\nbad 2.9 runs=1 failures=3", "line 2 of the log has 3")],
)
def test_a_log_that_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_log(text)


# --- in between -----------------------------------------------------------------------------------


def test_changed_defaults_dependencies_and_entries_of_used_operators_are_found() -> None:
    good = {
        "configs": {"torch._dynamo.config": {"a": 1, "b": True, "gone": 1}},
        "packages": {"torch": "2.9", "triton": "3.5", "sympy": "1.13"},
        "tables": {"lowering": {"aten.add.Tensor": "x", "aten.mul.Tensor": "x", "aten.sub.Tensor": "x"}},
    }
    bad = {
        "configs": {"torch._dynamo.config": {"a": 1, "b": False, "new": 1}},
        "packages": {"torch": "2.10", "triton": "3.6", "sympy": "1.13", "extra": "1"},
        "tables": {"lowering": {"aten.add.Tensor": "y", "aten.mul.Tensor": "y"}},
    }
    found = between.changes(good, bad, ("aten.add.out", "aten.sub.Tensor"), "torch")
    assert [(c.kind, c.name, c.before, c.after) for c in found] == [
        ("default", "torch._dynamo.config.b", "True", "False"),
        ("dependency", "extra", "not there", "1"),
        ("dependency", "triton", "3.5", "3.6"),
        ("lowering", "aten.add.Tensor", "its source", "another source"),
        ("lowering", "aten.sub.Tensor", "its source", "none"),
    ]
    assert between.patch(found[0], good) == {"torch._dynamo.config": {"b": True}}
    assert found[0].lines[-1] == "torch._dynamo.config.b = True"
