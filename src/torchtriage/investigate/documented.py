"""Differences that are documented: what the compiler does not support and says so, and switches that restore eager.

Tables that someone can add a row to. A row of SWITCHES is believed only after its trial came out the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.model.outcome import ExceptionInfo, GraphBreak
from torchtriage.model.variant import Switch

DOCS = "https://docs.pytorch.org/docs/stable"


@dataclass(frozen=True)
class Refusal:
    """A message by which the compiler says that it does not support something."""

    pattern: str
    explanation: str
    source: str


@dataclass(frozen=True)
class Documented:
    """A documented difference, with the switch that takes it away."""

    name: str
    switches: tuple[Switch, ...]
    explanation: str
    source: str
    needs_rng: bool = False
    needs_earlier_call: bool = False
    needs_gradient: bool = False
    needs: str = ""


REFUSALS = (
    Refusal(
        r"does not currently support double backward",
        "double backward through a compiled region is not supported: AOTAutograd compiles one backward",
        f"{DOCS}/user_guide/torch_compiler/torch.compiler_faq.html",
    ),
    Refusal(
        r"compiled with non-empty donated buffers which requires",
        "a compiled backward may free its saved tensors: a second backward needs donated_buffer = False",
        "https://github.com/pytorch/pytorch/pull/130580",
    ),
    Refusal(
        r"accessing tensor output of CUDAGraphs that has been overwritten",
        "CUDA graphs reuse the memory of outputs: clone them, or call torch.compiler.cudagraph_mark_step_begin()",
        f"{DOCS}/user_guide/torch_compiler/torch.compiler_cudagraph_trees.html",
    ),
    Refusal(
        r"FX to symbolically trace a dynamo-optimized function",
        "torch.fx.symbolic_trace of a compiled function is not supported",
        f"{DOCS}/user_guide/torch_compiler/torch.compiler_faq.html",
    ),
    Refusal(
        r"torch\.jit\.trace a dynamo-optimized function|does not support compiling torch\.jit\.script",
        "TorchScript and torch.compile do not nest",
        f"{DOCS}/user_guide/torch_compiler/torch.compiler_faq.html",
    ),
    Refusal(
        r"recompile_limit reached|fail_on_recompile_limit_hit|recompilation limit",
        "a frame that is compiled too often is an error under fullgraph=True",
        f"{DOCS}/user_guide/torch_compiler/compile/programming_model.recompilation.html",
    ),
    Refusal(
        r"torch\.compile[^.]{0,80}(does not|doesn't|is not|not yet|not currently)[^.]{0,30}support",
        "torch.compile says that it does not support this",
        f"{DOCS}/user_guide/torch_compiler/torch.compiler_faq.html",
    ),
)

FALLBACK_RANDOM: Switch = ("torch._inductor.config.fallback_random", True)
SWITCHES = (
    Documented(
        "random-numbers",
        (FALLBACK_RANDOM,),
        "compiled code draws its random numbers in another way than eager, by design; with fallback_random it is the same",
        f"{DOCS}/user_guide/torch_compiler/torch.compiler_faq.html",
        needs_rng=True,
        needs="rng",
    ),
    Documented(
        "module-hooks",
        (("torch._dynamo.config.skip_nnmodule_hook_guards", False),),
        "hooks that are registered on a module after it was compiled are not guarded on by default",
        f"{DOCS}/user_guide/torch_compiler/torch.compiler_nn_module.html",
        needs_earlier_call=True,
        needs="hook",
    ),
    Documented(
        "autocast-in-backward",
        (("torch._functorch.config.backward_pass_autocast", "off"),),
        "a compiled backward runs under the autocast of its forward; with backward_pass_autocast = 'off' it runs as in "
        "eager mode outside of autocast",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_functorch/config.py",
        needs_gradient=True,
        needs="autocast",
    ),
)

#: Classes by which Dynamo says that the program asked for something that cannot be.
USER_ERRORS = ("UserError", "ConstraintViolationError")
#: Hints that ask the user to change the program.
CHANGE_THE_PROGRAM = re.compile(
    r"^\s*(Avoid|Remove|Move|Change|Don't|Do not|Ensure|Add the logging method)\b"
)


def refusal(exception: ExceptionInfo) -> Refusal | None:
    """The row that an exception matches, if any."""
    text = f"{exception.message}\n{exception.cause_message}"
    for row in REFUSALS:
        if re.search(row.pattern, text, re.S):
            return row
    return None


def is_user_error(exception: ExceptionInfo) -> bool:
    return any(name in exception.bases for name in USER_ERRORS)


def asks_for_change(hints: Sequence[str]) -> bool:
    """Whether torch's own hints say that the program should be changed."""
    return any(CHANGE_THE_PROGRAM.match(hint) for hint in hints)


def hints_of(exception: ExceptionInfo) -> tuple[str, ...]:
    return tuple(re.findall(r"^\s*Hint: (.+)$", exception.message, re.M))


def is_likely_bug(exception: ExceptionInfo) -> bool:
    return exception.category == "dynamo-bug"


def more_than_eager(exception: ExceptionInfo) -> bool:
    """Eager refuses an operator or dtype that it has no kernel for; compiled accepting more is documented as such."""
    return "NotImplementedError" in exception.bases or "not implemented for" in exception.message


def candidates(rng_used: bool, earlier: bool, gradient: bool) -> list[Documented]:
    """The rows that can apply to a wrong value."""
    return [
        row
        for row in SWITCHES
        if (not row.needs_rng or rng_used)
        and (not row.needs_earlier_call or earlier)
        and (not row.needs_gradient or gradient)
    ]


def break_kind(broken: Sequence[GraphBreak]) -> str:
    """`user-error` where torch asks for a change of the program, else `by-design`."""
    return "user-error" if any(asks_for_change(b.hints) for b in broken) else "by-design"
