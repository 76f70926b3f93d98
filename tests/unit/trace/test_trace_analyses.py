"""Each analysis answers its question on a small trace that was written for it."""

from __future__ import annotations

import json
from pathlib import Path

from trace_writing import artifact, compiled, event, metrics, record, write

from torchtriage.trace import Trace, read_trace
from torchtriage.trace.analyses.caches import cache_use, key_changes, refusals
from torchtriage.trace.analyses.collectives import disparities, runtimes, schedules
from torchtriage.trace.analyses.compile_time import repetitions, time_use, twins
from torchtriage.trace.analyses.exports import export_issues
from torchtriage.trace.analyses.failures import failure_groups
from torchtriage.trace.analyses.graph_breaks import break_sites
from torchtriage.trace.analyses.kernels import kernels_of, node_lines
from torchtriage.trace.analyses.ranks import rank_report
from torchtriage.trace.analyses.recompiles import recompile_causes
from torchtriage.trace.analyses.verdicts import problems, verdicts
from torchtriage.trace.frames import is_library
from torchtriage.trace.guard_tree import changes, parse_tree

LIMIT = (
    "Dynamo recompile limit exceeded\n  Developer debug context: Limit type: recompile_limit\n gb/gb0039.html"
)


def trace_of(tmp_path: Path, *parts: bytes, name: str = "t.log") -> Trace:
    return read_trace(write(tmp_path, *parts, name=name))


def again(number: int, reason: str, seconds: float = 2.0, **more: object) -> bytes:
    return artifact("recompile_reasons", f"0/{number - 1}: {reason}", (0, number, 0), "json") + compiled(
        (0, number, 0), seconds=seconds, **more
    )


def tree(*lines: str) -> str:
    return "\nTREE_GUARD_MANAGER:\n+- RootGuardManager\n" + "\n".join(lines)


SIZE = "tensor 'x' size mismatch at index 0. expected {}, actual {}"


def test_recompiles_for_one_reason_are_one_cause(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        compiled(),
        again(1, SIZE.format(4, 5)),
        again(2, SIZE.format(5, 6)),
        again(3, "flag == True"),
    )
    first, second = recompile_causes(trace)
    assert (first.cause, first.source, first.dimension, first.count, first.seconds) == (
        "size",
        "x",
        0,
        2,
        4.0,
    )
    assert first.values == ("4 → 5", "5 → 6")
    assert "mark_dynamic(x, 0)" in first.advice
    assert (second.cause, second.count) == ("flag", 1)


def test_all_guards_that_failed_are_told_where_the_probe_wrote_them_down(tmp_path: Path) -> None:
    texts = [
        SIZE.format(4, 5) + "  # return x  # net.py:3 in f",
        "L['self'].calls == 2   # self.calls += 1  # net.py:2 in f (HINT: make it a tensor)",
        "L['flag'] == True  # if flag:  # net.py:4 in f",
    ]
    written = artifact("torchtriage_failing_guards", json.dumps(texts), (0, 1, 0), "json")
    (cause,) = recompile_causes(trace_of(tmp_path, compiled(), written, again(1, SIZE.format(4, 5))))
    assert cause.cause == "size"
    assert [(c.source, c.aspect, c.before, c.after) for c in cause.also] == [
        ("self.calls", "value", "2", "another"), ("flag", "value", "True", "another"),
    ]  # fmt: skip


def test_what_the_probe_wrote_down_can_be_damaged(tmp_path: Path) -> None:
    for text in ("{}", "[", "[1, null]"):
        written = artifact("torchtriage_failing_guards", text, (0, 1, 0), "json")
        (cause,) = recompile_causes(
            trace_of(tmp_path, compiled(), written, again(1, SIZE.format(4, 5)), name=f"{len(text)}.log")
        )
        assert cause.cause == "size"


def test_the_probe_s_own_frames_are_not_the_user_s() -> None:
    assert is_library("/home/me/torchtriage/src/torchtriage/probe/perform.py")
    assert not is_library("/home/me/torchtriage/examples/rescale.py")


