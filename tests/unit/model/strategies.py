"""Hypothesis strategies for variants and outcomes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from torchtriage.model.outcome import (
    ASPECTS,
    OUTCOMES,
    Difference,
    Differs,
    ExceptionInfo,
    Exited,
    GraphBreak,
    Inconclusive,
    Killed,
    Measures,
    MissingException,
    Outcome,
    OutOfMemory,
    Raised,
    Recompile,
    Same,
    Step,
    TimedOut,
)
from torchtriage.model.variant import DEBUG_BACKENDS, OWN, Limit, Variant

text = st.text(max_size=8)
count = st.integers(0, 1 << 40)
seconds = st.floats(0, allow_nan=False)
call = st.none() | st.integers(0, 99)
name = st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True).map(lambda n: f"{n}_")
dotted = st.lists(name, min_size=1, max_size=3).map(".".join)


def many(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=2).map(tuple)


switch = st.tuples(
    dotted.map(lambda n: f"torch._inductor.config.{n}"), st.booleans() | st.text(max_size=5) | st.none()
)
function = st.builds(
    lambda module, inner, kind: f"{module}:{inner}{kind}",
    st.just("__main__") | dotted,
    dotted,
    st.sampled_from(("", "|staticmethod", "|classmethod")),
)
variants = st.builds(
    Variant,
    backend=st.sampled_from((OWN, *DEBUG_BACKENDS)),
    dynamic=st.sampled_from((OWN, None, True, False)),
    mode=st.sampled_from((OWN, "default", "max-autotune")),
    fullgraph=st.sampled_from((OWN, True, False)),
    switches=many(switch),
    disabled=many(function),
    eager_operators=many(dotted.map(lambda n: f"aten.{n}")),
    limit=st.none() | st.builds(Limit, st.sampled_from(DEBUG_BACKENDS), name, count),
    caches=st.booleans(),
    threads=st.integers(1, 8),
)

differences = many(
    st.builds(
        Difference, call=count, path=text, aspect=st.sampled_from(ASPECTS), detail=text, magnitude=seconds,
        noise=st.booleans(), why_noise=text, eager=text, compiled=text, float64=text,
    )
)  # fmt: skip
exceptions = st.builds(
    ExceptionInfo, type=text, message=text, bases=many(text), chain=many(text), cause_message=text,
    user_file=text, user_line=count, user_code=text, torch_frames=many(text), traceback=text, category=text,
)  # fmt: skip
measures = st.builds(
    Measures, graphs=count, breaks=count, recompiles=count, compile_seconds=seconds,
    step_seconds=st.none() | seconds, peak_bytes=count,
    graph_breaks=many(st.builds(GraphBreak, text, text, count, text, many(text), text, text)),
    recompile_reasons=many(st.builds(Recompile, text, text, text, count)),
    steps=many(st.builds(Step, count, text, text, count, text)),
    eager_repeats=st.sampled_from((None, True, False)), rng_used=st.booleans(),
)  # fmt: skip
MADE: dict[type[Outcome], st.SearchStrategy[Outcome]] = {
    Same: st.builds(Same, measures, text, differences, st.none() | exceptions),
    Differs: st.builds(Differs, measures, text, differences),
    Raised: st.builds(
        Raised, measures, text, exceptions, call, st.sampled_from(("forward", "backward", "program"))
    ),
    MissingException: st.builds(MissingException, measures, text, exceptions, count),
    Killed: st.builds(Killed, measures, text, text, call),
    Exited: st.builds(Exited, measures, text, count, call),
    TimedOut: st.builds(
        TimedOut, measures, text, seconds, st.sampled_from(("compile", "run", "program")), call
    ),
    OutOfMemory: st.builds(OutOfMemory, measures, text, count, call),
    Inconclusive: st.builds(Inconclusive, measures, text, text),
}
outcomes = st.one_of(*(MADE[cls] for cls in OUTCOMES.values()))
