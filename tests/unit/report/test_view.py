"""The sentences, orders and groups that all renderers share."""

from __future__ import annotations

import math

import pytest

from torchtriage.model.diagnosis import Culprit, Symptom, Workaround
from torchtriage.model.outcome import Difference, ExceptionInfo
from torchtriage.report import text, view

from . import samples


@pytest.mark.parametrize(
    ("word", "tone"),
    [
        ("same", "good"),
        ("differs:value+grad", "bad"),
        ("differs:graph-break", "count"),
        ("differs:recompiles+graph-break", "count"),
        ("differs:value+recompiles", "bad"),
        ("raises:InductorError", "bad"),
        ("missing-exception", "bad"),
        ("killed:SIGFPE", "bad"),
        ("timeout", "bad"),
        ("inconclusive", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_cell_is_read_in_one_of_four_ways(word: str, tone: str) -> None:
    assert view.tone(word) == tone


@pytest.mark.parametrize(
    ("ratio", "against", "said"),
    [
        (1.017, "own", "step time x1.02"),
        (250.4, "eager", "step time x250 of eager"),
        (None, "own", ""),
        (math.nan, "own", ""),
        (math.inf, "own", ""),
    ],
)
def test_a_step_time_is_said_only_where_it_was_measured(ratio: float | None, against: str, said: str) -> None:
    w = Workaround("x", ("x",), "same", step_time_ratio=ratio, ratio_against=against)
    assert view.ratio(w) == said
    assert view.ran(w) == ("ran: same, " + said if said else "ran: same")


@pytest.mark.parametrize(
    ("symptom", "said"),
    [
        (Symptom(("value",), "f", "a.py", 3, 0, "output 0 differs"), "f (a.py:3), call 0: output 0 differs"),
        (
            Symptom(("value",), "f", "a.py", 3, 0, "f (a.py:3): output 0 differs"),
            "f (a.py:3): output 0 differs",
        ),
        (Symptom(("value",), sentence="output 0 differs"), "output 0 differs"),
        (Symptom(("timeout",), "f"), "f: a time limit that was passed"),
        (Symptom(("exception",), exception=ExceptionInfo("E", "no\nmore")), "raises E: no …"),
        (
            Symptom(
                ("grad",),
                differences=(
                    Difference(0, "a", "value", "by 1e-9", noise=True),
                    Difference(0, "grad[w]", "grad", "by 1"),
                ),
            ),
            "grad[w], grad: by 1",
        ),
    ],
)
def test_a_symptom_has_a_sentence_whatever_is_known_of_it(symptom: Symptom, said: str) -> None:
    assert view.symptom_line(symptom) == said


@pytest.mark.parametrize(
    ("culprit", "said"),
    [
        (None, ""),
        (
            Culprit("lowering", "lowering 14 of 23", "aten.ldexp", "m.py", 8),
            "lowering 14 of 23 (aten.ldexp), from m.py:8",
        ),
        (Culprit("lowering", "14 of 23"), "lowering · 14 of 23"),
        (Culprit(operator="aten.ldexp"), "aten.ldexp"),
        (Culprit(file="m.py", line=8), "m.py:8"),
    ],
)
def test_a_culprit_says_nothing_twice(culprit: Culprit | None, said: str) -> None:
    assert view.culprit_line(culprit) == said


def test_words_are_put_as_a_reader_would_put_them() -> None:
    assert view.symptom_words(("value", "grad")) == "wrong values and wrong gradients"
    assert view.symptom_words(("killed:SIGFPE",)) == "a process that was killed (SIGFPE)"
    assert view.symptom_words(("unheard-of",)) == "unheard-of"
    assert view.symptom_words(("raises:X",)) == "raises:X"


def test_backends_come_in_the_order_of_the_layers_and_others_last() -> None:
    d = samples.diagnosis(matrix={"mine": {}, "inductor": {}, "eager": {}})
    assert [backend for backend, _ in view.rows(d)] == ["eager", "inductor", "mine"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0123, "12 ms"), (1.24, "1.2 s"), (41.5, "42 s"), (185, "3 min 5 s"), (math.nan, "?")],
)
def test_durations_are_short(seconds: float, said: str) -> None:
    assert view.seconds(seconds) == said


def test_control_sequences_go_and_other_controls_are_made_visible() -> None:
    assert text.clean("\x1b[1;31mred\x1b[0m\x1b]8;;http://x\x07link\x1b]8;;\x1b\\") == "redlink"
    assert text.clean("a\r\nb\tc\x00\u202e\ud800") == "a\nb\tc\\x00\\u202e\\ud800"
    assert text.clean("日本語 é 👩‍💻 ½ ∑") == "日本語 é 👩‍💻 ½ ∑"


def test_long_texts_keep_both_ends() -> None:
    assert text.clip_middle("a" * 50 + "b" * 50, 10) == "aaaaa\n... 90 characters left out ...\nbbbbb"
    shown = text.trimmed("\n".join(str(i) for i in range(100)), head=2, tail=3).splitlines()
    assert shown == ["0", "1", "... 95 lines left out ...", "97", "98", "99"]
    assert text.first_line("\n\n  a  b \n c") == "a b …"


def test_single_backticks_mark_code_and_others_do_not() -> None:
    assert text.spans("set `x` on") == [(False, "set "), (True, "x"), (False, " on")]
    assert text.spans("a ``` b ` c") == [(False, "a ``` b ` c")]
