"""The runner with a real torch: what it sees of compiled calls, counts and deaths. Nothing is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchtriage.bisect.judge import Observed
from torchtriage.bisect.trial import Question, Runner, Target

pytestmark = pytest.mark.e2e
HEAD = """
import os, signal, torch
def wrong(gm, inputs):
    return lambda *a: tuple(o * 2 if isinstance(o, torch.Tensor) else o for o in gm(*a))
"""


def run(folder: Path, program: str, question: Question = Question(), kind: str = "script") -> Observed:  # noqa: B008
    (folder / "prog.py").write_text(HEAD + program)
    name = {"callable": f"{folder / 'prog.py'}:main", "pytest": f"{folder / 'prog.py'}::test_it"}.get(kind)
    runner = Runner(Target(kind, name or str(folder / "prog.py")), folder, 120.0)
    return runner.run(Path(sys.executable), "here", question)


WATCH = Question(watch=True)


SAME = """
torch.compile(lambda x: x + 1, backend='eager')(torch.ones(3))
torch.compile(lambda x: torch.dropout(x, 0.5, True), backend='eager')(torch.ones(64))
"""
WRONG = """
def late(gm, i): return lambda *a: tuple(o.double() for o in gm(*a))
torch.compile(lambda x: x + 1, backend=wrong)(torch.ones(3))
torch.compile(lambda x: (x, x + 1), backend=late)(torch.ones(3))
"""
BACKWARD = """
m = torch.nn.Linear(2, 2)
torch.compile(m, backend=wrong)(torch.ones(1, 2)).sum().backward()
assert m.weight.grad is not None
"""


@pytest.mark.parametrize(
    ("program", "differences"),
    [
        (SAME, ()),
        (WRONG, ("value at output", "dtype at output[1]")),
        (
            BACKWARD,
            ("value at output", "gradient at gradient of self.weight", "gradient at gradient of self.bias"),
        ),
    ],
    ids=["the same, random numbers too", "value and dtype", "gradients"],
)
def test_compiled_calls_are_compared_with_eager_ones(
    tmp_path: Path, program: str, differences: tuple[str, ...]
) -> None:
    observed = run(tmp_path, program, WATCH)
    assert observed.kind == "ok", observed.tail
    assert observed.differences == differences


def test_comparing_does_not_change_what_the_program_sees(tmp_path: Path) -> None:
    program = """
class Count(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0
    def forward(self, x):
        self.seen += 1
        self.calls += 1
        return x * self.seen
torch.manual_seed(0)
before = torch.get_rng_state()
m = Count()
c = torch.compile(m, backend="eager")
x = torch.ones(2, requires_grad=True) * 3
for n in range(3):
    assert c(x)[0].item() == 3 * (n + 1)
c(x).sum().backward()
assert (m.seen.item(), m.calls) == (4, 4), (m.seen, m.calls)
"""
    observed = run(tmp_path, program, WATCH)
    assert (observed.kind, observed.differences) == ("ok", ()), observed.tail


def test_graph_breaks_recompiles_steps_and_memory_are_counted(tmp_path: Path) -> None:
    program = """
@torch.compile(backend="eager", dynamic=False)
def f(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2
for n in (3, 4, 5, 5, 5):
    f(torch.ones(n))
"""
    observed = run(tmp_path, program)
    assert observed.graph_breaks == 3  # one in each compilation of the first part
    assert observed.recompiles == 4  # two frames, each for two further shapes
    assert len(observed.steps) >= 1
    assert observed.compile_seconds is not None and observed.compile_seconds > 0
    assert observed.memory is not None and observed.memory > 1 << 20
    assert observed.facts["packages"]["torch"]


def test_an_exception_is_told_by_its_cause_and_the_frames_of_torch(tmp_path: Path) -> None:
    program = "def bad(gm, i): raise ValueError('no lowering 7')\ntorch.compile(lambda x: x + 1, backend=bad)(torch.ones(2))"
    observed = run(tmp_path, program)
    assert observed.signature is not None
    assert (observed.kind, observed.signature.type, observed.signature.message) == (
        "raised",
        "ValueError",
        "no lowering N",
    )
    assert all(frame.startswith("torch/") for frame in observed.signature.frames)
    assert observed.signature.frames


@pytest.mark.parametrize(
    ("program", "kind", "status"),
    [("os.kill(os.getpid(), signal.SIGFPE)", "killed", -8), ("import sys; sys.exit(3)", "exit", 3)],
)
def test_a_death_and_an_exit_are_told(tmp_path: Path, program: str, kind: str, status: int) -> None:
    observed = run(tmp_path, program)
    assert (observed.kind, observed.status) == (kind, status)


def test_callables_and_tests_are_targets_too(tmp_path: Path) -> None:
    assert (
        run(tmp_path, "def main(): assert False, 'in main'", kind="callable").signature.message == "in main"
    )  # type: ignore[union-attr]
    failing = run(tmp_path, "def test_it(): assert 1 == 2", kind="pytest")
    assert failing.signature is not None and failing.signature.type == "AssertionError"
    assert run(tmp_path, "def test_other(): pass", kind="pytest").kind == "unusable"


def test_configs_are_set_and_read(tmp_path: Path) -> None:
    asked = Question(kind="config", patches={"torch._dynamo.config": {"recompile_limit": 3}})
    extra = run(tmp_path, "", asked).extra
    assert extra["configs"]["torch._dynamo.config"]["recompile_limit"] == 3
    assert extra["packages"]["torch"]
    assert len(extra["tables"]["lowering"]["aten.add.Tensor"]) == 12


def test_the_operators_of_a_program_are_listed(tmp_path: Path) -> None:
    found = run(tmp_path, "torch.compile(lambda x: x + 1)(torch.ones(2))", Question(kind="operators"))
    assert "aten.add.Tensor" in found.extra["operators"]
