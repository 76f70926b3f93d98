"""The published JSON: valid, complete, and as the schema says."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from torchtriage.model import diagnosis as model
from torchtriage.model import outcome
from torchtriage.report import jsonout

from . import samples
from .checker import problems

SCHEMA = jsonout.schema()
VALUES = {
    "cell": model.Cell, "region": model.Region, "program": model.Program, "symptom": model.Symptom,
    "culprit": model.Culprit, "workaround": model.Workaround, "environment": model.Environment,
    "difference": outcome.Difference, "exception": outcome.ExceptionInfo,
    "graph_break": outcome.GraphBreak, "recompile": outcome.Recompile,
}  # fmt: skip


@pytest.mark.parametrize("sample", samples.SAMPLES)
def test_every_sample_is_as_the_schema_says(sample: str) -> None:
    plain = json.loads(jsonout.render(samples.SAMPLES[sample]()), parse_constant=pytest.fail)
    assert problems(plain, SCHEMA, SCHEMA) == []


@pytest.mark.parametrize("sample", samples.SAMPLES)
def test_the_jsonschema_package_agrees(sample: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(jsonout.render(samples.SAMPLES[sample]())))


@pytest.mark.parametrize("name", VALUES)
def test_the_schema_has_every_field_of_the_model(name: str) -> None:
    assert set(SCHEMA["$defs"][name]["properties"]) == {f.name for f in dataclasses.fields(VALUES[name])}


def test_the_schema_has_every_field_of_the_diagnosis() -> None:
    assert set(SCHEMA["properties"]) == set(samples.nothing().to_json())
    assert SCHEMA["properties"]["schema_version"]["const"] == model.SCHEMA_VERSION


def test_everything_that_is_published_is_required_and_nothing_else_is_allowed() -> None:
    for part in [SCHEMA, *(SCHEMA["$defs"][name] for name in VALUES)]:
        assert set(part["required"]) == set(part["properties"])
        assert part["additionalProperties"] is False


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("kind", "maybe"),
        ("schema_version", 0),
        ("trials", -1),
        ("surprise", 1),
        ("matrix", {"eager": {"None": ""}}),
    ],
)
def test_the_schema_refuses_what_is_wrong(where: str, value: object) -> None:
    plain = {**json.loads(jsonout.render(samples.wrong_value())), where: value}
    assert problems(plain, SCHEMA, SCHEMA)


def test_the_words_of_the_issue_are_there() -> None:
    plain = json.loads(jsonout.render(samples.wrong_value()))
    assert plain["kind"] == "bug" and plain["symptoms"] == ["value"]
    assert plain["matrix"]["inductor"] == {
        "None": "differs:value",
        "True": "differs:value",
        "False": "differs:value",
    }
    assert plain["first_failing_layer"] == "inductor" and plain["monotone"] is True
    assert plain["operator"] == "aten.ldexp" and plain["line"] == 88
    assert plain["workarounds"][0]["step_time_ratio"] == 1.02
    assert plain["exit_status"] == 1


def test_floats_that_json_cannot_hold_become_strings() -> None:
    nan, inf = math.nan, math.inf
    d = samples.diagnosis(
        seconds=nan,
        workarounds=(
            model.Workaround("x", ("x",), "same", step_time_ratio=-inf, variant={"limit": inf, "n": 2**70}),
        ),
    )
    text = jsonout.render(d)
    plain = json.loads(text, parse_constant=pytest.fail)
    assert plain["seconds"] == "nan"
    assert plain["workarounds"][0]["step_time_ratio"] == "-inf"
    assert plain["workarounds"][0]["variant"] == {"limit": "inf", "n": str(2**70)}
    assert problems(plain, SCHEMA, SCHEMA) == []


def test_without_orjson_the_same_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = jsonout.render(samples.hostile())
    monkeypatch.setattr(jsonout, "orjson", None)
    assert json.loads(jsonout.render(samples.hostile())) == json.loads(fast)


def test_keys_are_sorted_and_the_text_ends_with_a_line_end() -> None:
    text = jsonout.render(samples.nothing())
    assert list(json.loads(text)) == sorted(json.loads(text))
    assert text.endswith("}\n") and '\n  "cells": {' in text
