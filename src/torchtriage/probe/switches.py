"""torch's config values: set, read and reset by their dotted names. Tried on torch 2.13.0."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import torch


def set_switch(name: str, value: Any) -> None:
    """Set `torch._inductor.config.cpp.simdlen` and the like. Raises AttributeError for an unknown name."""
    module_name, attribute = split_switch(name)
    target: Any = importlib.import_module(module_name)
    *parents, last = attribute.split(".")
    for parent in parents:
        target = getattr(target, parent)
    getattr(target, last)  # an unknown name is an error, never a new attribute
    setattr(target, last, value)


def split_switch(name: str) -> tuple[str, str]:
    for module_name in (
        "torch._inductor.config",
        "torch._dynamo.config",
        "torch._functorch.config",
        "torch.compiler.config",
        "torch.fx.experimental._config",
    ):
        if name.startswith(module_name + "."):
            return module_name, name[len(module_name) + 1 :]
    raise AttributeError(f"no torch config of that name: {name}")


def value_of(name: str) -> Any:
    """What a switch is set to. Raises AttributeError for an unknown name."""
    module_name, attribute = split_switch(name)
    target: Any = importlib.import_module(module_name)
    for part in attribute.split("."):
        target = getattr(target, part)
    return target


def has_switch(name: str) -> bool:
    try:
        value_of(name)
    except (AttributeError, ImportError):
        return False
    return True


#: Switches that the environment of a stage turns off: they are not the program's.
OURS = frozenset(
    {
        "torch._inductor.config.fx_graph_cache", "torch._inductor.config.fx_graph_remote_cache",
        "torch._functorch.config.enable_autograd_cache", "torch._functorch.config.enable_remote_autograd_cache",
        "torch._dynamo.config.automatic_dynamic_local_pgo", "torch._dynamo.config.automatic_dynamic_remote_pgo",
        "torch._inductor.config.compile_threads",
    }
)  # fmt: skip


def changed_configs() -> dict[str, str]:
    """Every torch config value that is not its default."""
    changed: dict[str, str] = {}
    for module_name in ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config"):
        try:
            module: Any = importlib.import_module(module_name)
            for line in module.codegen_config().splitlines():
                name, _, value = line.partition(" = ")
                name = name.strip()
                if name not in OURS and not at_default(name):
                    changed[name] = value.strip()
        except Exception:  # a config that cannot print itself must not cost the report
            continue
    return changed


def at_default(name: str) -> bool:
    """Whether a switch that was set once has its default all the same."""
    try:
        module_name, attribute = split_switch(name)
        return bool(value_of(name) == sys.modules[module_name]._config[attribute].default)
    except Exception:
        return False


def defaults_of_changed(changed: dict[str, str]) -> dict[str, str]:
    """The default, as Python text, of each config value in `changed`."""
    found: dict[str, str] = {}
    for name in changed:
        try:
            module_name, attribute = split_switch(name)
            entry = sys.modules[module_name]._config[attribute]
            found[name] = repr(entry.default)
        except (AttributeError, KeyError):
            continue
    return found


def send_to_eager(operator: str) -> None:
    """Make Inductor call the eager kernel of one ATen overload (`aten.ldexp.Tensor`).

    An operator that is not torch's own is kept out of the graph: the compiler then never asks what it promises.
    """
    import torch._inductor.decomposition as decomposition
    import torch._inductor.lowering as lowering

    overload: Any = torch.ops
    for part in operator.split("."):
        overload = getattr(overload, part)
    if not operator.startswith(("aten.", "prims.")):
        torch._dynamo.disallow_in_graph([overload, overload.overloadpacket])  # type: ignore[no-untyped-call]
        return
    decomposition.decompositions.pop(overload, None)
    lowering.make_fallback(overload, warn=False, override_decomp=True)
    fast = getattr(decomposition, "fast_random_decomps", None)
    if fast is not None and hasattr(fast, "cache_clear"):
        fast.cache_clear()


def turn_caches_on(folder: str) -> None:
    """The compiler's caches as a user has them, empty and in a folder of our own; compiled kernels stay shared."""
    shared = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(shared) if os.path.isdir(shared) else ():
        if len(name) == 2:  # a folder of kernels, named by the first letters of their hashes
            os.symlink(os.path.join(shared, name), os.path.join(folder, name))
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    for name in (
        "torch._inductor.config.fx_graph_cache",
        "torch._functorch.config.enable_autograd_cache",
        "torch._dynamo.config.automatic_dynamic_local_pgo",
    ):
        if has_switch(name):
            unforce(name)
            set_switch(name, True)


def unforce(name: str) -> None:
    """Let a switch be set that the environment forces: ours turns the caches off that way."""
    module_name, attribute = split_switch(name)
    entry = importlib.import_module(module_name)._config.get(attribute)
    if entry is not None and hasattr(entry, "env_value_force"):
        entry.env_value_force = type(entry).__dataclass_fields__["env_value_force"].default


def caches_off() -> None:
    """Turn the caches off in a process that has imported torch already."""
    for name in sorted(OURS):
        if has_switch(name) and not name.endswith("compile_threads"):
            set_switch(name, False)
    if has_switch("torch._inductor.config.compile_threads"):
        set_switch("torch._inductor.config.compile_threads", 1)
