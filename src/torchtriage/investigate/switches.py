"""The compiler switches whose value can matter to a failure, each with a line of explanation and the layer it acts on.

Only changes that leave the program's meaning alone: they trade speed or generality for another way through the compiler.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torchtriage.investigate.facts import Asks, failing, healthy
from torchtriage.investigate.search import Answers, minimal_set
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Outcome
from torchtriage.model.variant import Switch, Variant

DYNAMO, AOT, INDUCTOR = "torch._dynamo.config", "torch._functorch.config", "torch._inductor.config"


@dataclass(frozen=True)
class Row:
    """One switch, the value to try, and what it does."""

    switch: Switch
    explanation: str
    layer: str
    default: bool = False
    """The value is torch's default: the row matters only where the program changed it."""


TABLE = (
    Row(
        (f"{INDUCTOR}.emulate_precision_casts", True),
        "rounds intermediates to the dtype that eager has",
        "inductor",
    ),
    Row((f"{INDUCTOR}.fallback_random", True), "draws random numbers as eager does", "inductor"),
    Row((f"{INDUCTOR}.pattern_matcher", False), "no replacement of operator patterns", "inductor"),
    Row(
        (f"{INDUCTOR}.joint_graph_constant_folding", False),
        "no constant folding in the joint graph",
        "inductor",
    ),
    Row(
        (f"{INDUCTOR}.constant_and_index_propagation", False),
        "no propagation of constants and indices",
        "inductor",
    ),
    Row((f"{INDUCTOR}.layout_optimization", False), "keeps the layouts that the program has", "inductor"),
    Row((f"{INDUCTOR}.reorder_for_locality", False), "keeps the order of the operators", "inductor"),
    Row((f"{INDUCTOR}.split_cat_fx_passes", False), "no rewriting of split and cat", "inductor"),
    Row(
        (f"{INDUCTOR}.efficient_conv_bn_eval_fx_passes", False), "no folding of batch norm", "inductor", True
    ),
    Row((f"{INDUCTOR}.allow_buffer_reuse", False), "every intermediate has memory of its own", "inductor"),
    Row((f"{INDUCTOR}.inplace_buffers", False), "no operator writes over its input", "inductor"),
    Row((f"{INDUCTOR}.epilogue_fusion", False), "no fusion of what follows a template", "inductor"),
    Row((f"{INDUCTOR}.prologue_fusion", False), "no fusion of what precedes a template", "inductor"),
    Row((f"{INDUCTOR}.max_fusion_size", 1), "one operator a kernel", "inductor"),
    Row((f"{INDUCTOR}.realize_opcount_threshold", 1), "writes each intermediate to memory", "inductor"),
    Row((f"{INDUCTOR}.split_reductions", False), "no reduction is split", "inductor"),
    Row((f"{INDUCTOR}.comprehensive_padding", False), "no padding of strides", "inductor"),
    Row((f"{INDUCTOR}.cpp.simdlen", 1), "no vector instructions in CPU kernels", "inductor"),
    Row(
        (f"{INDUCTOR}.cpp.enable_floating_point_contract_flag", "off"),
        "no fused multiply-add",
        "inductor",
        True,
    ),
    Row(
        (f"{INDUCTOR}.cpp.enable_unsafe_math_opt_flag", False),
        "no unsafe mathematics in the C++ compiler",
        "inductor",
        True,
    ),
    Row((f"{INDUCTOR}.cpp.fallback_scatter_reduce_sum", True), "eager's scatter", "inductor", True),
    Row((f"{INDUCTOR}.cpp.dynamic_threads", True), "asks for the number of threads at each call", "inductor"),
    Row((f"{INDUCTOR}.cpp.enable_loop_tail_vec", False), "the tail of a loop is not vectorised", "inductor"),
    Row((f"{INDUCTOR}.cpp.vec_isa_ok", False), "no vector instructions at all", "inductor"),
    Row((f"{INDUCTOR}.freezing", False), "weights are not folded into the code", "inductor", True),
    Row((f"{AOT}.cse", False), "no elimination of common subexpressions", "aot"),
    Row((f"{AOT}.treat_parameters_as_free_to_save", False), "parameters count as memory to save", "aot"),
    Row((f"{AOT}.ban_recompute_not_in_allowlist", True), "recomputes only cheap operators", "aot", True),
    Row(
        (f"{AOT}.activation_memory_budget", 1.0),
        "keeps every activation: nothing is recomputed in the backward",
        "aot",
        True,
    ),
    Row((f"{AOT}.recompute_views", False), "views are saved, not recomputed", "aot", True),
    Row((f"{AOT}.view_replay_for_aliased_outputs", False), "aliased outputs are made by as_strided", "aot"),
    Row((f"{AOT}.donated_buffer", False), "the backward does not free what it was given", "aot"),
    Row(
        (f"{AOT}.disable_guess_zero_tangent_for_mutated_input_subclass", True),
        "gradients of mutated inputs",
        "aot",
    ),
    Row((f"{DYNAMO}.skip_nnmodule_hook_guards", False), "guards on the hooks of modules", "dynamo"),
    Row(
        (f"{DYNAMO}.guard_nn_modules_using_dict_tags", False),
        "guards on every attribute of modules",
        "dynamo",
    ),
    Row((f"{DYNAMO}.automatic_dynamic_shapes", False), "sizes that change are compiled anew", "dynamo"),
    Row((f"{DYNAMO}.assume_static_by_default", True), "sizes are static until they change", "dynamo", True),
    Row((f"{DYNAMO}.specialize_float", True), "Python floats are constants", "dynamo"),
    Row((f"{DYNAMO}.specialize_int", True), "Python integers are constants", "dynamo"),
    Row((f"{DYNAMO}.capture_scalar_outputs", True), "keeps .item() in the graph", "dynamo"),
    Row((f"{DYNAMO}.capture_scalar_outputs", False), "breaks the graph at .item()", "dynamo", True),
    Row(
        (f"{DYNAMO}.capture_dynamic_output_shape_ops", True),
        "keeps operators such as nonzero in the graph",
        "dynamo",
    ),
    Row((f"{DYNAMO}.trace_numpy", False), "NumPy runs as NumPy, outside of the graph", "dynamo"),
    Row((f"{DYNAMO}.allow_unspec_int_on_nn_module", True), "integers on modules may change", "dynamo"),
    Row((f"{DYNAMO}.inline_inbuilt_nn_modules", False), "torch.nn modules are not traced into", "dynamo"),
    Row((f"{DYNAMO}.optimize_ddp", False), "the graph is not split for DDP", "dynamo"),
    Row((f"{DYNAMO}.enable_cpp_symbolic_shape_guards", False), "guards on shapes in Python", "dynamo", True),
    Row((f"{DYNAMO}.allow_rnn", True), "RNN, GRU and LSTM are traced", "dynamo"),
    Row((f"{DYNAMO}.suppress_errors", True), "what does not compile runs in eager mode", "dynamo"),
)

