"""The one file that touches torch internals. Each use says for which versions it was tried.

Tried on torch 2.13.0. What other versions lack is looked up with a default, so that a missing hook costs a
finding and never the run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

OLDEST = (2, 8)


class UnsupportedTorch(RuntimeError):
    """The installed torch is older than what torchtriage was written for."""


def check_version() -> None:
    """Raises UnsupportedTorch for a torch before 2.8."""
    numbers = torch.__version__.split("+")[0].split(".")
    found = tuple(int("".join(c for c in n if c.isdigit()) or 0) for n in numbers[:2])
    if found < OLDEST:
        raise UnsupportedTorch(f"torch {torch.__version__} is too old: torchtriage needs 2.8 or newer")


# --- tensors ------------------------------------------------------------------------------------


def grad_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """`.grad` without the warning for non-leaf tensors."""
    if not (tensor.is_leaf or getattr(tensor, "retains_grad", False)):
        return None
    with torch._C.DisableTorchFunction():
        return tensor.grad


def is_array(value: Any) -> bool:
    """Whether it is a numpy array, without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_torch_module(name: str | None) -> bool:
    return name is not None and (name == "torch" or name.startswith(("torch.", "torchtriage.")))


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """No user's function mode, dispatch mode, autocast or inference mode sees what is done inside."""
    from torch.utils._python_dispatch import _disable_current_modes

    with (
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
    ):
        yield


@contextlib.contextmanager
def outside_autocast() -> Iterator[None]:
    """Autocast is off, for the CPU and for a GPU."""
    with torch.autocast("cpu", enabled=False), contextlib.ExitStack() as stack:
        if torch.cuda.is_initialized():
            stack.enter_context(torch.autocast("cuda", enabled=False))
        yield


def synchronize() -> None:
    """Wait for the GPU, where the program uses one: what a call queued belongs to the call.

    Never ask whether there is a GPU: in a process that forks later, the question itself forbids CUDA to its children.
    """
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def storage_key(tensor: torch.Tensor) -> int | None:
    """What two tensors share when they alias; None where there is no storage to share."""
    try:
        storage = tensor.untyped_storage()
        return int(storage._cdata) if storage.nbytes() else None
    except (NotImplementedError, RuntimeError, AttributeError):
        return None


# --- what the compiler is given -------------------------------------------------------------------


def original_function(function: Any) -> Any:
    """The user's function below the wrappers of torch.compile and torch.compiler.disable."""
    seen = 0
    while seen < 20:
        inner = getattr(function, "__dict__", {}).get("_torchdynamo_orig_callable")
        if inner is None:
            inner = wrapped_inline(function)
        if inner is None or inner is function:
            return function
        function, seen = inner, seen + 1
    return function


def wrapped_inline(function: Any) -> Any | None:
    """The callable inside `torch._dynamo.external_utils.wrap_inline`, or None."""
    code = getattr(function, "__code__", None)
    if code is None or not code.co_filename.endswith("external_utils.py") or code.co_freevars != ("fn",):
        return None
    return function.__closure__[0].cell_contents


def skip_in_dynamo(package: str) -> None:
    """Dynamo must never trace our own frames."""
    from torch._dynamo import trace_rules

    trace_rules.add(package)


def context_class() -> type:
    """The class whose instances turn a function into a compiled one."""
    from torch._dynamo.eval_frame import OptimizeContext

    return OptimizeContext


def reset() -> None:
    torch._dynamo.reset()


#: What a first compilation imports on the way, found by looking at sys.modules before and after one.
NEEDED = (
    "torch._dynamo", "torch._dynamo.backends.debugging", "torch._dynamo.backends.inductor",
    "torch._dynamo.backends.cudagraphs", "torch._dynamo.backends.distributed", "torch._dynamo.repro.after_dynamo",
    "torch._dynamo.dce_extra_outputs", "torch._functorch.aot_autograd", "torch._functorch._aot_autograd.subclass_codegen",
    "torch._higher_order_ops.passes.inline_invoke_subgraph", "torch._inductor.bounds", "torch._inductor.choices",
    "torch._inductor.codecache", "torch._inductor.codegen.cpp", "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.cuda_combined_scheduling", "torch._inductor.codegen.halide",
    "torch._inductor.codegen.memory_planning", "torch._inductor.codegen.mps", "torch._inductor.codegen.pallas",
    "torch._inductor.codegen.rocm.rocm_cpp_scheduling", "torch._inductor.codegen.wrapper",
    "torch._inductor.codegen.wrapper_fxir", "torch._inductor.codegen.xpu.xpu_combined_scheduling",
    "torch._inductor.compile_fx", "torch._inductor.compiler_bisector", "torch._inductor.extern_node_serializer",
    "torch._inductor.fx_passes.apply_gumbel_max_trick", "torch._inductor.fx_passes.efficient_conv_bn_eval",
    "torch._inductor.fx_passes.freezing_patterns", "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.joint_graph", "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm", "torch._inductor.fx_passes.post_grad", "torch._inductor.fx_passes.quantization",
    "torch._inductor.hooks", "torch._inductor.kernel_template_choice", "torch._inductor.runtime.caching",
    "torch._inductor.scheduler", "torch._subclasses.schema_check_mode", "torch.export._trace", "torch.export._unlift",
    "torch.fx.experimental.validator", "torch.utils.cpp_extension",
)  # fmt: skip


