"""Sees every way of handing code to the compiler, and sends each call of a region to one dispatcher.

The objects that the program gets (`OptimizedModule`, wrapper functions) are torch's own, with torch's
attributes; only what happens on a call is ours.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from torchtriage.probe import compat


@dataclass(frozen=True)
class Settings:
    """The arguments that the program gave to torch.compile (or torch._dynamo.optimize)."""

    arguments: dict[str, Any] = field(default_factory=dict)
    site: tuple[str, int, int] = ("", 0, 0)
    """File, line and bytecode offset of the program's call of torch.compile."""

    @property
    def dynamic(self) -> bool | None:
        return self.arguments.get("dynamic")

    @property
    def backend(self) -> Any:
        return self.arguments.get("backend", "inductor")

    def text(self) -> str:
        shown = []
        for name, value in self.arguments.items():
            plain = value if isinstance(value, (str, bool, int, float, dict, type(None))) else None
            shown.append(f"{name}={value!r}" if plain is value else f"{name}=<{type(value).__name__}>")
        return ", ".join(shown)


class Region:
    """One function that was handed to the compiler, with the ways to call it."""

    def __init__(self, function: Callable[..., Any], settings: Settings, own: Callable[..., Any]):
        self.function = function
        """What to call in eager mode."""
        self.settings = settings
        self.own = own
        """What torch.compile returned."""
        self.compiled: dict[Any, Callable[..., Any]] = {}
        self.name, self.file, self.line = describe(function)
        if self.file.startswith(compat.torch_root()) and settings.site[0]:
            self.file, self.line, _ = (
                settings.site
            )  # a module of torch.nn: the user's line is where it is compiled

    @property
    def key(self) -> str:
        """The same for every object that one place of the program compiles."""
        return f"{self.name}@{self.file}:{self.line}/{self.settings.site[1]}.{self.settings.site[2]}"


