"""The line grammar: what is written is read back; whatever else is there is told, and never raises."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_writing import line, needs_real, real_logs, record

from torchtriage.trace.records import Problem, Record, read_records, split_spans


def read(data: bytes, size: int = 1 << 20) -> tuple[list[Record], list[Problem]]:
    items = list(read_records(data[i : i + size] for i in range(0, len(data), size)))
    return [i for i in items if isinstance(i, Record)], [i for i in items if isinstance(i, Problem)]


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda s: s not in ("has_payload", "stack")
)
payloads = st.none() | st.text(st.characters(codec="utf-8"), max_size=60)


@given(
    st.lists(st.tuples(st.sampled_from(["artifact", "new_kind", "str"]), names, payloads), max_size=8),
    st.integers(1, 50),
)
@settings(max_examples=150, deadline=None)
def test_what_was_written_is_read_back_whatever_the_chunks(
    rows: list[tuple[str, str, str | None]], size: int
) -> None:
    data = b"".join(record(kind, {"name": name}, payload) for kind, name, payload in rows)
    records, problems = read(data, size)
    assert problems == []
    assert [(r.kind, r.data[r.kind]["name"], r.payload) for r in records] == [
        (kind, name, None if payload is None else payload.encode()) for kind, name, payload in rows
    ]
    assert b"".join(data[r.offset : r.offset + r.length] + b"\n" for r in records) == data


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    read(data)
    read(b"V1129 11:03:40.509000 1 a.py:1] " + data)
    read(record("artifact", {"name": "x"}, "p") + data)


@given(
    st.lists(
        st.sampled_from(
            [b"V1129 ", b"\n", b"\t", b"V", b"1", b'{"a": 1}', b"11:03:40.5 1 a.py:1] ", b"\xff"]
        ),
        max_size=30,
    )
)
@settings(max_examples=200, deadline=None)
def test_chunks_do_not_change_what_is_read(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert read(data, 1) == read(data, 3) == read(data)


@given(st.binary(max_size=400), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_spans_lose_no_byte(data: bytes, size: int) -> None:
    spans = list(split_spans(data[i : i + size] for i in range(0, len(data), size)))
    for offset, span, _ in spans:
        assert data[offset : offset + len(span)] == span
    assert sum(len(span) for _, span, _ in spans) + len(spans) >= len(data)


def test_a_line_from_elsewhere_is_told_and_costs_no_record() -> None:
    body = record("artifact", {"name": "a"}, "one\ntwo")
    cut = body.rindex(b"\ttwo")
    records, problems = read(body[:cut] + b"stray print\n" + body[cut:] + record("x"))
    assert [r.kind for r in records] == ["artifact", "x"]
    assert records[0].payload == b"one\ntwo"
    assert records[0].intact
    assert [(p.reason, p.offset, p.length) for p in problems] == [("noise", cut, 11)]


def test_a_wrong_hash_keeps_the_payload() -> None:
    data = record("artifact", {"name": "a"}, "one").replace(b"\tone", b"\tONE")
    records, problems = read(data + record("x"))
    assert records[0].payload == b"ONE"
    assert not records[0].intact
    assert [p.reason for p in problems] == ["md5"]


def test_a_file_cut_inside_a_payload_is_told_as_truncated() -> None:
    records, problems = read(record("artifact", {"name": "a"}, "one\ntwo")[:-3])
    assert records[0].payload == b"one\nt"
    assert [p.reason for p in problems] == ["truncated"]


def test_a_file_cut_inside_a_header_is_told_as_truncated() -> None:
    records, problems = read(record("x") + record("artifact", {"name": "a"})[:60])
    assert len(records) == 1
    assert [p.reason for p in problems] == ["truncated"]


def test_a_record_that_another_writer_cut_off_does_not_take_the_other_with_it() -> None:
    whole = record("artifact", {"name": "b"}, "payload")
    records, problems = read(record("artifact", {"name": "a"})[:50] + whole)
    assert [(r.data["artifact"]["name"], r.payload) for r in records] == [("b", b"payload")]
    assert [(p.offset, p.length) for p in problems] == [(0, 50)]


def test_a_print_without_line_end_does_not_take_the_next_record_with_it() -> None:
    first, second = record("artifact", {"name": "a"}, "one"), record("artifact", {"name": "b"}, "two")
    records, problems = read(first + b"loss 0.1" + second)
    assert [r.payload for r in records] == [b"one", b"two"]
    assert [(p.reason, p.offset, p.length) for p in problems] == [("noise", len(first), 8)]


def test_thousands_of_cut_off_records_in_one_line_are_all_told() -> None:
    records, problems = read(record("artifact", {"name": "a"})[:60] * 20_000 + record("x"))
    assert [r.kind for r in records] == ["x"]
    assert len(problems) == 20_000


def test_windows_line_ends_are_understood() -> None:
    records, problems = read(record("artifact", {"name": "a"}, "one\ntwo").replace(b"\n", b"\r\n"))
    assert records[0].payload == b"one\ntwo"
    assert problems == []


def test_odd_numbers_and_bytes_in_a_header_cost_no_record() -> None:
    odd = line({"metrics": {"x": 1}}).replace(b'"x": 1', b'"x": NaN, "y": "\xff"')
    records, problems = read(odd)
    assert records[0].data["metrics"]["y"] == "\ufffd"
    assert [p.reason for p in problems] == ["utf8"]


@pytest.mark.parametrize(
    "head", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 100_000, b"null", b"[1]", b'"V1129"', b"{}"]
)
def test_json_that_is_no_object_is_a_problem(head: bytes) -> None:
    records, problems = read(b"V1129 11:03:40.509000 1 a.py:1] " + head + b"\n" + record("x"))
    assert [r.kind for r in records] == ["x"]
    assert len(problems) == 1


def test_a_very_long_line_is_read() -> None:
    records, problems = read(record("artifact", {"name": "a"}, "x" * (20 << 20)) + record("x"), 4 << 20)
    assert len(records) == 2
    assert problems == []


def test_text_that_looks_like_a_header_inside_a_payload_is_payload() -> None:
    text = "V1129 11:03:40.509000 1 a.py:1] {}"
    records, problems = read(record("artifact", {"name": "a"}, text))
    assert records[0].payload == text.encode()
    assert problems == []


@needs_real
@pytest.mark.parametrize("path", real_logs(), ids=lambda p: p.name)
def test_mutated_real_traces_never_raise(path: object) -> None:
    data = path.read_bytes()[:400_000]  # type: ignore[attr-defined]
    chance = random.Random(len(data))
    for _ in range(6):
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 40)):
            at = chance.randrange(len(broken))
            match chance.randrange(4):
                case 0:
                    broken[at] = chance.randrange(256)
                case 1:
                    del broken[at : at + chance.randrange(1, 2000)]
                case 2:
                    broken[at:at] = chance.randbytes(chance.randrange(1, 200))
                case _:
                    broken[at:at] = b"\n"
        records, problems = read(bytes(broken), 1 << 16)
        assert records
        assert all(0 <= p.offset <= len(broken) for p in problems)
