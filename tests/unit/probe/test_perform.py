"""One call, run and written down; and work in a forked process."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from torchtriage.probe import capture
from torchtriage.probe.intercept import Region, Settings
from torchtriage.probe.perform import Call, grad_path, in_fork, roots_of

# --- a call ---------------------------------------------------------------------------------------


def call(function: Any, *args: Any, **kwargs: Any) -> Call:
    return Call(Region(function, Settings(), function), args, kwargs)


def leaves(path: Path) -> dict[tuple[str, str], Any]:
    return {(leaf["group"], leaf["path"]): leaf for leaf in capture.load(str(path))["leaves"]}


def test_what_a_call_returns_and_changes_is_written_down(tmp_path: Path) -> None:
    def function(x: torch.Tensor, by: int) -> torch.Tensor:
        x.mul_(by)
        return x + 1

    path = tmp_path / "0.pt"
    result = call(function, torch.ones(2), by=3).run(function, str(path))
    found = leaves(path)
    assert result.tolist() == [4.0, 4.0]
    assert found["output", "output"]["parts"][""].tolist() == [4.0, 4.0]
    assert found["state", "args[0]"]["parts"][""].tolist() == [3.0, 3.0]
    assert ("state", "kwargs['by']") not in found


def test_what_a_call_raises_is_written_down_and_raised(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x[7]

    path = tmp_path / "0.pt"
    with pytest.raises(IndexError):
        call(function, torch.ones(2)).run(function, str(path))
    record = capture.load(str(path))
    assert (record["status"], record["exception"]["type"]) == ("raised", "builtins.IndexError")


def test_an_output_that_cannot_be_written_down_is_returned_all_the_same(tmp_path: Path) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged)
    assert call(torch.sin, nested).run(lambda x: x, str(tmp_path / "0.pt")) is nested


def test_a_call_that_draws_random_numbers_says_so(tmp_path: Path) -> None:
    for function, drew in ((torch.nn.functional.dropout, True), (torch.sin, False)):
        call(function, torch.ones(2)).run(function, str(tmp_path / "0.pt"))
        assert capture.load(str(tmp_path / "0.pt"))["rng_used"] is drew


def test_an_output_that_is_an_input_is_named_after_it(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.t()

    call(function, torch.ones(2, 3)).run(function, str(tmp_path / "0.pt"))
    assert leaves(tmp_path / "0.pt")["output", "output"]["alias"] == "args[0]"


def backward(path: Path, function: Any, *args: Any) -> dict[str, Any]:
    """The gradients of one call, by name; empty where there was nothing to do."""
    one = call(function, *args)
    file = grad_path(str(path / "0.pt"))
    if not one.backward(one.run(function, str(path / "0.pt")), file):
        assert not os.path.exists(file)
        return {}
    return {name: leaf for (_, name), leaf in leaves(Path(file)).items()}


def triple(x: torch.Tensor, unused: Any = None) -> torch.Tensor:
    return 3 * x


def test_the_backward_of_a_call_is_written_down(tmp_path: Path) -> None:
    found = backward(tmp_path, triple, torch.ones(2, requires_grad=True))
    drawn = capture.cotangent("output", torch.ones(2), 0)
    torch.testing.assert_close(found["grad[args[0]]"]["parts"][""], 3 * drawn)


def test_an_input_that_does_not_count_has_no_gradient(tmp_path: Path) -> None:
    x, unused = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    assert backward(tmp_path, triple, x, unused)["grad[args[1]]"]["value"] is None


def test_a_backward_of_ours_touches_no_grad(tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    assert backward(tmp_path, triple, x)
    assert x.grad is None


def test_where_nothing_is_differentiable_there_is_no_backward(tmp_path: Path) -> None:
    assert backward(tmp_path, triple, torch.ones(2)) == {}
    assert backward(tmp_path, lambda x: x.detach(), torch.ones(2, requires_grad=True)) == {}
    with torch.no_grad():
        assert backward(tmp_path, triple, torch.ones(2, requires_grad=True)) == {}


def test_what_a_backward_raises_is_written_down(tmp_path: Path) -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            raise RuntimeError("no backward")

    one = call(Broken.apply, torch.ones(2, requires_grad=True))
    assert one.backward(Broken.apply(*one.args), str(tmp_path / "0.grad.pt"))
    record = capture.load(str(tmp_path / "0.grad.pt"))
    assert (record["status"], record["exception"]["message"]) == ("raised", "no backward")


def test_two_calls_that_start_alike_have_one_digest() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x

    first = call(function, torch.ones(2)).digest
    assert call(function, torch.ones(2)).digest == first
    assert call(function, torch.zeros(2)).digest != first


def test_a_module_is_walked_as_self_and_its_forward_as_fn() -> None:
    module = torch.nn.Linear(1, 1)
    roots = roots_of(Region(module, Settings(), module), (1,), {"b": 2})
    assert list(roots) == ["args[0]", "kwargs['b']", "self", "fn"]
    assert (roots["self"], roots["fn"]) == (module, torch.nn.Linear.forward)


# --- forks ----------------------------------------------------------------------------------------


def test_work_that_ends_well_leaves_nothing_to_say(tmp_path: Path) -> None:
    assert in_fork(lambda: (tmp_path / "done").touch(), 10.0) == ""
    assert (tmp_path / "done").exists()


def test_work_that_raises_has_failed(capfd: pytest.CaptureFixture[str]) -> None:
    assert in_fork(lambda: 1 / 0, 10.0) == "failed"
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.parametrize("leave", [lambda: os._exit(0), lambda: sys.exit(3)])
def test_work_that_leaves_ends_only_its_own_process(leave: Any) -> None:
    assert in_fork(leave, 10.0) in ("", "failed")


def test_work_that_is_killed_names_the_signal() -> None:
    assert in_fork(lambda: os.kill(os.getpid(), signal.SIGKILL), 10.0) == "SIGKILL"


def test_work_that_does_not_end_is_ended() -> None:
    begin = time.monotonic()
    assert in_fork(lambda: time.sleep(60), 0.2) == "timeout"
    assert time.monotonic() - begin < 30


def test_pythons_random_numbers_go_on_in_the_fork_as_they_would_have_here(tmp_path: Path) -> None:
    random.seed(7)
    in_fork(lambda: (tmp_path / "drawn").write_text(repr(random.random())), 10.0)
    assert (tmp_path / "drawn").read_text() == repr(random.random())


def test_what_the_work_changes_stays_in_the_fork() -> None:
    x = torch.ones(1)
    assert in_fork(lambda: x.add_(1), 10.0) == ""
    assert x.item() == 1.0