def test_the_recompile_limit_is_told_with_what_led_to_it(tmp_path: Path) -> None:
    refused = artifact("recompile_reasons", "0/1: " + SIZE.format(5, 6), (0, 2, 0)) + metrics(
        (0, 2, 0),
        None,
        0.0,
        fail_type="Unsupported",
        fail_reason=LIMIT,
        co_filename=None,  # type: ignore[arg-type]
    )
    trace = trace_of(tmp_path, compiled(), again(1, SIZE.format(4, 5)), refused)
    (cause,) = recompile_causes(trace)
    assert (cause.count, cause.refused, cause.limit) == (1, 1, True)
    (group,) = failure_groups(trace)
    assert (group.limit, group.frames[0].function) == (True, "f")
    assert break_sites(trace) == ()
    assert trace.totals.limit_hits == 1


def test_one_switch_of_grad_mode_is_no_problem_and_two_causes_are(tmp_path: Path) -> None:
    once = trace_of(tmp_path, compiled(), again(1, "GLOBAL_STATE changed: grad_mode "), name="a.log")
    more = trace_of(
        tmp_path,
        compiled(),
        again(1, "GLOBAL_STATE changed: grad_mode "),
        again(2, SIZE.format(4, 5)),
        name="b.log",
    )
    assert problems(once) == ()
    assert len(problems(more)) == 2


def test_guard_trees_tell_what_else_differs_and_whose_line_it_is(tmp_path: Path) -> None:
    head = "| +- GuardManager: source=L['{0}'], accessed_by=FrameLocalsGuardAccessor(key='{0}', framelocals_idx=0), type=<class 'torch.Tensor'>"
    tensor = "| | +- TENSOR_MATCH: check_tensor(L['{0}'], Tensor, DispatchKeySet(CPU), torch.float32, device=None, requires_grad=False, size=[{1}, 3], stride=[3, 1])  # return {0} + 1  # app/model.py:{2} in f"
    number = "| | +- EQUALS_MATCH: L['lr'] == {0}  # p - lr  # app/model.py:9 in f"
    before = tree(
        head.format("x"),
        tensor.format("x", "4", 7),
        head.format("y"),
        tensor.format("y", "4", 8),
        head.format("lr"),
        number.format("0.1"),
    )
    after = tree(
        head.format("x"), tensor.format("x", "None", 7), head.format("y"), tensor.format("y", "None", 8)
    )
    trace = trace_of(
        tmp_path, artifact("", "", (0, 0, 0)), record("dynamo_cpp_guards_str", {}, before, (0, 0, 0)), compiled(),
        again(1, SIZE.format(4, 5)), record("dynamo_cpp_guards_str", {}, after, (0, 1, 0)),
    )  # fmt: skip
    (cause,) = recompile_causes(trace)
    assert str(cause.place) == "app/model.py:7"
    assert cause.settled
    assert [(c.source, c.aspect, c.before, c.after) for c in cause.also] == [
        ("y", "size[0]", "4", "dynamic"),
        ("lr", "value", "0.1", "not guarded"),
    ]


def test_object_identities_are_no_difference() -> None:
    one, other = (
        parse_tree(f"| +- TYPE_MATCH: ___check_type_id(L['x'], {n})")
        for n in (94839274839210, 94839274839999)
    )
    assert changes(one, other) == ()


def graph_break(line: int, frame: int, function: str = "forward", reason: str = "Call to print") -> bytes:
    text = (
        f"Graph break in user code at /app/model.py:{line}\nGraph Break Reason: Encountered graph break when attempting to "
        f"trace CALL: a function call:\n\n{reason}\n  Explanation: Because.\n  Hint: Remove it.\n\nUser code traceback:\n"
        f'  File "/app/model.py", line {line}, in {function}\n    print(x)\n'
    )
    return artifact("dynamo_graph_break_reason", text, (frame, 0, 0))


def test_a_break_costs_its_restart_and_what_is_compiled_after_it(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path, graph_break(12, 0), compiled((0, 0, 1), "forward", 3.0, dynamo_time_before_restart_s=0.5, graph_op_count=7),
        compiled((1, 0, 0), "torch_dynamo_resume_in_forward_at_12", 4.0, co_firstlineno=12, graph_op_count=5),
        compiled((2, 0, 0), "other", 9.0),
    )  # fmt: skip
    (site,) = break_sites(trace)
    assert (site.seconds, site.count, site.functions) == (4.5, 1, ("forward",))
    assert (site.ops_before, site.ops_after, site.splits) == (7, 5, 5)
    assert site.hints == ("Remove it.",)


