"""What is asked of torch's internals, and what happens where they are not as expected."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchtriage.probe import compat, steps, switches
from torchtriage.probe.steps import StepLog


@pytest.mark.parametrize("version", ["2.8.0", "2.13.0+cpu", "2.14.0a0+git1234", "3.0"])
def test_a_torch_that_is_new_enough_will_do(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    compat.check_version()


@pytest.mark.parametrize("version", ["2.7.1+cu126", "1.13.1"])
def test_a_torch_that_is_too_old_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(compat.UnsupportedTorch, match=r"is too old: torchtriage needs 2\.8 or newer"):
        compat.check_version()


# --- steps ----------------------------------------------------------------------------------------


def test_steps_past_the_limit_are_switched_off_and_all_are_counted() -> None:
    log = StepLog("inductor", "post_grad_passes", 2)
    answers = [log("inductor", "post_grad_passes", lambda n=n: f"pass {n}") for n in range(4)]
    assert answers == [False, False, True, True]
    assert log.count == 4
    assert [(step["index"], step["name"]) for step in log.steps] == [
        (1, "pass 0"), (2, "pass 1"), (3, "pass 2"), (4, "pass 3"),
    ]  # fmt: skip


def test_steps_of_other_subsystems_stay_on_and_are_not_counted() -> None:
    log = StepLog("inductor", "lowerings", 0)
    assert log("inductor", "post_grad_passes") is False
    assert log("aot_eager_decomp_partition", "lowerings") is False
    assert (log.count, log.steps) == (0, [])


def test_notes_end_at_their_limit_and_counting_does_not() -> None:
    log = StepLog("inductor", "lowerings", 99, limit_of_notes=3)
    for _ in range(5):
        log("inductor", "lowerings")
    assert (log.count, len(log.steps)) == (5, 3)


def test_a_step_that_cannot_say_what_it_is_has_no_name() -> None:
    log = StepLog("inductor", "post_grad_passes", 99)
    assert log("inductor", "post_grad_passes", lambda: str(1 / 0)) is False
    assert log.steps == [{"index": 1, "name": ""}]


def test_a_decomposition_is_named_as_an_overload() -> None:
    overload = torch.ops.aten.ldexp.Tensor
    for text in (str(overload), repr(overload)):
        assert steps.describe_step("decomposition", lambda text=text: text)["name"] == "aten.ldexp.Tensor"


STACK = """  File "/home/me/train.py", line 30, in main
    net(x)
  File "/home/me/net.py", line 8, in forward
    return torch.ldexp(x, n)
  File "/venv/site-packages/torch/_refs/__init__.py", line 900, in ldexp
    return torch.mul(x, torch.pow(2.0, other))
