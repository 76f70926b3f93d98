"""An exception as plain data, whatever the exception does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from torchtriage.model.outcome import ExceptionInfo, exception_from_json
from torchtriage.probe import exceptions
from torchtriage.probe.exceptions import LIMIT, describe

USER = "/home/me/train.py"


def raised(source: str, file: str = USER, **names: Any) -> BaseException:
    """What a program of the user's raises."""
    try:
        exec(compile(source, file, "exec"), dict(names))
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


CHAINED = """
try:
    try:
        {}["a"]
    except KeyError as error:
        raise ValueError("no such key") from error
except ValueError as error:
    raise RuntimeError("cannot read") from error
"""


def test_a_chained_exception_is_described_from_outside_in() -> None:
    found = describe(raised(CHAINED))
    assert (found["type"], found["message"]) == ("builtins.RuntimeError", "cannot read")
    assert found["bases"] == ["RuntimeError", "Exception", "BaseException", "object"]
    assert found["chain"] == ["ValueError", "KeyError"]
    assert found["cause_message"] == "'a'"
    assert "During handling" in found["traceback"] or "direct cause" in found["traceback"]


def test_what_is_described_is_an_exception_of_the_model() -> None:
    found = exception_from_json(describe(raised("1 / 0")))
    assert isinstance(found, ExceptionInfo)
    assert set(describe(raised("1 / 0"))) <= {f.name for f in dataclasses.fields(ExceptionInfo)}


def test_a_context_that_was_suppressed_is_not_in_the_chain() -> None:
    found = describe(
        raised("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('x') from None")
    )
    assert found["chain"] == []


def test_the_place_is_the_innermost_line_of_the_user_s() -> None:
    source = "def f(x):\n    return x.sum(dim=9)\n\nf(torch.ones(2))"
    found = describe(raised(source, torch=torch))
    assert (found["user_file"], found["user_line"]) == (USER, 2)


def test_a_place_that_the_message_names_comes_before_that_of_the_traceback() -> None:
    message = f'from user code:\\n   File "{USER}", line 7, in forward\\n    return x.size'
    found = describe(raised(f"raise RuntimeError('''{message}''')", "/home/me/loop.py"))
    assert (found["user_file"], found["user_line"], found["user_code"]) == (USER, 7, "return x.size")


def test_frames_of_torch_are_named_from_torch_on() -> None:
    found = describe(raised("torch.nn.Linear(2, 2)(torch.ones(3))", torch=torch))
    assert found["torch_frames"][-1] == "torch/nn/modules/linear.py:forward"


@pytest.mark.parametrize(
    ("message", "category"),
    [
        ("Hint: This is likely to be a Dynamo bug.", "dynamo-bug"),
        ("Hint: Your code may result in an error when running in eager.", "user-error"),
        ("Hint: This graph break is fundamental - it is unlikely that Dynamo will", "fundamental"),
        ("no hint", ""),
    ],
)
def test_dynamo_s_own_word_is_kept(message: str, category: str) -> None:
    assert describe(RuntimeError(message))["category"] == category


def test_a_long_message_is_cut() -> None:
    assert len(describe(RuntimeError("x" * 10 * LIMIT))["message"]) == LIMIT


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Incomparable(Exception):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


class Strange(Exception):
    inner_exception = "not an exception"


def test_an_exception_that_cannot_be_printed_is_described() -> None:
    found = describe(Unprintable())
    assert found["message"] == "<the exception cannot be printed>"
    assert found["type"].endswith("Unprintable")


def test_an_exception_that_cannot_be_compared_is_described() -> None:
    error = raised(
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise Error('x') from e", Error=Incomparable
    )
    assert describe(error)["message"] == "x"


def test_an_exception_with_strange_attributes_is_described() -> None:
    assert describe(Strange("x"))["message"] == "x"


def test_exceptions_that_lead_to_each_other_end() -> None:
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert describe(one)["chain"] == ["ValueError"]


def test_a_traceback_is_shown_without_our_own_frames() -> None:
    assert f'File "{USER}"' in describe(raised("1 / 0"))["traceback"]
    ours = describe(raised("1 / 0", "/venv/site-packages/torchtriage/probe/perform.py"))
    assert "perform.py" not in ours["traceback"]


def test_a_program_in_a_folder_of_our_name_is_the_user_s() -> None:
    found = describe(raised("1 / 0", "/home/me/torchtriage/examples/rescale.py"))
    assert "rescale.py" in found["traceback"]


def test_what_inductor_wrote_is_not_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/me/.cache/torchtriage")
    assert exceptions.is_generated("/home/me/.cache/torchtriage/ab/cabc.py")
    assert exceptions.is_generated("/tmp/torchinductor_me/ab/cabc.py")
    assert not exceptions.is_generated("/home/me/train.py")
    assert exceptions.is_users("/home/me/train.py")