def test_a_break_that_several_frames_record_is_one_site(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        graph_break(12, 0),
        graph_break(12, 1, "helper"),
        compiled((0, 0, 0)),
        compiled((1, 0, 0), "helper"),
    )
    (site,) = break_sites(trace)
    assert (site.count, site.functions) == (2, ("f", "helper"))
    assert trace.totals.break_sites == 1


def test_time_is_told_by_phase_and_what_never_ended(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path, event("dynamo", "B", 0), event("async_compile.wait", "B", 1e6), event("async_compile.wait", "E", 9e6),
        event("dynamo", "E", 10e6), compiled(seconds=10.0), event("dynamo", "B", 11e6, (1, 0, 0)),
        event("Scheduler.codegen", "B", 12e6, (1, 0, 0)),
    )  # fmt: skip
    use = time_use(trace)
    assert use.phases[0] == ("C++/Triton compile", 8.0)
    assert use.unfinished == (("t.log", trace.logs[0].compiles[1].id, "Scheduler.codegen"),)
    titles = [v.title for v in verdicts(trace)]
    assert any("1/0 never ended inside Scheduler.codegen" in t for t in titles)
    assert any(t.startswith("73% of compile time is C++/Triton compile") for t in titles)


def graph_of(count: int, module: str) -> str:
    body = "".join(
        f"         # File: /app/model.py:20 in forward, code: h = self.lin(h)\n"
        f"        h_{i}: \"f32[4]\" = torch.add(l_self_modules_{module.format(i)}_weight, 1)\n\n"
        for i in range(count)
    )  # fmt: skip
    return "class GraphModule(torch.nn.Module):\n    def forward(self):\n" + body


def test_unrolled_loops_are_told_from_repeated_layers(tmp_path: Path) -> None:
    loop = trace_of(
        tmp_path,
        record("dynamo_output_graph", {}, graph_of(40, "cell")),
        metrics(graph_op_count=400),
        name="a.log",
    )
    layers = trace_of(
        tmp_path,
        record("dynamo_output_graph", {}, graph_of(40, "layers_modules_{0}_lin")),
        metrics(graph_op_count=400),
        name="b.log",
    )
    (a,), (b,) = repetitions(loop), repetitions(layers)
    assert (a.count, a.blocks, str(a.place)) == (40, False, "/app/model.py:20")
    assert (b.count, b.blocks) == (40, True)


def test_one_graph_compiled_in_two_frames_is_told(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        compiled((0, 0, 0), seconds=3.0, graph_op_count=9),
        compiled((1, 0, 0), seconds=2.0, graph_op_count=9),
    )
    (pair,) = twins(trace)
    assert (pair.count, pair.seconds) == (2, 2.0)


def test_caches_are_counted_and_bypasses_explained(tmp_path: Path) -> None:
    why = json.dumps({"cache_bypass_reason": "Unsupported node", "key": None})
    trace = trace_of(
        tmp_path, artifact("fx_graph_cache_miss", '{"key": "k"}', encoding="json"), artifact("fx_graph_cache_hit", '{"key": "k"}', (1, 0, 0), "json"),
        artifact("aotautograd_cache_bypass", why, encoding="json"), compiled(seconds=5.0),
    )  # fmt: skip
    assert [(c.cache, c.hits, c.misses, c.bypasses) for c in cache_use(trace)] == [
        ("aotautograd_cache", 0, 0, 1),
        ("fx_graph_cache", 1, 1, 0),
    ]
    assert [(r.reason, r.seconds) for r in refusals(trace)] == [("Unsupported node", 5.0)]


def test_a_miss_with_the_same_graph_is_told_with_what_differs_in_the_key(tmp_path: Path) -> None:
    def miss(frame: int, graph: str, config: str) -> bytes:
        key = f"k{frame}{graph}{config}"
        parts = [f"[h{graph}] gm: {graph}", f"[h{config}] inductor_config[x]: {config}"]
        return artifact(
            "fx_graph_cache_miss", json.dumps({"key": key, "components": parts}), (frame, 0, 0), "json"
        ) + compiled((frame, 0, 0))

    (change,) = key_changes(trace_of(tmp_path, miss(0, "a", "1"), miss(1, "a", "2"), miss(2, "b", "2")))
    assert (change.names, change.parts, len(change.compiles)) == (
        ("inductor_config[x]",),
        ("inductor_config[x]: 1 → 2",),
        1,
    )


