"""What of a finished script the failure needs: each condition that maintainers ask about, taken away in a trial."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import dataclass
from typing import Any

from torchtriage.model.reduction import Condition
from torchtriage.reduce import tree as trees
from torchtriage.reduce import without
from torchtriage.reduce.tester import Tester


@dataclass(frozen=True)
class Row:
    """One condition: its name, and how the script is changed to be without it."""

    name: str
    change: without.Change


#: The reporting guide's checklist. One row a question; what the script does not have is not asked.
TABLE = (
    Row("backward", without.statements(r"\.backward\(")),
    Row("requires_grad", without.arguments("requires_grad")),
    Row("no_grad", without.contexts(r"no_grad|set_grad_enabled")),
    Row("inference mode", without.contexts("inference_mode")),
    Row("autocast", without.contexts("autocast")),
    Row("function or dispatch mode", without.contexts(r"Mode\(")),
    Row(
        "activation checkpointing",
        without.replaced(r"torch\.utils\.checkpoint\.checkpoint", "(lambda f, *a, **k: f(*a))"),
    ),
    Row(
        "float16, bfloat16 or float64",
        without.replaced(r"torch\.(float16|bfloat16|float64|half|double)", "torch.float32"),
    ),
    Row("a mode or options", without.arguments("mode", "options")),
    Row("fullgraph", without.arguments("fullgraph")),
    Row("a config value", without.statements(r"config\.\w+(\.\w+)* =")),
    Row("mutation", without.mutation),
    Row("hooks", without.statements(r"register_\w*hook")),
    Row("train or eval mode", without.statements(r"\.(eval|train)\(\)$")),
    Row("dynamic shapes", without.static),
    Row("a stride", without.strides),
    Row("an alias", without.aliases),
    Row("a tensor subclass", without.subclasses),
    Row("a custom operator", without.operators),
    Row("compiled autograd", without.contexts("compiled_autograd")),
    Row("a second call", without.further_calls),
)
#: the same for what lies outside of the script
OUTSIDE: tuple[tuple[str, str, tuple[str, Any]], ...] = (
    (
        "vector instructions",
        "torch._inductor.config.cpp.simdlen = 1",
        ("torch._inductor.config.cpp.simdlen", 1),
    ),
    (
        "what the partitioner saves for backward",
        "torch._functorch.config.activation_memory_budget = 0.0",
        ("torch._functorch.config.activation_memory_budget", 0.0),
    ),
)


def find(text: str, tester: Tester) -> list[Condition]:
    """Each condition that the script has, with the answer of a trial."""
    found: list[Condition] = []
    for row in TABLE:
        tree = ast.parse(text)
        before = trees.loaded(tree)
        if not row.change(tree):
            continue
        try:
            trees.tidy(tree, before)
            left = trees.text_of(tree)
        except ValueError:
            continue
        if left != text:
            found.append(Condition(row.name, not tester(left), "the script without it"))
    found += outside(text, tester)
    return found


def outside(text: str, tester: Tester) -> list[Condition]:
    given = tester.conditions
    found: list[Condition] = []
    if given.backend in ("", "inductor"):
        name, change, switch = OUTSIDE[0]
        found.append(Condition(name, not with_(tester, switches=(*given.switches, switch))(text), change))
    if ".backward(" in text:
        name, change, switch = OUTSIDE[1]
        found.append(Condition(name, not with_(tester, switches=(*given.switches, switch))(text), change))
    if given.threads > 1:
        found.append(
            Condition("several threads", not with_(tester, threads=1)(text), "torch.set_num_threads(1)")
        )
    if given.caches:
        found.append(Condition("the compiler's caches", not with_(tester, caches=False)(text), "caches off"))
    return found


def with_(tester: Tester, **changes: Any) -> Tester:
    return Tester(
        tester.lab, tester.failure, dataclasses.replace(tester.conditions, **changes), tester.repeats
    )
