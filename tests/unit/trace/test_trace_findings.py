"""What small traces show: caches cold and warm, kernels that are not generated, graphs that are the same but for names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_writing import artifact, compiled, event, metrics, record, write

from torchtriage.trace import read_trace
from torchtriage.trace.analyses.caches import cache_use, starts
from torchtriage.trace.analyses.compile_time import graph_form, repetitions, twins
from torchtriage.trace.analyses.kernels import all_kernels, why_not_generated
from torchtriage.trace.analyses.operators import operator_report
from torchtriage.trace.analyses.specialised import specialised_sizes
from torchtriage.trace.analyses.verdicts import verdicts
from torchtriage.trace.bundle import make_bundle
from torchtriage.trace.diff import details, match
from torchtriage.trace.page import make_page
from torchtriage.trace.sides import side_by_side

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_{0}_: "f32[3, 3][3, 1]cpu", L_{1}_: "f32[3, 3][3, 1]cpu"):
        l_{0}_ = L_{0}_
        l_{1}_ = L_{1}_

         # File: /app/{2}.py:{3} in {2}, code: return torch.relu({0} @ {1}).sum()
        matmul: "f32[3, 3][3, 1]cpu" = l_{0}_ @ l_{1}_;  l_{0}_ = l_{1}_ = None
        relu: "f32[3, 3][3, 1]cpu" = torch.relu(matmul);  matmul = None
        total: "f32[][]cpu" = relu.sum(dim = 0);  relu = None
        return (total,)
"""


def cached(name: str, at: tuple[int, int, int], **more: int) -> bytes:
    return artifact(name, json.dumps({"key": "k", **more}), at, "json")


def test_cold_compiles_are_told_from_warm_ones(tmp_path: Path) -> None:
    times = event("GraphLowering.run", "B", 1e6, (0, 0, 0)) + event("GraphLowering.run", "E", 4e6, (0, 0, 0))
    path = write(
        tmp_path,
        times, cached("fx_graph_cache_miss", (0, 0, 0), time_taken_ns=3_000_000_000), compiled((0, 0, 0), "f", 4.0),
        cached("fx_graph_cache_hit", (1, 0, 0), time_saved_ns=2_000_000_000), compiled((1, 0, 0), "g", 0.5),
        compiled((2, 0, 0), "h", 1.0),
    )  # fmt: skip
    trace = read_trace(path)
    found = starts(trace)
    assert (found.cold, found.cold_seconds, found.kept) == (1, 4.0, 3.0)
    assert (found.warm, found.warm_seconds, found.without) == (1, 0.5, 1)
    (use,) = cache_use(trace)
    assert (use.saved, use.taken) == (2.0, 3.0)
    (verdict,) = [v for v in verdicts(trace) if v.kind == "cold start"]
    assert verdict.title.startswith(
        "1 compile missed a cache and took 4.0 s each; 1 compile found everything"
    )


def test_layers_that_differ_only_in_names_are_the_same_graph(tmp_path: Path) -> None:
    one, two = GRAPH.format("x", "w", "one", 5), GRAPH.format("y", "v", "two", 9)
    assert graph_form(one) == graph_form(two)
    for other in (
        one.replace("relu(", "tanh("),
        one.replace("3, 3", "4, 4"),
        one.replace("dim = 0", "dim = 1"),
    ):
        assert graph_form(other) != graph_form(one)
    parts = []
    for n, text in enumerate((one, two, one.replace("relu(", "tanh("))):
        parts += [
            record("dynamo_output_graph", {}, text, (n, 0, 0)),
            metrics((n, 0, 0), f"f{n}", 2.0, graph_op_count=3),
        ]
    (pair,) = twins(read_trace(write(tmp_path, *parts)))
    assert (pair.functions, pair.count, pair.seconds) == (("f0", "f1"), 2, 2.0)


@pytest.mark.parametrize(
    ("kernel", "random", "words"),
    [
        ("triton_poi_fused_add_0", False, ""),
        ("cpp_fused_mul_1", False, ""),
        ("extern_kernels.mm", False, "library"),
        ("torch.ops.aten.cumsum.default", False, "Inductor has no code"),
        ("torch.ops.aten.rand.default", True, "fallback_random is on"),
        ("torch.ops.aten.rand.default", False, "Inductor has no code"),
        ("torch.ops.mylib.conv.default", False, "the library mylib"),
        ("torch.ops._c10d_functional.all_reduce.default", False, "a collective"),
    ],
)
def test_a_kernel_that_is_not_generated_has_a_reason(kernel: str, random: bool, words: str) -> None:
    why = why_not_generated(kernel, random)
    assert words in why
    assert bool(why) == bool(words)


CODE = """
triton_poi_fused_add_mul_0 = async_compile.triton('triton_poi_fused_add_mul_0', '''
import triton
def triton_poi_fused_add_mul_0(in_ptr0):
    pass
''', device_str='cuda')

def call(args):
        # Topologically Sorted Source Nodes: [a, b], Original ATen: [aten.add, aten.mul]
        triton_poi_fused_add_mul_0.run(arg0_1)
        # Topologically Sorted Source Nodes: [c], Original ATen: [aten.rand]
        buf1 = torch.ops.aten.rand.default([3])
"""


