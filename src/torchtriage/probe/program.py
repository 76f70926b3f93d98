"""Runs the target as it would run by itself: `__main__`, sys.argv, sys.path[0], file names in tracebacks."""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class BadTarget(Exception):
    """The target cannot be run at all; the text is one line for the user."""


@dataclass(frozen=True)
class Target:
    """What to run. `kind` is `script`, `module` or `callable`."""

    kind: str
    name: str
    args: tuple[str, ...] = ()

    def text(self) -> str:
        shown = f"-m {self.name}" if self.kind == "module" else self.name
        return " ".join((shown, *self.args))

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "args": list(self.args)}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Target:
        return cls(plain["kind"], plain["name"], tuple(plain.get("args", ())))


@dataclass
class Loaded:
    """A target that is ready to run."""

    run: Callable[[], Any]
    file: str = ""
    keep: list[Any] = field(default_factory=list)


def load(target: Target) -> Loaded:
    """Prepare sys.argv, sys.path and `__main__`. Raises BadTarget with the place of a syntax error."""
    if target.kind == "script":
        return load_script(target)
    if target.kind == "module":
        return load_module(target)
    return load_callable(target)


def load_script(target: Target) -> Loaded:
    path = target.name
    if os.path.isdir(path):
        path = os.path.join(path, "__main__.py")
    if not os.path.isfile(path):
        raise BadTarget(f"no such file: {target.name}")
    code = compile_source(path)
    sys.argv = [target.name, *target.args]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    return prepare_main(code, path, None, None)


def load_module(target: Target) -> Loaded:
    sys.path.insert(0, os.getcwd())
    sys.argv = ["-m", *target.args]
    name = target.name
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError) as error:
        raise BadTarget(f"no module named {target.name}: {error}") from error
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise BadTarget(f"no module named {target.name} that can be run with -m")
    sys.argv[0] = spec.origin
    return prepare_main(compile_source(spec.origin), spec.origin, name.rpartition(".")[0], spec)


def load_callable(target: Target) -> Loaded:
    module_name, _, attribute = target.name.partition(":")
    sys.path.insert(0, os.getcwd())
    sys.argv = [target.name, *target.args]
    module = import_for_target(module_name)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise BadTarget(f"{module_name} has no {attribute!r}") from None
    if not callable(found):
        raise BadTarget(f"{target.name} is a {type(found).__name__}, not a callable")
    return Loaded(found, getattr(module, "__file__", "") or "")


def import_for_target(name: str) -> types.ModuleType:
    """Import a module by name, or a file by path (`script.py:main`). Raises what the module raises."""
    if name.endswith(".py"):
        return import_file(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name or (error.name and name.startswith(error.name + ".")):
            raise BadTarget(f"no module named {name}") from None
        raise


def import_file(path: str) -> types.ModuleType:
    """A file as a module, also where a module of that name is in use already."""
    if not os.path.isfile(path):
        raise BadTarget(f"no such file: {path}")
    compile_source(path)
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules or not name.isidentifier():
        name = "_torchtriage_target"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadTarget(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def compile_source(path: str) -> types.CodeType:
    try:
        with open(path, "rb") as file:
            source = file.read()
        return compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        place = f"{path}:{error.lineno or 0}:{error.offset or 0}"
        raise BadTarget(f"syntax error in {place}: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise BadTarget(f"cannot read {path}: {error}") from None


def prepare_main(
    code: types.CodeType, path: str, package: str | None, spec: importlib.machinery.ModuleSpec | None
) -> Loaded:
    """Make a `__main__` as the interpreter would, and keep it for what runs at exit."""
    main = types.ModuleType("__main__")
    namespace = main.__dict__
    namespace.update(
        __file__=path,
        __builtins__=builtins,
        __package__=package,
        __spec__=spec,
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main

    def run() -> None:
        exec(code, namespace)

    return Loaded(run, path, [main])
