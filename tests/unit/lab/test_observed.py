"""Reads what torch 2.13 says about graph breaks and recompilations. The texts are torch's own, paths shortened.

They were printed by this program, with a handler on the logger `torch.__trace`:

    @torch.compile(backend="eager")
    def f(x):
        y = x + 1
        print("hi")
        return y * 2

    @torch.compile(backend="eager")
    def g(x, s): return x + len(s)
"""

from __future__ import annotations

import dataclasses

import pytest

from torchtriage.lab.observed import graph_break, graph_breaks, recompiles
from torchtriage.model.outcome import GraphBreak, Recompile

PRINT = r"""Graph break in user code at /home/me/texts.py:13
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print` with argument types ['str'] (has_kwargs False)
  Hint: Avoid calling builtin `print` with argument types ['str']. Consider using an equivalent alternative function/method to `print`.
  Hint: If you are attempting to call a logging function (e.g. `print`), you can try adding it to `torch._dynamo.config.reorderable_logging_functions`.
  Hint: Please report an issue to PyTorch.

  Developer debug context: builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html

User code traceback:
  File "/home/me/texts.py", line 15, in <module>
    f(torch.ones(3))
  File "/home/me/texts.py", line 13, in f
    print("hi")

Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py", line 1076, in wrapper
    return inner_fn(self, inst)
           ^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/torch/_dynamo/exc.py", line 727, in unimplemented
    raise Unsupported(msg, gb_type, skip_frame)
torch._dynamo.exc.Unsupported: Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print` with argument types ['str'] (has_kwargs False)
  Hint: Avoid calling builtin `print` with argument types ['str']. Consider using an equivalent alternative function/method to `print`.
"""
BRANCH = r"""Graph break in user code at /home/me/texts.py:26
Graph Break Reason: Data-dependent branching
  Explanation: Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`). Dynamo does not support tracing dynamic control flow.

      The branch condition involves a tensor computed as follows:
        # File "/home/me/texts.py", line 26, in k, code: if x.sum() > 0: return x+1
        gt = gt(sum_1, 0)
    
  Hint: This graph break is fundamental - it is unlikely that Dynamo will ever be able to trace through your code. Consider finding a workaround.
  Hint: Use `torch.cond` to express dynamic control flow.

  Developer debug context: attempted to jump with TensorVariable()

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html

User code traceback:
  File "/home/me/texts.py", line 28, in <module>
    k(torch.ones(3))
  File "/home/me/texts.py", line 26, in k
    if x.sum() > 0: return x+1
       ^^^^^^^^^^^^^^^^^^^^^^^

NoneType: None
"""
FRAME = {"name": "frame", "frame": 2, "compile": 0, "function": "g", "line": 16}
ONE = (
    "2/0: s == 'a'                                                 # return x + len(s)  # mp/scratch/texts.py:18 in g\n"
    'User stack trace:\n  File "/home/camp/scratch/texts.py", line 18, in g\n    return x + len(s)'
)
TWO = r"""[
"2/1: s == 'b'                                                 # return x + len(s)  # mp/scratch/texts.py:18 in g\nUser stack trace:\n  File \"/home/camp/scratch/texts.py\", line 18, in g\n    return x + len(s)",
"2/0: s == 'a'                                                 # return x + len(s)  # mp/scratch/texts.py:18 in g\nUser stack trace:\n  File \"/home/camp/scratch/texts.py\", line 18, in g\n    return x + len(s)"
]"""
QUOTED = r"""[
"2/2: s == \"it's\"                                              # return x + len(s)  # mp/scratch/texts.py:18 in g\nUser stack trace:\n  File \"/home/camp/scratch/texts.py\", line 18, in g\n    return x + len(s)",
"2/1: s == 'b'                                                 # return x + len(s)  # mp/scratch/texts.py:18 in g\nUser stack trace:\n  File \"/home/camp/scratch/texts.py\", line 18, in g\n    return x + len(s)"
]"""
SIZES = r"""[
"3/1: tensor 'x' size mismatch at index 0. expected 3, actual 4",
"3/0: s == 0.1                                                 # def h(x, s): return x * s  # mp/scratch/texts.py:21 in h\nUser stack trace:\n  File \"/home/camp/scratch/texts.py\", line 21, in h\n    def h(x, s): return x * s"
]"""


def recompiled(text: str, *more: dict[str, object]) -> Recompile:
    (found,) = recompiles([*more, {"name": "recompile_reasons", "frame": 2, "compile": 1, "text": text}])
    return found


def test_a_break_is_read_with_its_place_and_reason() -> None:
    assert dataclasses.replace(graph_break(PRINT), hints=()) == GraphBreak(
        reason="Failed to trace builtin operator",
        file="/home/me/texts.py",
        line=13,
        code='print("hi")',
        identifier="gb0059",
        explanation="Dynamo does not know how to trace builtin operator `print` with argument types ['str'] (has_kwargs False)",
    )


def test_hints_are_read_in_their_order() -> None:
    fundamental, cond = graph_break(BRANCH).hints
    assert fundamental.startswith("This graph break is fundamental - it is unlikely that Dynamo will ever")
    assert cond == "Use `torch.cond` to express dynamic control flow."