def test_operators_are_ranked_by_what_compiling_their_kernels_took(tmp_path: Path) -> None:
    times = json.dumps([["triton_poi_fused_add_mul_0", 1_500_000]])
    path = write(
        tmp_path, record("inductor_output_code", {"filename": "x"}, CODE),
        metrics(triton_kernel_compile_times_us=times, inductor_config='{"fallback_random": true}'),
    )  # fmt: skip
    trace = read_trace(path)
    (kernels,) = all_kernels(trace).values()
    assert [(k.name, k.code_lines, k.seconds) for k in kernels] == [
        ("triton_poi_fused_add_mul_0", 4, 1.5),
        ("torch.ops.aten.rand.default", 0, 0.0),
    ]
    assert kernels[1].why == "config.fallback_random is on: random numbers come from eager's operators"
    rows = make_bundle(trace, make_page(trace)).index["kernels"]
    assert [row[4] for row in rows] == ["", kernels[1].why]
    report = operator_report(trace)
    assert report.timed
    assert [(o.name, o.seconds, o.fallbacks) for o in report.operators] == [
        ("aten.add", 1.5, 0),
        ("aten.mul", 1.5, 0),
        ("aten.rand", 0.0, 1),
    ]
    assert [k.name for k in report.kernels] == ["triton_poi_fused_add_mul_0"]


def test_a_size_made_constant_is_a_note_with_its_line(tmp_path: Path) -> None:
    frame = {"line": 6, "name": "f", "filename": 1, "loc": "for i in range(n):"}
    meta = {
        "symbol": "s0",
        "sources": ["L['x'].size()[0]"],
        "value": "4",
        "reason": "range_refined_to_singleton",
        "user_stack": [frame],
    }
    path = write(
        tmp_path, record("str", ["/app/m.py", 1], at=None), record("symbolic_shape_specialization", meta), compiled(),
    )  # fmt: skip
    trace = read_trace(path)
    (one,) = specialised_sizes(trace)
    assert (one.source, one.values, one.reason) == (
        "x.size()[0]",
        ("4",),
        "the conditions at this line leave one value only",
    )
    (verdict,) = [v for v in verdicts(trace) if v.kind == "specialised"]
    assert verdict.title == "`x.size()[0]` was made a constant (4) at m.py:6: for i in range(n):"


def test_texts_stand_side_by_side_whole(tmp_path: Path) -> None:
    before = "\n".join(f"line {n}" for n in range(40))
    after = before.replace("line 20", "other 20").replace("line 39", "line 39\nmore") + "\nat 0x7f0000000000"
    sides = side_by_side("x", "0/0", "0/1", (before + "\nat 0x7f1111111111", after))
    assert [run.kind for run in sides.runs] == [
        "context",
        "same",
        "context",
        "differs",
        "context",
        "same",
        "context",
        "differs",
        "context",
    ]
    rows = [row for run in sides.runs for row in run.rows]
    assert [row.before for row in rows if row.left] == (before + "\nat 0x7f1111111111").split("\n")
    assert [row.after for row in rows if row.right] == after.split("\n")
    assert sides.differing == 2


def test_a_copy_of_a_file_is_matched_by_the_function_s_name(tmp_path: Path) -> None:
    a = write(tmp_path, compiled((0, 0, 0), "f", 1.0) + compiled((1, 0, 0), "g", 1.0), name="a.log")
    b = write(tmp_path, compiled((0, 0, 0), "f", 3.0, co_filename="/app/fixed.py"), name="b.log")
    left, right = read_trace(a), read_trace(b)
    pairs, only_left, only_right = match(left, right)
    assert [p.function for p in pairs] == ["f"]
    assert ([c.function for _, c in only_left], only_right) == (["g"], [])
    assert [(t.function, t.before, t.after) for t in details(left, right).timings] == [
        ("f (model.py)", 1.0, 3.0),
        ("g (model.py)", 1.0, 0.0),
    ]


def test_the_break_that_cuts_the_largest_graph_is_told(tmp_path: Path) -> None:
    def broken(at: int, line: int, before: int, after: int) -> bytes:
        text = f"Graph break in user code at /app/model.py:{line}\nGraph Break Reason: no reason {line}\n"
        resumed = f"torch_dynamo_resume_in_f_at_{line}"
        return (
            artifact("dynamo_graph_break_reason", text, (at, 0, 0)) + compiled((at, 0, 0), f"f{at}", graph_op_count=before)
            + compiled((at + 1, 0, 0), resumed, co_firstlineno=line, graph_op_count=after)
        )  # fmt: skip

    trace = read_trace(write(tmp_path, broken(0, 20, 50, 40), broken(2, 30, 90, 8)))
    details = {
        v.place.line: " ".join(v.details) for v in verdicts(trace) if v.kind == "graph break" and v.place
    }
    assert "before it: 50, after it: 40; no other break cuts a larger graph" in details[20]
    assert "before it: 90, after it: 8" in details[30]
    assert "no other break" not in details[30]


def test_layers_of_torch_s_own_classes_are_counted_by_their_modules(tmp_path: Path) -> None:
    def graph(layers: int, odd: int) -> str:
        names = [f"L_fn_modules_layers_modules_{n}_modules_linear_parameters_weight_" for n in range(layers)]
        names += [f"L_fn_modules_layers_modules_{n}_parameters_other_" for n in range(odd)]
        return (
            "class GraphModule(torch.nn.Module):\n    def forward(self, "
            + ", ".join(f'{n}: "f32[3][1]"' for n in names)
            + "):\n        return ()\n"
        )

    parts = []
    for n, (layers, odd) in enumerate([(12, 0), (5, 0), (12, 9)]):
        parts += [
            record("dynamo_output_graph", {}, graph(layers, odd), (n, 0, 0)),
            metrics((n, 0, 0), f"f{n}", graph_op_count=300),
        ]
    found = repetitions(read_trace(write(tmp_path, *parts)))
    assert [(r.compile[1].frame, r.count, r.module, r.blocks) for r in found] == [
        (0, 12, "layers", True),
        (2, 9, "layers", True),
    ]
