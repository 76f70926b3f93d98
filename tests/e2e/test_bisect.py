"""`torchtriage bisect` against a package index on this machine, with real wheels and real installations."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Done
from wheels import Fake, Index, serving, wheel

from torchtriage.bisect.installers import installers

pytestmark = pytest.mark.e2e
PROGRAM = "import torch\nprint(torch.work(1))\n"
Command = Callable[..., Done]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


@pytest.fixture
def program(work: Path) -> Path:
    (work / "prog.py").write_text(PROGRAM)
    return work / "prog.py"


@pytest.fixture
def started(work: Path, tmp_path: Path, environment: dict[str, str]) -> Callable[..., subprocess.Popen[str]]:
    """Start `torchtriage bisect ARGS` in the working folder."""

    def start(*args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        clean = {k: v for k, v in environment.items() if not k.startswith("PIP_")}
        return subprocess.Popen(
            [sys.executable, "-m", "torchtriage.cli.main", "bisect", "--store", str(tmp_path / "store"), *args],
            cwd=work, env={**clean, "PIP_CONFIG_FILE": os.devnull, **(env or {})}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    return start


@pytest.fixture
def bisect(started: Callable[..., subprocess.Popen[str]]) -> Command:
    """Run it to the end; pip unless said otherwise."""

    def command(*args: str, installer: str = "pip", env: dict[str, str] | None = None) -> Done:
        begin = time.monotonic()
        process = started("--installer", installer, *args, env=env)
        out, err = process.communicate(timeout=300)
        return Done(process.returncode, out, err, time.monotonic() - begin)

    return command


def releases(wheels: Path, n: int, boundary: int, **more: Any) -> None:
    for number in range(n):
        Fake(f"2.{number}.0", bad=number >= boundary, careful=number < boundary, **more).build(wheels)


@pytest.fixture
def twelve(wheels: Path) -> Iterator[Index]:
    """2.0.0 to 2.11.0, only the last is bad; one is yanked, one dies at import, one is no zip file."""
    releases(wheels, 12, 11)
    Fake("2.9.0", broken=True).build(wheels)
    Fake("2.8.0", die=True).build(wheels)
    with serving(Index(wheels, yanked={"torch-2.3.0-py3-none-any.whl": "oops"})) as index:
        yield index


def found_in(done: Done) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(done.out)
    return loaded


def test_a_boundary_among_broken_yanked_and_dying_versions(
    twelve: Index, program: Path, bisect: Command
) -> None:
    done = bisect("--good", "2.0.0", "--bad", "2.11.0", "--index-url", twelve.url, "--json", "-", "prog.py")
    assert done.status == 0, done.err
    found = found_in(done)
    assert (found["good"]["version"], found["bad"]["version"]) == ("2.10.0", "2.11.0")
    assert found["signature"].startswith("RuntimeError: boom in pass N at ADDRESS")
    assert found["commits"] == f"{Fake('2.10.0').commit}..{Fake('2.11.0').commit}"
    reasons = {v["version"]: v["reason"] for v in found["verdicts"] if v["word"] == "skip"}
    assert "invalid" in reasons["2.9.0"]
    assert "cannot be imported: killed by SIGSEGV" in reasons["2.8.0"]
    assert "2.3.0" not in {v["version"] for v in found["verdicts"]}
    assert any("yanked: 2.3.0" in remark for remark in found["remarks"])
    flips = {c["name"]: c["trial"] for c in found["changes"] if c["kind"] == "default"}
    assert flips == {"torch._dynamo.config.careful": "good", "torch._dynamo.config.other": "bad"}


def test_the_reports_lie_in_the_run_folder_and_the_terminal_has_the_answer(
    wheels: Path, program: Path, work: Path, bisect: Command
) -> None:
    releases(wheels, 3, 2)
    with serving(Index(wheels, form="html")) as index:
        done = bisect(
            "--good",
            "2.0.0",
            "--bad",
            "2.2.0",
            "--index-url",
            index.url,
            "--repeat",
            "1",
            "--log",
            "kept.log",
            "prog.py",
        )
    assert done.status == 0, done.err
    assert "torch: good up to 2.1.0, bad from 2.2.0" in done.out
    (folder,) = (work / "runs").iterdir()
    assert {"report.md", "report.json", "verdicts.svg", "bisect.log", "journal.sqlite"} <= {
        p.name for p in folder.iterdir()
    }
    assert (work / "kept.log").read_text() == (folder / "bisect.log").read_text()
    assert "good 2.1.0 runs=1 failures=0" in (work / "kept.log").read_text()


def test_a_segfault_at_import_is_a_skip_and_not_a_verdict(
    wheels: Path, program: Path, bisect: Command
) -> None:
    releases(wheels, 3, 2)
    Fake("2.1.0", die=True).build(wheels)
    done = bisect(
        "--good",
        "2.0.0",
        "--bad",
        "2.2.0",
        "--folder",
        str(wheels),
        "--repeat",
        "1",
        "--json",
        "-",
        "prog.py",
    )
    assert done.status == 3, done.err
    found = found_in(done)
    assert found["between"] == ["2.1.0"]
    reason = next(v["reason"] for v in found["verdicts"] if v["version"] == "2.1.0")
    assert reason == "cannot be imported: killed by SIGSEGV (in torch/__init__.py:<module>)"


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_flaky_failures_are_found(wheels: Path, program: Path, bisect: Command, rate: float) -> None:
    """The failure shows in a part of the runs, drawn anew in each; 0.1 with an accepted error of 20 %, to be quick."""
    n = 3 if rate == 0.1 else 4
    for number in range(n):
        Fake(f"2.{number}.0", bad=number >= 2, rate=rate).build(wheels)
    options = ["--error", "0.2"] if rate == 0.1 else ["--error", "0.02"]
    done = bisect(
        "--good", "2.0.0", "--bad", f"2.{n - 1}.0", "--folder", str(wheels), "--patience", "60", "--jobs", "2", "--flips", "0",
        *options, "--json", "-", "prog.py",
    )  # fmt: skip
    assert done.status == 0, done.err
    found = found_in(done)
    verdicts = {v["version"]: v for v in found["verdicts"]}
    assert found["bad"]["version"] in ("2.2.0", "2.3.0")
    assert verdicts["2.0.0"]["failures"] == 0
    assert found["rate"] is None or 0 < found["rate"] < 1
    assert found["confidence"] >= 1 - float(options[1])


def test_a_fix_is_found_from_the_bad_side(wheels: Path, program: Path, bisect: Command) -> None:
    for number in range(4):
        Fake(f"2.{number}.0", bad=number < 2).build(wheels)
    done = bisect(
        "--bad",
        "2.0.0",
        "--good",
        "2.3.0",
        "--find",
        "fix",
        "--folder",
        str(wheels),
        "--json",
        "-",
        "prog.py",
    )
    assert done.status == 0, done.err
    assert found_in(done)["said"] == "torch 2.2.0 is the first good version after 2.1.0"
    assert found_in(done)["commits"] == f"{Fake('2.1.0').commit}..{Fake('2.2.0').commit}"


def test_another_package_is_bisected_while_torch_is_held(wheels: Path, work: Path, bisect: Command) -> None:
    Fake("2.0.0").build(wheels)
    for number in range(4):
        wheel(
            wheels, "helper", f"1.{number}", {"helper.py": f"def go():\n    assert {number} < 3, 'broken'\n"}
        )
    (work / "prog.py").write_text("import torch, helper\nhelper.go()\n")
    with serving(Index(wheels)) as index:
        done = bisect(
            "--package", "helper", "--good", "1.0", "--bad", "1.3", "--hold", "torch==2.0.0", "--index-url", index.url,
            "--json", "-", "prog.py",
        )  # fmt: skip
    assert done.status == 0, done.err
    found = found_in(done)
    assert (found["good"]["version"], found["bad"]["version"]) == ("1.2", "1.3")
    assert found["bad"]["packages"]["torch"] == "2.0.0"


def test_companions_follow_torch_and_one_that_is_missing_is_a_skip(
    wheels: Path, program: Path, bisect: Command
) -> None:
    releases(wheels, 4, 3)
    for number in (0, 1, 3):
        wheel(wheels, "torchvision", f"0.{15 + number}", {"torchvision.py": ""}, (f"torch==2.{number}.0",))
    with serving(Index(wheels)) as index:
        done = bisect(
            "--good",
            "2.0.0",
            "--bad",
            "2.3.0",
            "--with",
            "torchvision",
            "--index-url",
            index.url,
            "--json",
            "-",
            "prog.py",
        )
    assert done.status == 3, done.err
    found = found_in(done)
    assert found["between"] == ["2.2.0"]
    assert found["bad"]["packages"]["torchvision"] == "0.18"
    skipped = next(v for v in found["verdicts"] if v["word"] == "skip")
    assert skipped["reason"].startswith("no torchvision goes with torch 2.2.0")


def test_a_command_s_exit_status_counts_and_125_skips(wheels: Path, work: Path, bisect: Command) -> None:
    releases(wheels, 5, 3)
    (work / "check.sh").write_text(
        'case "$TORCHTRIAGE_VERSION" in 2.2.0) exit 125;; esac\nexec python -c "import torch; torch.work(1)"\n'
    )
    done = bisect(
        "--command",
        "--good",
        "2.0.0",
        "--bad",
        "2.4.0",
        "--folder",
        str(wheels),
        "--json",
        "-",
        "sh",
        "check.sh",
    )
    assert done.status == 3, done.err
    found = found_in(done)
    assert (found["good"]["version"], found["bad"]["version"], found["between"]) == (
        "2.1.0",
        "2.3.0",
        ["2.2.0"],
    )


def test_an_index_that_dies_in_the_middle_stops_it_and_the_same_command_goes_on(
    wheels: Path, program: Path, bisect: Command
) -> None:
    releases(wheels, 9, 5)
    with serving(Index(wheels, dies_after=3)) as index:
        args = ("--good", "2.0.0", "--bad", "2.8.0", "--index-url", index.url, "--json", "-", "prog.py")
        quick = {"PIP_RETRIES": "0"}
        done = bisect(*args, env=quick)
        assert done.status == 3
        assert "Nothing is lost: the same command goes on from here" in done.err
        assert "Traceback" not in done.err
        index.dies_after, before = None, len(index.asked)
        done = bisect(*args, env=quick)
        assert done.status == 0, done.err
        fetched = [path for path in index.asked[before:] if path.endswith(".whl")]
    found = found_in(done)
    assert (found["good"]["version"], found["bad"]["version"]) == ("2.4.0", "2.5.0")
    assert not any("torch-2.8.0-" in path or "torch-2.0.0-" in path for path in fetched)


def test_no_index_at_all_is_one_line(program: Path, bisect: Command) -> None:
    done = bisect("--good", "2.0.0", "--bad", "2.8.0", "--index-url", "http://127.0.0.1:9/simple", "prog.py")
    assert done.status == 3
    assert "cannot be reached" in done.err and "Traceback" not in done.err


def test_a_kill_in_the_middle_loses_nothing(
    wheels: Path, program: Path, work: Path, started: Callable[..., subprocess.Popen[str]], bisect: Command
) -> None:
    releases(wheels, 9, 5)
    args = ("--good", "2.0.0", "--bad", "2.8.0", "--folder", str(wheels), "--json", "out.json", "prog.py")
    process = started("--installer", "pip", *args)
    assert process.stderr is not None
    for line in process.stderr:
        if "2.0.0: good" in line:
            process.send_signal(signal.SIGKILL)
            break
    process.communicate()
    done = bisect(*args)
    assert done.status == 0, done.err
    assert "2.8.0: installing" not in done.err and "2.0.0: installing" not in done.err
    assert json.loads((work / "out.json").read_text())["bad"]["version"] == "2.5.0"


def test_an_installation_that_was_interrupted_is_waited_for_and_begun_anew(
    wheels: Path,
    program: Path,
    tmp_path: Path,
    started: Callable[..., subprocess.Popen[str]],
    bisect: Command,
) -> None:
    """torchtriage is killed while its installer goes on for a while, and leaves half an environment."""
    releases(wheels, 3, 2)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "uv").write_text(
        '#!/bin/sh\nfor last; do :; done\nmkdir -p "$last/bin"; touch "$last/bin/python"\nsleep 4\n'
    )
    (tools / "uv").chmod(0o755)
    args = ("--good", "2.0.0", "--bad", "2.2.0", "--folder", str(wheels), "--flips", "0", "prog.py")
    process = started("--installer", "uv", *args, env={"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"})
    while not list((tmp_path / "store").glob("*/bin/python")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = bisect(*args)
    assert done.status == 0, done.err
    assert "another process is making this environment" in done.err
    assert "bad from 2.2.0" in done.out


def test_a_log_is_replayed_without_running_what_it_has(
    wheels: Path, program: Path, work: Path, bisect: Command
) -> None:
    releases(wheels, 6, 3)
    (work / "old.log").write_text(
        "bad 2.5.0 runs=4 failures=4\ngood 2.0.0 runs=1 failures=0\ngood 2.2.0\nbad 9.9.9\n"
    )
    done = bisect(
        "--good", "2.0.0", "--bad", "2.5.0", "--folder", str(wheels), "--replay", "old.log", "prog.py"
    )
    assert done.status == 0, done.err
    assert "torch: good up to 2.2.0, bad from 2.3.0" in done.out
    assert "any failure counted" in done.out
    assert "not taken from the log: 9.9.9" in done.out
    assert "2.5.0: installing" not in done.err and "2.0.0: installing" not in done.err


def test_uv_that_cannot_reach_the_index_gives_way_to_pip(
    wheels: Path, program: Path, tmp_path: Path, bisect: Command
) -> None:
    releases(wheels, 3, 2)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "uv").write_text(
        "#!/bin/sh\necho 'error: error sending request for url: dns error' >&2\nexit 2\n"
    )
    (tools / "uv").chmod(0o755)
    done = bisect(
        "--good", "2.0.0", "--bad", "2.2.0", "--folder", str(wheels), "prog.py",
        installer="auto", env={"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "uv cannot reach the index" in done.err
    assert "bad from 2.2.0" in done.out


@pytest.mark.skipif(not installers("uv"), reason="needs uv")
def test_uv_makes_the_environments_from_either_form_of_index(
    wheels: Path, program: Path, bisect: Command
) -> None:
    releases(wheels, 4, 3)
    with serving(Index(wheels, form="html")) as index:
        done = bisect(
            "--good",
            "2.0.0",
            "--bad",
            "2.3.0",
            "--index-url",
            index.url,
            "--json",
            "-",
            "prog.py",
            installer="uv",
        )
    assert done.status == 0, done.err
    assert found_in(done)["bad"]["version"] == "2.3.0"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--good", "2.0.0", "--bad", "2.0.0"), "both ends are 2.0.0"),
        (("--good", "2.2.0", "--bad", "2.0.0"), "to look for a fix, use --find fix"),
        (
            ("--good", "1.0.0", "--bad", "2.2.0"),
            "1.0.0 is out of reach: there are 3 versions here, from 2.0.0 to 2.2.0",
        ),
        (("--good", "2.0.0", "--bad", "2.2.0", "--regress", "colour"), "--regress is one of"),
        (("--good", "2.0.0", "--bad", "2.2.0", "--replay", "none.log"), "cannot read none.log"),
        (("--good", "2.0.0", "--bad", "2.2.0", "--python", "nosuch"), "no such interpreter: nosuch"),
    ],
)
def test_bad_input_is_one_line(
    wheels: Path, program: Path, bisect: Command, args: tuple[str, ...], said: str
) -> None:
    releases(wheels, 3, 2)
    done = bisect("-q", *args, "--folder", str(wheels), "prog.py")
    assert done.status == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_good_end_that_is_bad_is_told(wheels: Path, program: Path, bisect: Command) -> None:
    releases(wheels, 3, 0)
    done = bisect("--good", "2.0.0", "--bad", "2.2.0", "--folder", str(wheels), "prog.py")
    assert done.status == 2
    assert "the good end 2.0.0 shows it as well" in done.out


def test_commits_of_a_checkout_are_bisected_with_a_build(work: Path, bisect: Command) -> None:
    repository = work / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    commits = []
    for number in range(6):
        (repository / "value").write_text(str(number))
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", f"number {number}"], check=True)
        commits.append(
            subprocess.run(
                [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
            ).stdout.strip()
        )
    (work / "check.sh").write_text('test "$(cat repository/built)" -lt 4\n')
    done = bisect(
        "--command", "--good", commits[0], "--bad", commits[5], "--checkout", str(repository),
        "--build", "test $(cat value) -ne 3 && cp value built", "--json", "-", "sh", "check.sh",
    )  # fmt: skip
    assert done.status == 3, done.err
    found = found_in(done)
    assert (found["good"]["version"], found["bad"]["version"]) == (commits[2], commits[4])
    assert found["between"] == [commits[3]]
    here = subprocess.run(
        [*git, "rev-parse", "--abbrev-ref", "HEAD"], capture_output=True, text=True, check=True
    )
    assert here.stdout.strip() in ("main", "master")


def test_from_versions_the_search_goes_on_among_the_commits_between_them(
    wheels: Path, program: Path, work: Path, tmp_path: Path, bisect: Command
) -> None:
    """Two versions are bisected, then the six commits from the one to the other, each built into an own interpreter."""
    repository = work / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    commits = []
    for number in range(6):
        (repository / "torch.py").write_text(
            f"number = {number}\ndef work(x):\n    if number >= 4: raise RuntimeError('boom in pass 17 at 0x7f00: 2.1.0')\n"
        )
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", f"number {number}"], check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        commits.append(head.stdout.strip())
    Fake("2.0.0", sha=commits[0]).build(wheels)
    Fake("2.1.0", sha=commits[5], bad=True).build(wheels)
    python = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(python)], check=True)
    (site,) = python.glob("lib/*/site-packages")
    done = bisect(
        "--good", "2.0.0", "--bad", "2.1.0", "--folder", str(wheels), "--flips", "0", "--python", f"{python}/bin/python",
        "--checkout", str(repository), "--build", f"cp torch.py {site}", "--json", "-", "prog.py",
    )  # fmt: skip
    assert done.status == 0, done.err
    found = found_in(done)
    assert (found["good"]["version"], found["bad"]["version"]) == ("2.0.0", "2.1.0")
    assert found["commits"] == f"{commits[3]}..{commits[4]}"
    (log,) = (work / "runs").glob("*/git-bisect.log")
    assert f"git bisect bad {commits[4]}" in log.read_text()
