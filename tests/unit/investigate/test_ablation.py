"""The matrix, the words of its cells, and what is read from them."""

from __future__ import annotations

import pytest

from torchtriage.investigate import ablation
from torchtriage.investigate.ablation import Counted
from torchtriage.model.outcome import Difference, Inconclusive, Killed, Measures, Outcome, Same, TimedOut
from torchtriage.model.variant import DEBUG_BACKENDS

from .fake import BREAK, SAME, FakeLab, backend_of, counted, dynamic_of, raised, wrong

COUNTS = Counted(recompiles=True, breaks=True)


def column(*words: str) -> dict[str, dict[str, str]]:
    return {backend: {"None": word} for backend, word in zip(DEBUG_BACKENDS, words, strict=True)}


def test_all_twelve_cells_are_asked_at_once() -> None:
    lab = FakeLab(
        lambda request: wrong() if (backend_of(request), dynamic_of(request)) == ("aot_eager", True) else SAME
    )
    table = ablation.matrix(lab)
    assert [len(question) for question in lab.asked] == [12]
    failing = [(b, d) for b, row in table.items() for d, outcome in row.items() if outcome != SAME]
    assert failing == [("aot_eager", "True")]


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (SAME, "same"),
        (wrong("value", noise=True), "within noise"),
        (wrong("value", "grad"), "differs:value+grad"),
        (raised(), "raises:InductorError"),
        (Killed(signal="SIGFPE"), "killed:SIGFPE"),
        (Inconclusive(), "inconclusive"),
        (counted(recompiles=2), "same"),
        (counted(recompiles=3), "differs:recompiles"),
        (counted(breaks=[BREAK]), "differs:graph-break"),
        (counted(recompiles=3, breaks=[BREAK]), "differs:recompiles+graph-break"),
        (counted(captured=0, breaks=[BREAK]), "same"),
        (counted(unimplemented=1), "differs:graph-break"),
    ],
)
def test_the_word_of_a_cell_when_counts_are_symptoms(outcome: Outcome, word: str) -> None:
    assert ablation.word(outcome, COUNTS) == word


def test_counts_are_no_words_where_they_are_not_symptoms() -> None:
    assert ablation.word(counted(recompiles=9, breaks=[BREAK])) == "same"


def test_a_slow_cell_counts_as_timed_out_where_compile_time_is_the_symptom() -> None:
    slow = Same(Measures(compile_seconds=ablation.SLOW_CELL + 1))
    assert ablation.word(slow, Counted(slow=True)) == "timeout"
    assert ablation.word(slow) == "same"


@pytest.mark.parametrize(
    ("words", "first", "monotone", "changes"),
    [
        (("same", "same", "same", "same"), None, True, False),
        (("same", "same", "same", "differs:value"), "inductor", True, False),
        (("same", "raises:E", "raises:E", "raises:E"), "aot_eager", True, False),
        (("same", "raises:E", "raises:E", "same"), "aot_eager", False, False),
        (("same", "raises:E", "differs:value", "differs:value"), "aot_eager", True, True),
        (("raises:E", "same", "same", "raises:F"), "eager", False, True),
        (("within noise", "inconclusive", "same", "timeout"), "inductor", True, False),
    ],
)
def test_what_a_column_says(words: tuple[str, ...], first: str | None, monotone: bool, changes: bool) -> None:
    table = column(*words)
    assert ablation.first_failing(table, "None") == first
    assert ablation.monotone(table, "None") is monotone
    assert ablation.changes_symptom(table, "None") is changes


def test_noise_is_found_where_it_is_looked_for() -> None:
    table = column("same", "within noise", "same", "within noise")
    assert ablation.first_failing(table, "None") is None
    assert ablation.first_failing(table, "None", noise=True) == "aot_eager"


def test_each_backend_stands_for_the_layer_that_it_adds() -> None:
    layers = [ablation.layer_of(backend) for backend in (None, *DEBUG_BACKENDS)]
    assert layers == ["none", "dynamo", "aot_autograd", "decomposition_partition", "inductor"]


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (wrong(call=2), "call 2: output differs from eager by 1"),
        (raised("a.b.E", "first line\nsecond"), "a.b.E: first line"),
        (raised("a.b.E", ""), ""),
        (Same(eager_exception=raised("IndexError", "out of range").exception), "IndexError: out of range"),
        (Inconclusive(reason="its keeper died"), "its keeper died"),
        (TimedOut(), ""),
        (
            Same(differences=(Difference(1, "output[0]", "value", "by 1", noise=True),)),
            "call 1: output[0] by 1",
        ),
    ],
)
def test_a_cell_has_one_line_of_detail(outcome: Outcome, said: str) -> None:
    assert ablation.detail(outcome) == said