class Dispatcher(Protocol):
    """Decides what a call of a region does."""

    def call(self, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


class Passive:
    """Calls run as the program compiled them."""

    def call(self, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return region.own(*args, **kwargs)


class Eager:
    """Every call runs as if nothing had been compiled, regions inside of regions too."""

    def call(self, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return region.function(*args, **kwargs)


_state = threading.local()
_dispatcher: Dispatcher = Passive()
_real: dict[str, Any] = {}
regions: list[Region] = []


def set_dispatcher(dispatcher: Dispatcher) -> None:
    global _dispatcher
    _dispatcher = dispatcher


def install() -> None:
    """Put our functions in the place of torch.compile and torch._dynamo.optimize. Once per process."""
    if _real:
        return
    import torch._dynamo
    import torch._dynamo.eval_frame as eval_frame

    context = compat.context_class()
    _real.update(compile=torch.compile, optimize=torch._dynamo.optimize, call=context.__call__)
    compat.skip_in_dynamo("torchtriage")
    torch.compile = _compile  # type: ignore[assignment]
    torch._dynamo.optimize = eval_frame.optimize = _optimize
    context.__call__ = _context_call  # type: ignore[method-assign]


def compile_again(region: Region, changes: dict[str, Any]) -> Callable[..., Any]:
    """The region compiled with some of its settings changed."""
    arguments = {k: v for k, v in region.settings.arguments.items() if k not in ("name",)}
    if "backend" in changes and changes["backend"] != "inductor":
        arguments.pop("mode", None)
        arguments.pop("options", None)
    if "mode" in changes:
        arguments.pop("options", None)
    arguments.update(changes)
    known = inspect.signature(_real["compile"]).parameters
    if "nopython" in arguments:
        arguments.setdefault("fullgraph", arguments.pop("nopython"))
    if isinstance(arguments.get("options"), dict):
        arguments["options"] = dict(arguments["options"])  # torch.compile pops from it
    plain = {k: v for k, v in arguments.items() if k in known}
    with _pending(None):
        return _real["compile"](region.function, **plain)  # type: ignore[no-any-return]


def compile_as_program(model: Any, arguments: dict[str, Any]) -> Any:
    """torch.compile as if the program had called it: the result is a region."""
    return _compile_decorator(arguments, model)


class _pending:
    """Settings that the next compiled context belongs to; None: it is not the program's."""

    def __init__(self, settings: Settings | None):
        self.settings = settings

    def __enter__(self) -> None:
        self.before = getattr(_state, "pending", ())
        _state.pending = (*self.before, self.settings)

    def __exit__(self, *exc: object) -> None:
        _state.pending = self.before


def _compile(model: Any = None, **arguments: Any) -> Any:
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if compat.is_fully_eager(caller) or torch.compiler.is_exporting():
        return _real["compile"](model, **arguments)
    if model is None:
        return functools.partial(_compile_decorator, arguments)
    with _pending(settings_of(arguments)):
        return _real["compile"](model, **arguments)


def settings_of(arguments: dict[str, Any]) -> Settings:
    """The arguments as they were (torch.compile pops from its options), and where the program gave them."""
    return Settings({k: dict(v) if isinstance(v, dict) else v for k, v in arguments.items()}, site())


def site() -> tuple[str, int, int]:
    frame: Any = sys._getframe(1)
    while frame is not None and compat.is_torch_module(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno, frame.f_lasti) if frame is not None else ("", 0, 0)


functools.update_wrapper(_compile, torch.compile, updated=())


def _compile_decorator(arguments: dict[str, Any], model: Any) -> Any:
    with _pending(settings_of(arguments)):
        return _real["compile"](model, **arguments)


def _optimize(*args: Any, **kwargs: Any) -> Any:
    context = _real["optimize"](*args, **kwargs)
    pending = getattr(_state, "pending", ())
    if pending:
        settings = pending[-1]
    elif compat.is_fully_eager(sys._getframe(1).f_globals.get("__name__", "")):
        settings = None
    else:
        settings = settings_of({**({"backend": args[0]} if args else {}), **kwargs})
    if settings is not None and isinstance(context, compat.context_class()):
        context._torchtriage_settings = settings  # type: ignore[attr-defined]
    return context


def _context_call(self: Any, function: Any) -> Any:
    result = _real["call"](self, function)
    settings = getattr(self, "_torchtriage_settings", None)
    if settings is None or isinstance(result, (torch.nn.Module, type)) or not callable(result):
        return result
    return _wrap(result, settings)


def _wrap(own: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """A function with everything that torch's wrapper has, whose calls go to the dispatcher."""
    function = own.__dict__.get("_torchdynamo_orig_callable", own)
    region = Region(function, settings, own)
    regions.append(region)

    @functools.wraps(own)
    def call_region(*args: Any, **kwargs: Any) -> Any:
        return _dispatcher.call(region, args, kwargs)

    call_region.__dict__.update(own.__dict__)
    call_region._torchdynamo_wrapper_id = id(call_region)  # type: ignore[attr-defined]
    return call_region


CALLS_OF_MODULES = ("__call__", "_call_impl", "_wrapped_call_impl", "forward", "_lazy_forward")


def describe(function: Any) -> tuple[str, str, int]:
    """Name, file and first line of what a region runs, in the user's words."""
    target = compat.wrapped_inline(function) or function
    owner = getattr(target, "__self__", target)
    called = getattr(target, "__name__", "")
    if isinstance(owner, torch.nn.Module) and (owner is target or called in CALLS_OF_MODULES):
        target, name = type(owner).forward, f"{type(owner).__qualname__}.forward"
    else:
        name = getattr(target, "__qualname__", type(target).__qualname__).replace("<locals>.", "")
        if not inspect.isroutine(target):
            target = type(target).__call__
    target = inspect.unwrap(getattr(target, "__func__", target))
    code = getattr(target, "__code__", None)
    return (name, code.co_filename, code.co_firstlineno) if code else (name, "", 0)
