"""Runs one target once and writes what it did as JSON: `python runner.py SPEC.json`.

SPEC has `kind` (script, module, callable, pytest, config, operators), `name`, `args`, `out`, `watch` (compare compiled calls
with eager ones), `patches` ({config module: {name: value}}), `steps` (further calls of a callable, for its step time)
and `imports` (the package that is bisected). `out` is rewritten at each phase, so that a process that dies tells how far it came.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import re
import runpy
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


class Report:
    """The JSON file, replaced as a whole at each phase."""

    def __init__(self, path: str):
        self.path = path
        self.data: dict[str, Any] = {"phase": "start"}

    def write(self, phase: str, **fields: Any) -> None:
        self.data.update(fields, phase=phase)
        with open(self.path + ".part", "w", encoding="utf-8") as file:
            json.dump(self.data, file, default=str)
        os.replace(self.path + ".part", self.path)


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    end_with_parent()
    report = Report(spec["out"])
    if sys.path and os.path.abspath(sys.path[0] or ".") == HERE:
        del sys.path[0]  # our folder would shadow the program's own modules
    report.write("import")
    try:
        torch = import_what_is_asked(spec)
    except BaseException as error:
        report.write("import", exception=describe(error))
        return 70
    report.write("run", facts=facts(torch))
    ended_by = perform(spec, torch, report)
    report.write("done", exception=None if ended_by is None else describe(ended_by), **measured(torch))
    sys.stdout.flush()
    if ended_by is not None and not isinstance(ended_by, SystemExit):
        traceback.print_exception(type(ended_by), ended_by, ended_by.__traceback__)
        return 1
    return exit_status(ended_by)


def end_with_parent() -> None:
    """On Linux: leave nothing behind when the process that watches is killed."""
    try:
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (ImportError, OSError, AttributeError):
        pass


def import_what_is_asked(spec: dict[str, Any]) -> Any:
    """torch, or None where there is none. Raises what the import of it, or of the bisected package, raises."""
    for name in spec.get("imports", ()):
        module = sibling("dump").module_of(name)
        if module:
            importlib.import_module(module)
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") is not None else None
    for module, values in (spec.get("patches") or {}).items():
        config = importlib.import_module(module)
        for name, value in values.items():
            setattr(config, name, value)
    return torch


def perform(spec: dict[str, Any], torch: Any, report: Report) -> BaseException | None:
    """The exception that ended the target, or None."""
    watch = sibling("watch")
    timer = watch.install(torch, compare=bool(spec.get("watch"))) if torch is not None else None
    begin = time.perf_counter()
    try:
        extra = KINDS[spec["kind"]](spec, torch)
    except BaseException as error:
        extra = {}
        if isinstance(error, KeyboardInterrupt):
            raise
        return error
    finally:
        fields = {"seconds": time.perf_counter() - begin}
        if timer is not None:
            fields.update(timer.result())
        report.write("run", **fields)
    report.data.update(extra or {})
    return extra.get("error") if extra else None


def run_script(spec: dict[str, Any], torch: Any) -> None:
    path = os.path.abspath(spec["name"])
    sys.argv = [spec["name"], *spec["args"]]
    sys.path.insert(0, os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")


def run_module(spec: dict[str, Any], torch: Any) -> None:
    sys.argv = [spec["name"], *spec["args"]]
    sys.path.insert(0, os.getcwd())
    runpy.run_module(spec["name"], run_name="__main__", alter_sys=True)


def run_callable(spec: dict[str, Any], torch: Any) -> dict[str, Any]:
    """Call it, compiled if it compiles nothing itself, then `steps` times more for its step time."""
    name, _, attribute = spec["name"].rpartition(":")
    sys.argv = [spec["name"], *spec["args"]]
    if name.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(name)))
        file = importlib.util.spec_from_file_location("__target__", name)
        assert file is not None and file.loader is not None
        module = importlib.util.module_from_spec(file)
        sys.modules["__target__"] = module
        file.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(name)
    target: Any = module
    for part in attribute.split("."):
        target = getattr(target, part)
    target()
    times = []
    for _ in range(int(spec.get("steps", 0))):
        begin = time.perf_counter()
        target()
        times.append(time.perf_counter() - begin)
    return {"steps": times} if times else {}


def run_pytest(spec: dict[str, Any], torch: Any) -> dict[str, Any]:
    """The node under pytest. The exception is that of the first test that fails."""
    pytest = importlib.import_module("pytest")
    caught: list[BaseException] = []

    class Catch:
        def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
            if call.excinfo is not None:
                caught.append(call.excinfo.value)

    sys.path.insert(0, os.getcwd())
    status = int(pytest.main(["-p", "no:cacheprovider", spec["name"], *spec["args"]], plugins=[Catch()]))
    if caught:
        return {"error": caught[0]}
    if status == 0:
        return {}
    words = {2: "interrupted", 3: "internal error", 4: "no such test", 5: "no tests ran"}
    return {"error": RuntimeError(f"pytest: {words.get(status, f'exit status {status}')}"), "unusable": True}


def dump_config(spec: dict[str, Any], torch: Any) -> dict[str, Any]:
    dump = sibling("dump")
    return {"configs": dump.configs(), "tables": dump.tables(), "packages": dump.packages()}


def list_operators(spec: dict[str, Any], torch: Any) -> dict[str, Any]:
    """The ATen operators that the target runs in eager mode."""
    return {"operators": sibling("dump").operators(torch, lambda: KINDS[spec["as"]](spec, torch))}


KINDS: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "script": run_script,
    "module": run_module,
    "callable": run_callable,
    "pytest": run_pytest,
    "config": dump_config,
    "operators": list_operators,
}


def sibling(name: str) -> Any:
    """A file of this folder, loaded by path."""
    file = importlib.util.spec_from_file_location(f"_torchtriage_{name}", os.path.join(HERE, name + ".py"))
    assert file is not None and file.loader is not None
    module = importlib.util.module_from_spec(file)
    file.loader.exec_module(module)
    return module


def facts(torch: Any) -> dict[str, Any]:
    """What the environment is: interpreter, platform, torch and its commit, distributions."""
    version = getattr(torch, "version", None)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": str(getattr(torch, "__version__", "")),
        "commit": str(getattr(version, "git_version", "") or ""),
        "cuda": str(getattr(version, "cuda", "") or ""),
        "packages": sibling("dump").packages(),
    }


def chain(error: BaseException) -> list[BaseException]:
    """The exception and those that led to it, outermost first."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and all(current is not known for known in found) and len(found) < 20:
        found.append(current)
        inner = getattr(current, "inner_exception", None)
        inner = inner if isinstance(inner, BaseException) else None
        current = (
            inner or current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        )
    return found


