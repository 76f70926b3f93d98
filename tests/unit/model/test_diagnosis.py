"""The diagnosis as JSON, and the exit status that it stands for."""

from __future__ import annotations

import json

import pytest

from torchtriage.model.diagnosis import SCHEMA_VERSION, Cell, Culprit, Diagnosis, Kind, Program
from torchtriage.model.outcome import ExceptionInfo

FAILED = Program("train.py", eager_exception=ExceptionInfo("ValueError", "no such data set"))
FINE = Program("train.py")


@pytest.mark.parametrize(
    ("kind", "program", "status"),
    [
        ("none", FINE, 0),
        ("noise", FINE, 0),
        ("none", FAILED, 2),
        ("bug", FINE, 1),
        ("bug", FAILED, 1),
        ("by-design", FINE, 1),
        ("user-error", FINE, 1),
        ("inconclusive", FINE, 3),
        ("inconclusive", FAILED, 3),
    ],
)
def test_the_exit_status_says_what_was_found(kind: Kind, program: Program, status: int) -> None:
    assert Diagnosis(kind, (), program).exit_status == status


def test_json_has_words_in_the_matrix_and_the_rest_in_cells() -> None:
    found = Diagnosis(
        "bug", ("value",), FINE, matrix={"inductor": {"None": Cell("differs:value", graphs=2, captured=9)}}
    )
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["schema_version"] == SCHEMA_VERSION
    assert plain["matrix"] == {"inductor": {"None": "differs:value"}}
    assert plain["cells"]["inductor"]["None"]["captured"] == 9
    assert plain["exit_status"] == 1


def test_json_names_operator_and_line_only_where_they_are_known() -> None:
    known = Diagnosis("bug", (), FINE, culprit=Culprit(operator="aten.ldexp.Tensor", line=8)).to_json()
    assert (known["operator"], known["line"]) == ("aten.ldexp.Tensor", 8)
    unknown = Diagnosis("bug", (), FINE).to_json()
    assert (unknown["operator"], unknown["line"]) == (None, None)
    assert Diagnosis("bug", (), FINE, culprit=Culprit()).to_json()["line"] is None