def test_hints_are_read_once() -> None:
    hints = graph_break(PRINT).hints
    assert len(hints) == len(set(hints)) == 3


def test_the_place_is_the_innermost_line_of_the_user_s() -> None:
    found = graph_break(BRANCH)
    assert (found.file, found.line, found.code) == ("/home/me/texts.py", 26, "if x.sum() > 0: return x+1")
    assert found.identifier == "gb0170"


def test_a_reason_on_the_line_of_its_label_is_read_without_the_label() -> None:
    assert graph_break(BRANCH).reason == "Data-dependent branching"


@pytest.mark.parametrize("text", ["", "something new\nof torch's", "Graph break in user code at nowhere"])
def test_a_text_that_does_not_parse_is_kept_as_it_is(text: str) -> None:
    assert graph_break(text).reason == text.partition("\n")[0]


def test_only_records_of_graph_breaks_are_read() -> None:
    notes = [
        FRAME,
        {"name": "dynamo_graph_break_reason", "text": PRINT},
        {"name": "dynamo_error", "text": "x"},
    ]
    assert [b.line for b in graph_breaks(notes)] == [13]


def test_a_single_reason_is_read_with_the_function_that_was_compiled_again() -> None:
    found = recompiled(ONE, FRAME)
    assert (found.frame, found.reason, found.line) == ("g", "s == 'a'", 18)


def test_the_file_is_the_whole_path() -> None:
    assert recompiled(ONE).file == "/home/camp/scratch/texts.py"


def test_of_a_list_of_reasons_the_newest_entry_is_read() -> None:
    found = recompiled(TWO, FRAME)
    assert (found.frame, found.reason, found.line) == ("g", "s == 'b'", 18)


def test_quotes_in_a_reason_are_those_of_the_program() -> None:
    assert recompiled(QUOTED).reason == '''s == "it's"'''


def test_a_reason_without_a_place_gets_that_of_its_frame() -> None:
    found = recompiled(SIZES, FRAME)
    assert found == Recompile("g", "tensor 'x' size mismatch at index 0. expected 3, actual 4", "", 16)


def test_a_reason_of_an_unknown_frame_is_kept() -> None:
    assert recompiled("9/4: something new", FRAME | {"frame": 3}) == Recompile("", "something new")


def test_one_recompilation_a_record() -> None:
    notes = [
        {"name": "recompile_reasons", "frame": 2, "compile": n, "text": t} for n, t in enumerate((ONE, TWO))
    ]
    assert [r.reason for r in recompiles(notes)] == ["s == 'a'", "s == 'b'"]


IN_TORCH = (
    "2/0: self.param_groups[0]['betas'][0] == 0.95                 # for group in self.param_groups:"
    "  # optim/adam.py:229 in step\nUser stack trace:\n"
    '  File "/venv/lib/python3.11/site-packages/torch/optim/adam.py", line 229, in step\n'
    "    for group in self.param_groups:"
)
IN_COMPILER = (
    "2/1: betas[0] == 0.9497  # (_dynamo/output_graph.py:3375 in remove_tensorify_specialized_graphargs)"
)


@pytest.mark.parametrize("text", [IN_TORCH, IN_COMPILER])
def test_a_guard_in_torch_s_own_code_is_placed_at_the_program_s_line_above_it(text: str) -> None:
    frame = {"name": "frame", "frame": 2, "function": "step", "line": 214, "user": ("/home/me/train.py", 14)}
    (found,) = recompiles([frame, {"name": "recompile_reasons", "frame": 2, "text": text}])
    assert (found.frame, found.file, found.line) == ("step", "/home/me/train.py", 14)


def test_a_guard_on_the_line_that_calls_the_region_is_not_placed_in_our_own_file() -> None:
    text = "0/0: tensor 'args[1]' size mismatch at index 1. expected 5, actual 7  # torchtriage/probe/trial.py:206 in call"
    frame = {"name": "frame", "frame": 0, "function": "loss", "line": 9, "user": ("/home/me/ensemble.py", 9)}
    (found,) = recompiles([frame, {"name": "recompile_reasons", "frame": 0, "text": text}])
    assert (found.file, found.line) == ("/home/me/ensemble.py", 9)


def test_guards_that_failed_beside_the_one_that_torch_names() -> None:
    failing = [
        "tensor 'x' size mismatch at index 1. expected 3, actual 5  # return x  # net.py:3 in f",
        "L['self'].calls == 2   # self.calls += 1  # net.py:2 in f (HINT: make it a tensor)",
    ]
    text = (
        "0/1: tensor 'x' size mismatch at index 1. expected 3, actual 5  # return x  # /home/me/net.py:3 in f"
    )
    (found,) = recompiles([{"name": "recompile_reasons", "frame": 0, "text": text, "failing": failing}])
    assert found.reason == "tensor 'x' size mismatch at index 1. expected 3, actual 5"
    assert found.also == ("L['self'].calls == 2",)