def describe(error: BaseException) -> dict[str, Any]:
    """Type, message and innermost torch frames, in a form that two versions can be compared by."""
    inner = chain(error)[-1]
    try:
        message = str(inner)[:20_000]
    except Exception:
        message = "<the exception cannot be printed>"
    return {
        "type": type(error).__qualname__,
        "inner": type(inner).__qualname__,
        "message": message,
        "frames": torch_frames(inner) or torch_frames(error),
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__))[-20_000:],
        "status": exit_status(error) if isinstance(error, SystemExit) else None,
    }


def torch_frames(error: BaseException) -> list[str]:
    """The innermost three frames in torch, as `path:function`: line numbers move from version to version."""
    found = []
    for frame in traceback.extract_tb(error.__traceback__):
        match = re.search(r"(?:^|[/\\])(torch(?:[/\\][\w.]+)+)$", frame.filename)
        if match and "site-packages" in frame.filename:
            found.append(match.group(1).replace("\\", "/") + ":" + frame.name)
    return found[-3:]


def exit_status(error: BaseException | None) -> int:
    code = getattr(error, "code", None)
    return 0 if code is None else code if isinstance(code, int) else 1


def measured(torch: Any) -> dict[str, Any]:
    """Counts, compile time (seconds) and peak memory (bytes); None for what this torch does not tell."""
    return {**sibling("watch").counts(torch), "memory": peak_memory(torch)}


def peak_memory(torch: Any) -> int | None:
    try:
        if torch is not None and torch.cuda.is_initialized():
            return int(torch.cuda.max_memory_allocated())
    except Exception:
        pass
    try:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    except ImportError:
        return None
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    sys.exit(main())