def warm_up(patterns: bool = True) -> None:
    """Do once what every compilation does first, so that trials forked from here need not.

    Nothing is compiled or run: imports, the tables of patterns, and the question which vector instructions there are.
    The tables are built for the CPU: a program that uses CUDA has to build its own.
    """
    for name in NEEDED:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    on_gpu = torch.cuda.is_initialized()
    if patterns and not on_gpu and torch.__version__.startswith("2.13."):
        warm_patterns()
    with contextlib.suppress(Exception):
        importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()
    warm_header()
    forget_tables()


def warm_header() -> None:
    """Have the header of C++ kernels precompiled, and its place known: each process asks the compiler anew otherwise.

    That takes 0.2 s. No kernel is built, and nothing is loaded.
    """
    store = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if store and torch.__version__.startswith("2.13."):
        keep_headers_in(store)
        with contextlib.suppress(Exception):
            from torch._inductor.codecache import CppPythonBindingsCodeCache

            CppPythonBindingsCodeCache.load_pybinding_async(
                [], 'extern "C" void kernel() {}', submit_fn=lambda work: None
            )


def keep_headers_in(folder: str) -> None:
    """Precompiled headers go to the user's own cache folder, whatever TORCHINDUCTOR_CACHE_DIR says: not from here.

    `torch._inductor.codecache._HEADER_DIR`, as of 2.13.
    """
    module = sys.modules.get("torch._inductor.codecache")
    if module is not None and hasattr(module, "_HEADER_DIR"):
        module._HEADER_DIR = os.path.join(folder, "precompiled_headers")  # type: ignore[attr-defined]
        module._HEADER_LOCK_DIR = os.path.join(folder, "precompiled_headers", "locks")  # type: ignore[attr-defined]


def forget_tables() -> None:
    """Drop copies of the table of decompositions: what a program registers later would not be in them."""
    module = sys.modules.get("torch._inductor.decomposition")
    for value in list(vars(module).values()) if module is not None else ():
        if callable(getattr(value, "cache_clear", None)):
            value.cache_clear()


def warm_patterns() -> None:
    """Build the pattern tables with the very arguments that a compilation uses: built twice, they raise."""
    passes = "torch._inductor.fx_passes"
    with contextlib.suppress(Exception):
        importlib.import_module(f"{passes}.pre_grad").lazy_init()
        importlib.import_module(f"{passes}.joint_graph").lazy_init(torch.device("cpu"))
        importlib.import_module(f"{passes}.post_grad").lazy_init()


# --- reading back what was compiled ----------------------------------------------------------------


def uncompiled(target: Any) -> tuple[Any, dict[str, Any]]:
    """What was compiled, and with which arguments, for something that torch.compile returned; else itself and {}."""
    held = getattr(target, "__dict__", {})
    context = held.get("dynamo_ctx") or context_of(target)
    plain = getattr(target, "_orig_mod", None)
    if (
        held.get("_compiled_call_impl") is not None
    ):  # module.compile(): the module calls the compiled function
        context, plain = context_of(held["_compiled_call_impl"]), target
        target._compiled_call_impl = None
    if plain is None:
        plain = original_function(target)
    if context is None:
        return plain, {}
    arguments = {
        "dynamic": getattr(context, "_dynamic", None),
        "fullgraph": bool(getattr(context, "fullgraph", False)),
        **given_to(context),
    }
    return plain, {name: value for name, value in arguments.items() if value is not None}


def context_of(function: Any) -> Any | None:
    """The context in the closure of a function that torch.compile returned."""
    code = getattr(function, "__code__", None)
    if code is None or "self" not in code.co_freevars:
        return None
    found = function.__closure__[code.co_freevars.index("self")].cell_contents
    return found if isinstance(found, context_class()) else None


