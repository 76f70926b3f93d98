"""The key of a request: the same for the same question, another for every other."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.lab.request import ALL_FLAVOURS, Request
from torchtriage.model.variant import DEBUG_BACKENDS, OWN, Limit, Variant

switches = st.lists(
    st.tuples(st.sampled_from(("a", "b")), st.sampled_from((True, False, "on", None))), max_size=2
)
variants = st.builds(
    Variant,
    backend=st.sampled_from((OWN, *DEBUG_BACKENDS)),
    dynamic=st.sampled_from((OWN, None, True, False)),
    fullgraph=st.sampled_from((OWN, True, False)),
    switches=switches.map(tuple),
    limit=st.none() | st.builds(Limit, st.just("inductor"), st.just("lowerings"), st.integers(0, 2)),
    caches=st.booleans(),
)
requests = st.builds(
    Request,
    variant=variants,
    start=st.none() | st.integers(0, 2),
    stop=st.none() | st.integers(0, 2),
    compare=st.integers(7, 9),
    settled=st.lists(st.integers(0, 2), max_size=2).map(tuple),
    flavours=st.sampled_from((("eager",), ALL_FLAVOURS)),
    observe=st.booleans(),
    seconds=st.none() | st.just(60.0),
    repeat=st.integers(0, 2),
)
CHANGES: list[dict[str, Any]] = [
    {"variant": Variant(backend="eager")},
    {"start": 0},
    {"stop": 0},
    {"compare": 33},
    {"settled": (0,)},
    {"flavours": ALL_FLAVOURS},
    {"observe": True},
    {"operations": True},
    {"time_step": True},
    {"backward": False},
    {"only": "f@a.py:1"},
    {"seconds": 60.0},
    {"fresh_store": True},
    {"repeat": 1},
]


@settings(max_examples=200, deadline=None)
@given(requests, requests)
def test_two_requests_have_one_key_if_and_only_if_they_are_equal(a: Request, b: Request) -> None:
    assert (a.key() == b.key()) == (a == b)


@settings(max_examples=30, deadline=None)
@given(requests)
def test_a_key_stands_for_the_question_and_not_for_the_object(request: Request) -> None:
    again = Request(**{f.name: getattr(request, f.name) for f in dataclasses.fields(request)})
    assert again.key() == request.key()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_every_field_is_part_of_the_key(change: dict[str, Any]) -> None:
    assert dataclasses.replace(Request(), **change).key() != Request().key()


def test_the_changes_above_are_all_fields() -> None:
    assert {name for change in CHANGES for name in change} == {f.name for f in dataclasses.fields(Request)}


def test_a_request_is_json() -> None:
    plain = json.loads(json.dumps(Request(Variant(dynamic=None), start=0, flavours=ALL_FLAVOURS).to_json()))
    assert plain == {"variant": {"dynamic": None}, "start": 0, "flavours": list(ALL_FLAVOURS)}
