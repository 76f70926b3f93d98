"""A reduced script changes no file of the program's: not from Python, not from C++, not from a process that it starts."""

import os
import pathlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TextIO

import pytest

torch = pytest.importorskip("torch")

from torchtriage.probe import fence, landlock  # noqa: E402

KERNEL = landlock.version_of_kernel() >= 2


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The script's folder, and a program's folder outside of it that it has links to."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    (outside / "saved" / "deep").mkdir(parents=True)
    inside.mkdir()
    for name in ("kept", "saved/last.pt", "saved/deep/log.txt"):
        (outside / name).write_text("kept")
    for entry in outside.iterdir():
        (inside / entry.name).symlink_to(entry)
    return inside, outside


def run(action: str, inside: Path, outside: Path) -> tuple[int, str]:
    """Exit status (0 done, 3 refused, 4 another error) and the error of a fork of this process with the fence up."""
    errors = inside / "errors"
    child = os.fork()
    if not child:
        with errors.open("w") as out:
            os._exit(behind_the_fence(action.format(outside=str(outside)), inside, outside, out))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), errors.read_text()


def behind_the_fence(action: str, inside: Path, outside: Path, out: TextIO) -> int:
    try:
        tempfile.tempdir = str(inside)
        os.chdir(inside)
        fence.put_up(str(inside))
        open("mine", "w").close()
        (outside / "kept").read_text()
        exec(
            action, {"os": os, "pathlib": pathlib, "shutil": shutil, "subprocess": subprocess, "torch": torch}
        )
        return 0
    except (PermissionError, RuntimeError, subprocess.CalledProcessError) as error:
        out.write(str(error))
        return 3
    except BaseException as error:
        out.write(repr(error))
        return 4
    finally:
        out.flush()


def is_untouched(outside: Path) -> bool:
    found = {str(p.relative_to(outside)): p.read_text() for p in outside.rglob("*") if p.is_file()}
    return found == dict.fromkeys(("kept", "saved/last.pt", "saved/deep/log.txt"), "kept")


@pytest.mark.parametrize(
    "action",
    [
        "open({outside!r} + '/new', 'w')",
        "os.remove({outside!r} + '/kept')",
        "shutil.rmtree({outside!r})",
        "os.rename({outside!r} + '/kept', {outside!r} + '/other')",
        "pathlib.Path({outside!r}, 'kept').write_text('')",
        "os.open({outside!r} + '/kept', os.O_WRONLY)",
        "os.system('true')",
        "torch.save(torch.ones(2), {outside!r} + '/model.pt')",
        "os.chdir('saved'); open('last.pt', 'w')",
        "os.remove('last.pt', dir_fd=os.open('saved', os.O_RDONLY))",
    ],
)
def test_files_outside_are_not_changed(action: str, folders: tuple[Path, Path]) -> None:
    inside, outside = folders
    status, errors = run(action, inside, outside)
    assert status == 3, errors
    assert is_untouched(outside) and (inside / "mine").exists()


@pytest.mark.skipif(not KERNEL, reason="the kernel has no Landlock")
@pytest.mark.parametrize(
    "action",
    [
        "subprocess.run(['rm', {outside!r} + '/kept'], check=True)",
        "subprocess.run(['cp', 'mine', {outside!r} + '/kept'], check=True)",
        "torch._C.PyTorchFileWriter({outside!r} + '/kept')",
    ],
)
def test_nor_by_processes_and_code_that_is_not_python(action: str, folders: tuple[Path, Path]) -> None:
    inside, outside = folders
    status, errors = run(action, inside, outside)
    assert status == 3, errors
    assert is_untouched(outside)


@pytest.mark.parametrize(
    ("action", "file", "text"),
    [
        ("open('kept', 'w').write('new')", "kept", "new"),
        ("open('kept', 'a').write(' more')", "kept", "kept more"),
        ("open('saved/last.pt', 'w').write('new')", "saved/last.pt", "new"),
        ("open('saved/deep/new.txt', 'x').write('new')", "saved/deep/new.txt", "new"),
        ("pathlib.Path('saved/made/here').mkdir(parents=True); open('saved/made/here/a', 'w').write('1')",
         "saved/made/here/a", "1"),
        ("os.replace('mine', 'saved/last.pt')", "saved/last.pt", ""),
        ("shutil.rmtree('saved'); os.mkdir('saved'); open('saved/a', 'w').write('1')", "saved/a", "1"),
        ("os.remove('saved/deep/log.txt'); open('saved/deep/log.txt', 'w').write('2')", "saved/deep/log.txt", "2"),
        ("os.truncate('kept', 2)", "kept", "ke"),
    ],
)  # fmt: skip
def test_what_a_script_writes_in_the_programs_folder_is_a_copy(
    action: str, file: str, text: str, folders: tuple[Path, Path]
) -> None:
    inside, outside = folders
    status, errors = run(action, inside, outside)
    assert status == 0, errors
    assert (inside / file).read_text() == text and is_untouched(outside)


def test_a_model_is_saved_beside_the_programs_own(folders: tuple[Path, Path]) -> None:
    inside, outside = folders
    status, errors = run(
        "torch.save(torch.ones(2), 'saved/last.pt'); torch.load('saved/last.pt')", inside, outside
    )
    assert status == 0, errors
    assert not (inside / "saved" / "last.pt").is_symlink() and is_untouched(outside)


def test_a_file_that_is_too_large_to_copy_is_not_changed(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = folders
    monkeypatch.setattr(fence, "LARGEST", 3)
    with pytest.raises(PermissionError, match="keeps reduced scripts from changing"):
        fence.own_file(str(inside / "kept"), fresh=False)
    fence.own_file(str(inside / "kept"), fresh=True)
    assert not (inside / "kept").exists() and is_untouched(outside)
