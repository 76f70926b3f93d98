"""Small parts of a trial, of the call tree and of the judge."""

from __future__ import annotations

import json
import logging
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from torchtriage.probe import capture, exceptions, judge, tree
from torchtriage.probe.intercept import Region, Settings
from torchtriage.probe.observe import Observer, loop_around, most_repeated
from torchtriage.probe.perform import Call, grad_path
from torchtriage.probe.trial import disable, step_time

MODULE = """
def double(x): return x * 2
def helper(x): return double(x) + 1
class Net:
    def forward(self, x): return self.scale(helper(x)) + self.shift(x)
    @staticmethod
    def scale(x): return double(x)
    @classmethod
    def shift(cls, x): return x
"""


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of the user's, importable as `users_net`."""
    module = types.ModuleType("users_net")
    exec(compile(MODULE, "/home/me/users_net.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "users_net", module)
    return module


# --- disabling ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "holder", "kind"),
    [
        ("users_net:helper", "helper", types.FunctionType),
        ("users_net:Net.forward", "forward", types.FunctionType),
        ("users_net:Net.scale|staticmethod", "scale", staticmethod),
        ("users_net:Net.shift|classmethod", "shift", classmethod),
    ],
)
def test_a_disabled_function_stays_what_it_is(net: Any, name: str, holder: str, kind: type) -> None:
    disable(name)
    found = vars(net if holder == "helper" else net.Net)[holder]
    assert isinstance(found, kind)
    assert hasattr(getattr(found, "__func__", found), "_torchdynamo_disable")
    assert net.Net().forward(torch.ones(1)).item() == 7.0


def test_an_unknown_function_is_an_error(net: Any) -> None:
    with pytest.raises(AttributeError):
        disable("users_net:nope")
    with pytest.raises(KeyError):
        disable("never_imported:f")


# --- the call tree --------------------------------------------------------------------------------


def tree_of(function: Any, folder: Path, *args: Any) -> list[tuple[str, str, int]]:
    tree.write(Region(function, Settings(), function), str(folder), args, {})
    rows = json.loads((folder / "tree.json").read_text())
    return [(row["parent"], row["name"], row["line"]) for row in rows]


def test_each_function_is_named_with_the_one_that_calls_it(net: Any, tmp_path: Path) -> None:
    assert tree_of(net.Net().forward, tmp_path, torch.ones(1)) == [
        ("", "users_net:Net.forward", 5),
        ("users_net:Net.forward", "users_net:helper", 3),
        ("users_net:helper", "users_net:double", 2),
        ("users_net:Net.forward", "users_net:Net.scale|staticmethod", 6),
        ("users_net:Net.scale|staticmethod", "users_net:double", 2),
        ("users_net:Net.forward", "users_net:Net.shift|classmethod", 8),
    ]


def test_functions_below_which_an_operator_runs_are_marked(tmp_path: Path) -> None:
    module = types.ModuleType("worker")
    exec(
        "def label(x): return str(type(x))\ndef work(x): return x.add(1)\ndef both(x): return work(x), label(x)",
        vars(module),
    )
    for function in vars(module).values():
        if isinstance(function, types.FunctionType):
            function.__module__ = "worker"
    vars(module)["__name__"] = "worker"
    sys.modules["worker"] = module
    try:
        tree.write(Region(module.both, Settings(), module.both), str(tmp_path), (torch.ones(1),), {})
    finally:
        del sys.modules["worker"]
    rows = json.loads((tmp_path / "tree.json").read_text())
    assert {row["name"]: row["works"] for row in rows} == {
        "worker:both": True, "worker:work": True, "worker:label": False,
    }  # fmt: skip


def test_a_call_that_raises_has_its_tree_up_to_there(net: Any, tmp_path: Path) -> None:
    assert [name for _, name, _ in tree_of(net.helper, tmp_path, None)] == [
        "users_net:helper",
        "users_net:double",
    ]


def test_functions_without_a_name_to_replace_are_left_out(tmp_path: Path) -> None:
    def local(x: torch.Tensor) -> torch.Tensor:
        return (lambda y: y + 1)(x)

    assert tree_of(local, tmp_path, torch.ones(1)) == []


# --- counting -------------------------------------------------------------------------------------

GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[3]"):
        l_x_ = L_x_
         # File: /home/me/net.py:4 in f, code: x = x.sin()
        x: "f32[3]" = l_x_.sin()
         # File: /home/me/net.py:7 in f, code: for _ in range(3): x = x + 1
        x_1: "f32[3]" = x + 1
        x_2: "f32[3]" = x_1 + 1
        x_3: "f32[3]" = x_2 + 1
         # File: /home/me/net.py:4 in f, code: x = x.sin()
        x_4: "f32[3]" = x_3.sin()
        return (x_4,)
"""


def test_the_line_that_became_most_nodes_is_found() -> None:
    assert most_repeated(GRAPH) == (3, "/home/me/net.py", 7)
    assert most_repeated("") == (0, "", 0)


def call(function: Any, *args: Any) -> Call:
    return Call(Region(function, Settings(), function), args, {})


def test_a_step_is_timed_by_its_fastest_call() -> None:
    taken = step_time(torch.sin, call(torch.sin, torch.ones(1)), seconds=0.01)
    assert taken is not None
    assert 0 < taken < 0.1


def test_a_step_that_cannot_be_repeated_has_no_time() -> None:
    assert step_time(lambda x: 1 / 0, call(torch.sin, torch.ones(1)), seconds=0.01) is None


# --- the judge ------------------------------------------------------------------------------------


def returned(path: Path, value: Any, group: str = "output", name: str = "output") -> None:
    leaf = capture.leaf_record(name, value, group)
    capture.save({"status": "returned", "leaves": [leaf]}, str(path))


def raised(path: Path, error: BaseException) -> None:
    capture.save({"status": "raised", "exception": exceptions.describe(error), "leaves": []}, str(path))


@pytest.fixture
def eager(tmp_path: Path) -> Path:
    """The folder of eager references, in which eager returned 1."""
    folder = tmp_path / "truth"
    folder.mkdir()
    returned(folder / "eager.pt", torch.ones(1))
    return folder


def judged(eager: Path) -> dict[str, Any]:
    return judge.judge(str(eager), str(eager.parent / "0.pt"))


@pytest.mark.parametrize(("value", "differences"), [(torch.ones(1), 0), (torch.zeros(1), 1)])
def test_two_results_are_compared(eager: Path, value: torch.Tensor, differences: int) -> None:
    returned(eager.parent / "0.pt", value)
    reply = judged(eager)
    assert (reply["verdict"], len(reply["differences"])) == ("compared", differences)


def test_other_eager_runs_are_evidence(eager: Path) -> None:
    returned(eager.parent / "0.pt", torch.ones(1) * 1.01)
    returned(eager / "again.pt", torch.ones(1) * 1.02)
    reply = judged(eager)
    assert (reply["flavours"], reply["repeats"]) == (["again"], False)
    assert reply["differences"][0]["noise"]


def test_what_only_compiled_raises_is_raised(eager: Path) -> None:
    raised(eager.parent / "0.pt", RuntimeError("boom"))
    reply = judged(eager)
    assert (reply["verdict"], reply["exception"]["message"]) == ("raised", "boom")


def test_what_only_eager_raises_is_missing(eager: Path) -> None:
    raised(eager / "eager.pt", IndexError("out of range"))
    returned(eager.parent / "0.pt", torch.ones(1))
    assert judged(eager)["verdict"] == "missing-exception"


def test_what_both_raise_is_eager_s(eager: Path) -> None:
    raised(eager / "eager.pt", IndexError("out of range"))
    raised(eager.parent / "0.pt", RuntimeError("index out of bounds"))
    reply = judged(eager)
    assert (reply["verdict"], reply["exception"]["type"]) == ("both-raised", "builtins.IndexError")


def test_a_backward_is_compared_where_both_ran_one(eager: Path) -> None:
    returned(eager.parent / "0.pt", torch.ones(1))
    returned(Path(grad_path(str(eager / "eager.pt"))), torch.ones(1), "grad", "grad[args[0]]")
    assert "backward" not in judged(eager)
    returned(Path(grad_path(str(eager.parent / "0.pt"))), torch.zeros(1), "grad", "grad[args[0]]")
    reply = judged(eager)
    assert (reply["backward"], [d["aspect"] for d in reply["differences"]]) == (True, ["grad"])


def test_a_backward_that_only_compiled_cannot_run_is_raised(eager: Path) -> None:
    returned(eager.parent / "0.pt", torch.ones(1))
    returned(Path(grad_path(str(eager / "eager.pt"))), torch.ones(1), "grad", "grad[args[0]]")
    raised(Path(grad_path(str(eager.parent / "0.pt"))), RuntimeError("no backward"))
    assert judged(eager)["backward_verdict"] == "raised"


def test_without_a_record_there_is_no_verdict(eager: Path) -> None:
    assert judged(eager)["verdict"] == "no-record"
    (eager / "eager.pt").unlink()
    assert judged(eager)["verdict"] == "no-reference"


def test_half_a_record_is_none(eager: Path) -> None:
    returned(eager.parent / "0.pt", torch.ones(1))
    data = (eager.parent / "0.pt").read_bytes()
    (eager.parent / "0.pt").write_bytes(data[: len(data) // 2])
    assert judged(eager)["verdict"] == "no-record"


LOOPS = """
def f(x):
    for i in range(3):
        while i:
            x = x + 1
        x = x * 2
    return x
"""


@pytest.mark.parametrize(("line", "loop"), [(5, 4), (6, 3), (7, 7), (3, 3)])
def test_the_loop_around_a_line_is_the_innermost_one(line: int, loop: int, tmp_path: Path) -> None:
    file = tmp_path / "loops.py"
    file.write_text(LOOPS)
    assert loop_around(str(file), line) == loop


def test_a_file_that_cannot_be_read_has_no_loops(tmp_path: Path) -> None:
    assert loop_around("", 3) == 3
    (tmp_path / "bad.py").write_text("def f(:")
    assert loop_around(str(tmp_path / "bad.py"), 3) == 3


def record(**metadata: Any) -> logging.LogRecord:
    made = logging.LogRecord("torch.__trace", logging.DEBUG, "", 0, "", (), None)
    made.metadata = metadata
    return made


def test_the_program_s_own_line_above_a_frame_of_torch_s_is_kept() -> None:
    observer = Observer()
    inside = f"{torch.__path__[0]}/optim/adam.py"
    for number, name in enumerate(("/home/me/train.py", inside)):
        observer.emit(record(str=[name, number]))
    stack = [
        {"line": 14, "name": "update", "filename": 0},
        {"line": 214, "name": "step", "filename": 1},
    ]
    observer.emit(record(dynamo_start={"stack": stack}, frame_id=2))
    assert [(n["function"], n["user"]) for n in observer.notes] == [("step", ("/home/me/train.py", 14))]