def given_to(context: Any) -> dict[str, Any]:
    """Backend (its name, or the user's own function), mode and options behind a context; Inductor's mode as options."""
    with contextlib.suppress(Exception):
        from torch._dynamo.backends.registry import lookup_backend
        from torch._dynamo.eval_frame import innermost_backend

        found = innermost_backend(context.callback)
        name, function = getattr(found, "compiler_name", None), getattr(found, "compiler_fn", None)
        if name == "inductor" and function is None:
            return {"backend": name, "options": dict(found.config) or None}
        with contextlib.suppress(
            Exception
        ):  # for a function without a name of its own torch writes down __name__
            if lookup_backend(name) is function:
                return {"backend": name, **found.kwargs}
        return {"backend": function or found, **getattr(found, "kwargs", {})}
    return {}


# --- counters and callbacks -----------------------------------------------------------------------


def counters() -> dict[str, dict[str, int]]:
    from torch._dynamo.utils import counters as table

    return {str(group): {str(k): int(v) for k, v in values.items()} for group, values in table.items()}


def compile_seconds() -> float:
    """Seconds that Dynamo says it compiled, all frames together."""
    try:
        from torch._dynamo.utils import compilation_time_metrics as table

        return float(sum(table.get("_compile.compile_inner", ())))
    except ImportError:
        return 0.0


def build_no_kernels(past: type[BaseException]) -> None:
    """A kernel for the CPU is not built: what stands for it raises `past` when it is called."""

    def build(*args: Any, **kwargs: Any) -> Any:
        def kernel(*args: Any, **kwargs: Any) -> None:
            raise past

        return kernel

    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor.async_compile import AsyncCompile

        AsyncCompile.cpp_pybinding = AsyncCompile.cpp = build  # type: ignore[method-assign]


def generate_no_code(past: type[BaseException]) -> None:
    """Inductor raises `past` once it has lowered a graph, before it generates code. Tried on 2.13."""

    def stop(*args: Any, **kwargs: Any) -> None:
        raise past

    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor.graph import GraphLowering

        for name in ("codegen", "codegen_with_cpp_wrapper", "compile_to_module"):
            setattr(GraphLowering, name, stop)


def rehearse() -> None:
    """Compile something small at every layer, so that a fork of this process need not do what only the first time needs.

    No kernel is built and nothing that runs in parallel is run. What was counted is forgotten.
    """

    class Past(BaseException):
        pass

    def small(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + 1

    names = ("cpp_pybinding", "cpp")
    with contextlib.suppress(Exception):
        from torch._inductor.async_compile import AsyncCompile

        real = [getattr(AsyncCompile, name) for name in names]
        build_no_kernels(Past)
        try:
            for backend in ("eager", "aot_eager", "inductor"):
                for needs_grad in (False, True):
                    with contextlib.suppress(Past, Exception):
                        torch.compile(small, backend=backend)(
                            torch.ones(3, requires_grad=needs_grad)
                        ).sum().backward()
                    reset()
        finally:
            for name, value in zip(names, real, strict=True):
                setattr(AsyncCompile, name, value)
    forget_tables()
    clear_counters()


def frame_compiles() -> int:
    """Compilations of the frame that was compiled most often."""
    from torch._dynamo import convert_frame

    table = getattr(convert_frame, "FRAME_COMPILE_COUNTER", {})
    return max((int(n) for n in table.values()), default=0)


def clear_counters() -> None:
    from torch._dynamo import convert_frame
    from torch._dynamo.utils import counters as table

    table.clear()
    counter = getattr(convert_frame, "FRAME_COMPILE_COUNTER", None)
    if counter is not None:
        counter.clear()


def watch_compiles(start: Callable[[], None], end: Callable[[], None]) -> None:
    with contextlib.suppress(ImportError, AttributeError):
        from torch._dynamo.callback import on_compile_end, on_compile_start

        on_compile_start(lambda _args: start())
        on_compile_end(lambda _args: end())


def trace_logger() -> Any:
    import logging

    return logging.getLogger("torch.__trace")


def trace_file_handler(folder: str) -> Any | None:
    """The handler that TORCH_TRACE would have installed, or None where this torch has another."""
    try:
        from torch._logging._internal import LazyTraceHandler, TorchLogsFormatter

        handler = LazyTraceHandler(folder)
        handler.setFormatter(TorchLogsFormatter(trace=True))
        return handler
    except (ImportError, TypeError):
        return None


def is_fully_eager(module: str) -> bool:
    """Whether a call of torch.compile from this module is torch's own business."""
    return is_torch_module(module) and module not in ("torch.nn.modules.module", "torch.compiler")


@functools.lru_cache(maxsize=1)
def torch_root() -> str:
    return str(torch.__path__[0])