def test_estimates_and_schedules_are_told_by_rank(tmp_path: Path) -> None:
    for rank, ns in ((0, 1e6), (1, 5e6)):
        meta = json.dumps(
            {
                "ops": [
                    {"name": "mm", "type": "compute", "estimated_runtime_ns": ns},
                    {"name": "r", "type": "collective", "estimated_runtime_ns": 1e6},
                ]
            }
        )
        write(
            tmp_path,
            artifact("inductor_runtime_and_tensor_meta", meta, encoding="json"),
            artifact("inductor_collective_schedule", '["all_reduce", "wait"]', encoding="json"),
            compiled(),
            name=f"rank_{rank}.log",
        )
    trace = read_trace(tmp_path)
    assert [(r.compile, r.fastest, r.slowest, r.least, r.most, r.collectives) for r in runtimes(trace)] == [
        ("0/0", "rank 0", "rank 1", 2.0, 6.0, 1.0)
    ]
    assert [(s.ranks, s.operations) for s in schedules(trace)] == [
        (("rank 0", "rank 1"), ("all_reduce", "wait"))
    ]


def test_code_that_does_not_call_what_was_scheduled_is_told(tmp_path: Path) -> None:
    name = "torch.ops._c10d_functional.all_reduce_.default"
    plan = artifact("inductor_collective_schedule", json.dumps([name, name]), encoding="json")
    code = record("inductor_output_code", {}, f"import x\ndef call(args):\n    {name}(buf0)\n")
    (one,) = disparities(trace_of(tmp_path, plan, code, compiled()))
    assert (one.scheduled, one.in_code) == (((name, 2),), ((name, 1),))


CODE = """
# kernel path: x.py
# Topologically Sorted Source Nodes: [y, z], Original ATen: [aten.relu, aten.mul]
# Source node to ATen node mapping:
triton_poi_fused_mul_relu_0 = async_compile.triton('triton_poi_fused_mul_relu_0', '''
''')
def call(args):
        extern_kernels.mm(a, b, out=buf0)
        triton_poi_fused_mul_relu_0.run(buf0, 1)
        buf2 = torch.ops.aten.sort.default(buf0)
def get_args():
    extern_kernels.nothing(x)
"""


def test_kernels_lead_to_nodes_and_lines(tmp_path: Path) -> None:
    graph = '    def forward(self):\n         # File: /app/model.py:5 in f, code: y = x.relu()\n        y: "f32[4]" = x.relu()\n'
    mapping = {
        "cppCodeToPost": {"triton_poi_fused_mul_relu_0:1": ["relu"]},
        "postToPre": {"relu": ["y"]},
        "version": 2.0,
    }
    trace = trace_of(
        tmp_path, record("dynamo_output_graph", {}, graph), record("inductor_output_code", {"filename": "x.py"}, CODE),
        artifact("inductor_provenance_tracking_node_mappings", json.dumps(mapping), encoding="json"),
    )  # fmt: skip
    log = trace.logs[0]
    kernels = {k.name: k for k in kernels_of(trace, log, log.compiles[0])}
    fused = kernels["triton_poi_fused_mul_relu_0"]
    assert (fused.kind, fused.aten, fused.post, fused.pre, fused.code_line) == (
        "triton",
        ("aten.relu", "aten.mul"),
        ("relu",),
        ("y",),
        5,
    )
    assert [str(p) for p in fused.lines] == ["/app/model.py:5"]
    assert kernels["torch.ops.aten.sort.default"].kind == "fallback"
    assert kernels["extern_kernels.mm"].kind == "extern"
    assert "extern_kernels.nothing" not in kernels
    assert node_lines(graph)["y"].code == "y = x.relu()"