GROUP = 14
"""Switches that are tried together at first."""
LAYERS = {
    "eager": ("dynamo",),
    "aot_eager": ("aot", "dynamo"),
    "aot_eager_decomp_partition": ("aot", "inductor"),
    "inductor": ("inductor", "aot"),
}


def rows_for(backend: str, changed: Mapping[str, str] = MappingProxyType({})) -> list[Row]:
    """Rows to try when `backend` is the first that fails. `changed` has the switches that the program set."""
    layers = LAYERS.get(backend, ())
    mine = [Row((name, value), "back to its default", "", True) for name, value in defaults(changed)]
    known = {row.switch[0] for row in mine}
    table = [row for layer in layers for row in TABLE if row.layer == layer]
    return mine + [
        row for row in table if row.switch[0] not in known and (not row.default or row.switch[0] in changed)
    ]


def defaults(changed: Mapping[str, str]) -> Iterator[Switch]:
    """The default of each switch that the program changed, where it is a plain value."""
    for name, text in changed.items():
        try:
            yield name, ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue


def search(
    lab: Asks, base: Request, failure: Outcome, backend: str, changed: Mapping[str, str]
) -> tuple[Row, ...] | None:
    """The smallest set of switches that was found to heal `failure`, or None."""
    rows = rows_for(backend, changed)
    last_resort = [row for row in rows if row.switch[0].endswith("suppress_errors")]
    rows = distinct([row for row in rows if row not in last_resort])
    found = minimal_set(rows, lambda sets: heals(lab, base, failure, sets), GROUP)
    if found is None and last_resort:
        answers = heals(lab, base, failure, [tuple(last_resort)])
        found = tuple(last_resort) if answers[0] else None
    return found


def distinct(rows: list[Row]) -> list[Row]:
    """Two values of one switch never stand in one group."""
    seen: dict[str, int] = {}
    later: list[Row] = []
    first: list[Row] = []
    for row in rows:
        (later if row.switch[0] in seen else first).append(row)
        seen[row.switch[0]] = 1
    return first + later


def heals(lab: Asks, base: Request, failure: Outcome, sets: list[tuple[Row, ...]]) -> Answers:
    """For each set of switches: True when it heals, False when the failure stays, None when something else comes."""
    outcomes = lab.run([with_switches(base, rows) for rows in sets])
    return [True if healthy(o) else (False if same_kind(o, failure) else None) for o in outcomes]


def same_kind(outcome: Outcome, failure: Outcome) -> bool:
    return failing(outcome) and type(outcome) is type(failure)


def with_switches(base: Request, rows: Sequence[Row]) -> Request:
    variant: Variant = base.variant.with_switches(*(row.switch for row in rows))
    return dataclasses.replace(base, variant=variant)