"""


def test_the_line_of_a_step_is_the_innermost_one_outside_torch() -> None:
    assert steps.last_frame(STACK) == {
        "file": "/home/me/net.py",
        "line": 8,
        "code": "return torch.ldexp(x, n)",
    }


def test_a_stack_of_torch_s_alone_names_its_first_line() -> None:
    only = '  File "/venv/site-packages/torch/a.py", line 1, in f\n    x\n'
    assert steps.last_frame(only)["file"] == "/venv/site-packages/torch/a.py"
    assert steps.last_frame("") == {}


# --- switches -------------------------------------------------------------------------------------


@pytest.fixture
def simdlen() -> Any:
    from torch._inductor import config

    with config.patch({"cpp.simdlen": config.cpp.simdlen}):
        yield config


def test_a_switch_is_set_by_its_dotted_name(simdlen: Any) -> None:
    switches.set_switch("torch._inductor.config.cpp.simdlen", 1)
    assert simdlen.cpp.simdlen == 1


@pytest.mark.parametrize(
    "name",
    [
        "torch._inductor.config.nope",
        "torch._inductor.config.cpp.nope",
        "torch._dynamo.config.a.b",
        "os.path.sep",
    ],
)
def test_an_unknown_switch_is_an_error_and_never_a_new_attribute(name: str) -> None:
    with pytest.raises(AttributeError):
        switches.set_switch(name, 1)
    assert not switches.has_switch(name)


def test_a_switch_that_was_changed_is_told_with_its_default(simdlen: Any) -> None:
    name = "torch._inductor.config.cpp.simdlen"
    switches.set_switch(name, 1)
    assert switches.changed_configs()[name] == "1"
    assert switches.defaults_of_changed({name: "1", "torch._inductor.config.nope": "1"}) == {name: "None"}


def test_a_switch_that_was_set_to_its_default_is_not_told(simdlen: Any) -> None:
    switches.set_switch("torch._inductor.config.cpp.simdlen", None)
    assert "torch._inductor.config.cpp.simdlen" not in switches.changed_configs()


def test_switches_that_a_stage_turns_off_are_not_the_program_s() -> None:
    from torch._inductor import config

    with config.patch(fx_graph_cache=not config.fx_graph_cache):
        assert "torch._inductor.config.fx_graph_cache" not in switches.changed_configs()


# --- tensors and functions ------------------------------------------------------------------------


def test_tensors_that_share_memory_have_one_key() -> None:
    x = torch.ones(4)
    assert compat.storage_key(x) == compat.storage_key(x[1:]) is not None
    assert compat.storage_key(x) != compat.storage_key(x.clone())
    assert compat.storage_key(torch.empty(0)) is None


@pytest.mark.filterwarnings("error")
def test_a_gradient_is_read_without_a_warning() -> None:
    x = torch.ones(1, requires_grad=True)
    assert compat.grad_of(x * 2) is None
    x.grad = torch.ones(1)
    assert compat.grad_of(x) is x.grad


def test_nobody_watches_what_is_done_unwatched() -> None:
    calls: list[Any] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(1, requires_grad=True)
    with Watch(), compat.unwatched():
        calls.clear()
        y = x * 2
    assert calls == []
    assert not y.requires_grad


def add(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_what_was_compiled_is_found_below_torch_compile() -> None:
    module = torch.nn.Linear(1, 1)
    assert compat.uncompiled(torch.compile(add, backend="eager"))[0] is add
    assert compat.uncompiled(torch.compile(module, backend="eager"))[0] is module
    assert compat.uncompiled(add) == (add, {})


SETTINGS: dict[str, Any] = {"dynamic": True, "fullgraph": True}


def test_a_compiled_module_is_found_with_its_settings() -> None:
    found = compat.uncompiled(torch.compile(torch.nn.Linear(1, 1), **SETTINGS))[1]
    assert found == {**SETTINGS, "backend": "inductor"}


def test_a_compiled_function_is_found_with_its_settings() -> None:
    assert compat.uncompiled(torch.compile(add, **SETTINGS))[1] == {**SETTINGS, "backend": "inductor"}


def test_a_compiled_module_is_found_with_its_backend() -> None:
    assert (
        compat.uncompiled(torch.compile(torch.nn.Linear(1, 1), backend="aot_eager"))[1]["backend"]
        == "aot_eager"
    )


@pytest.mark.parametrize("given", [{"mode": "fast"}, {"options": {"level": 3}}, {}])
def test_a_backend_of_the_user_s_own_is_kept_with_what_it_is_given(given: dict[str, Any]) -> None:
    def backend(graph: Any, inputs: Any, **more: Any) -> Any:
        return graph

    found = compat.uncompiled(torch.compile(add, backend=backend, **given))[1]
    assert found == {"backend": backend, "fullgraph": False, **given}


def test_below_every_wrapper_is_the_user_s_function() -> None:
    assert compat.original_function(torch.compiler.disable(add)) is add
    assert compat.original_function(torch.compile(torch.compiler.disable(add), backend="eager")) is add
    assert compat.original_function(add) is add


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("L['fn'].4", "4"), ("L['self'].layers['0'].drop", "layers.0.drop"), ("L['fn']", "fn"),
        ("L['model'].body[2]", "model.body.2"), ("L['self']._modules['head']", "_modules.head"),
    ],
)  # fmt: skip
def test_the_path_of_a_module_reads_like_its_name(source: str, path: str) -> None:
    assert steps.module_path(source) == path


def test_what_a_program_registers_later_is_seen() -> None:
    from torch._inductor import decomposition

    operator, own = torch.ops.aten.bincount.default, lambda x: x
    assert operator not in decomposition.fast_random_decomps()  # torch keeps this table from now on
    decomposition.decompositions[operator] = own
    try:
        assert operator not in decomposition.fast_random_decomps()
        compat.forget_tables()
        assert decomposition.fast_random_decomps()[operator] is own
    finally:
        del decomposition.decompositions[operator]
        compat.forget_tables()