def test_kernels_of_forward_and_backward_with_one_name_are_kept_apart(tmp_path: Path) -> None:
    def code(name: str) -> str:
        return f"# Source Nodes: [{name}], Original ATen: [aten.{name}]\ntriton_poi_fused_0 = async_compile.triton('x')\n"

    def mapping(node: str) -> bytes:
        table = {"cppCodeToPost": {"triton_poi_fused_0": [node]}, "postToPre": {node: [node]}}
        return artifact("inductor_provenance_tracking_node_mappings", json.dumps(table), encoding="json")

    trace = trace_of(
        tmp_path, record("aot_forward_graph", {}, "f"), record("aot_backward_graph", {}, "b"),
        artifact("inductor_post_grad_graph", "graph"), record("inductor_output_code", {}, code("add")), mapping("add"),
        artifact("inductor_post_grad_graph", "graph2"), record("inductor_output_code", {}, code("mul")), mapping("mul"),
    )  # fmt: skip
    log = trace.logs[0]
    found = [(k.direction, k.name, k.aten, k.post) for k in kernels_of(trace, log, log.compiles[0])]
    assert found == [
        ("forward", "triton_poi_fused_0", ("aten.add",), ("add",)),
        ("backward", "triton_poi_fused_0", ("aten.mul",), ("mul",)),
    ]


def test_an_export_that_depends_on_data_is_told_with_its_derivation(tmp_path: Path) -> None:
    created = record(
        "expression_created",
        {
            "method": "eq",
            "result": "Eq(u0, 0)",
            "result_id": 7,
            "arguments": ["u0", "0"],
            "argument_ids": [3],
        },
        at=None,
    )
    asked = record(
        "propagate_real_tensors_provenance",
        {
            "expr": "Eq(u0, 0)",
            "result": "False",
            "expr_node_id": 7,
            "frame_locals": {"loc": "if n == 0:", "locals": {"n": "u0"}},
        },
        at=None,
    )
    missing = record("missing_fake_kernel", {"op": "my.op"}, at=None)
    first, second = export_issues(trace_of(tmp_path, created, asked, missing, missing))
    assert (first.code, first.values, first.derivation) == (
        "if n == 0:",
        (("n", "u0"),),
        ("Eq(u0, 0) = eq(u0, 0)",),
    )
    assert second.title == "operator my.op has no fake kernel"


def test_ranks_that_compile_different_graphs_are_told_with_the_first_difference(tmp_path: Path) -> None:
    for rank, op in ((0, "add"), (1, "add"), (2, "mul")):
        graph = f'class G:\n  # File: /home/user{rank}/a.py:1\n  y = torch.{op}(x: "f32[4]cuda:{rank}")\n'
        write(
            tmp_path,
            record("dynamo_output_graph", {}, graph),
            metrics(seconds=1.0 + 3 * rank),
            name=f"rank_{rank}.log",
        )
    report = rank_report(read_trace(tmp_path))
    (one,) = report.divergences
    assert (one.what, one.groups, one.compile) == ("graphs", (("rank 0", "rank 1"), ("rank 2",)), "0/0")
    assert "torch.add" in one.first_difference
    assert "torch.mul" in one.first_difference
    assert (report.waiting[0].slowest, report.waiting[0].seconds) == ("rank 2", 6.0)


def test_a_payload_that_was_changed_under_its_hash_is_compared_as_it_is(tmp_path: Path) -> None:
    log = artifact("inductor_collective_schedule", '["all_reduce"]', encoding="json") + compiled()
    write(tmp_path, log, name="rank_0.log")
    write(tmp_path, log.replace(b"all_reduce", b"all_gather"), name="rank_1.log")
    trace = read_trace(tmp_path)
    (one,) = rank_report(trace).divergences
    assert one.what == "collectives, or their order"
    texts = {trace.text(log, log.artifacts[0]) for log in trace.logs}
    assert texts == {'["all_reduce"]', '["all_gather"]'}


def test_verdicts_put_problems_first_and_the_dearest_before_others(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path, compiled(), again(1, SIZE.format(4, 5), 2.0), again(2, "flag == True", 8.0), b"noise\n"
    )
    found = verdicts(trace)
    assert [v.level for v in found] == sorted((v.level for v in found), reverse=True)
    assert [round(v.seconds) for v in found if v.level == "problem"] == [8, 2]
    assert any("could not be read" in v.title for v in found)


def test_a_clean_trace_has_no_problem(tmp_path: Path) -> None:
    assert problems(trace_of(tmp_path, compiled(), compiled((1, 0, 0), "g"))) == ()
