"""The terminal summary: what it says for each kind, at several widths, piped and not."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from torchtriage.model.diagnosis import Diagnosis
from torchtriage.report import terminal

from . import samples


def shown(d: Diagnosis, width: int | None = None, colour: bool = False) -> str:
    """Piped where no width is given."""
    out = io.StringIO()
    system = "truecolor" if colour else None
    console = (
        Console(file=out)
        if width is None
        else Console(file=out, width=width, force_terminal=True, color_system=system)  # type: ignore[arg-type]
    )
    terminal.render(d, console)
    return out.getvalue()


def below(text: str, heading: str) -> str:
    """The lines of one heading."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"  {heading.ljust(13)}"))
    end = next((i for i in range(start + 1, len(lines)) if lines[i][2:3].strip()), len(lines))
    return "\n".join(line[15:] for line in lines[start:end])


def test_a_bug_is_told_from_program_to_report() -> None:
    text = shown(samples.wrong_value())
    assert below(text, "program") == "train.py --steps 3 · 2 compiled regions · 6 calls in 3 signatures"
    assert "Bug in inductor: wrong values." in below(text, "verdict")
    assert below(text, "symptom").splitlines() == [
        "Model.forward (train.py:42), call 1: output 0 differs from eager by 3.1e-1 at [0, 7]",
        "eager repeats itself exactly; `float64` says eager is right",
    ]
    assert below(text, "layer").startswith("inductor · lowering 14 of 23 (aten.ldexp), from model.py:88")
    assert below(text, "needs") == "float16 · second-call"
    assert "Only the backward" in below(text, "remark")
    assert below(text, "report") == "runs/train-20260711-101500/report.html · report.md · report.json"


def test_the_matrix_has_backends_as_rows_and_dynamic_as_columns() -> None:
    lines = below(shown(samples.wrong_value()), "ablation").splitlines()
    assert lines[0].split() == ["backend", "dynamic=None", "True", "False"]
    assert lines[1].split() == ["eager", "same", "same", "same"]
    assert lines[4].split() == ["inductor", "differs:value", "differs:value", "differs:value"]
    assert lines[6].startswith("mode (inductor) default differs:value · max-autotune differs:value")
    assert "reduce-overhead same (no CUDA, as default)" in lines[6]


def test_a_workaround_has_its_outcome_its_step_time_and_its_lines() -> None:
    lines = below(shown(samples.wrong_value()), "workaround").splitlines()
    assert lines[0].startswith("torch._inductor.config.emulate_precision_casts = True ")
    assert lines[0].endswith("ran: same, step time x1.02")
    assert lines[2].strip() == "Block.rescale = torch.compiler.disable(Block.rescale)"
    assert lines[3] == "2 changes tried that did not help"


def test_a_ratio_against_eager_says_so_and_one_not_measured_is_not_shown() -> None:
    lines = below(shown(samples.exception()), "workaround").splitlines()
    assert lines[0].endswith("ran: same, step time x0.98 of eager")
    assert lines[3].endswith("ran: same")


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("noise", ["Not a bug", "noise", "bfloat16 rounds", "source: https://docs.pytorch.org"]),
        ("by_design", ["Not a bug", "by design", "random numbers", "source: pytorch/pytorch#113169"]),
        ("user_error", ["in the program, not in the compiler", "out of range in eager"]),
        ("inconclusive", ["No verdict: the stage could not be started: no C++ compiler was found."]),
        ("fails_in_eager", ["fails in eager mode already"]),
    ],
)
def test_the_verdict_line_says_what_kind_it_is_and_why(sample: str, words: list[str]) -> None:
    verdict = below(shown(samples.SAMPLES[sample]()), "verdict")
    for word in words:
        assert word in verdict


def test_no_difference_says_what_was_compared() -> None:
    verdict = below(shown(samples.nothing()), "verdict")
    assert "No difference from eager was found." in verdict
    assert "2 compiled regions, 6 calls in 3 signatures" in verdict
    assert "12 cells of the matrix (4 backends)" in verdict
    assert "31 trials" in verdict


def test_an_exception_has_its_message_and_the_line_of_the_program() -> None:
    text = below(shown(samples.exception()), "symptom")
    assert "raises torch._dynamo.exc.InternalTorchDynamoError: AttributeError" in text
    assert "at model.py:121: return self.head(x).size" in text


def test_a_matrix_that_is_not_monotone_is_remarked_upon_once() -> None:
    assert shown(samples.exception()).count("not monotone") == 1


def test_breaks_and_recompiles_are_grouped_and_bounded() -> None:
    text = shown(samples.recompiles())
    breaks = below(text, "graph break").splitlines()
    assert breaks[0] == "3 x call to print …, at loop.py:9"
    assert breaks[-1] == "3 more graph breaks in the report"
    assert below(text, "recompile").startswith("8 x step: L['n'] == 0 (and 7 other reasons), at loop.py:8")
    assert "not run" in below(text, "ablation")


@pytest.mark.parametrize("sample", samples.SAMPLES)
def test_piped_output_has_no_escapes_and_does_not_depend_on_a_width(
    sample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    d = samples.SAMPLES[sample]()
    narrow = shown(d)
    monkeypatch.setenv("COLUMNS", "300")
    assert narrow == shown(d)
    assert "\x1b" not in narrow
    assert not any(line != line.rstrip() for line in narrow.splitlines())


@pytest.mark.parametrize("width", [100, 120])
@pytest.mark.parametrize("sample", [name for name in samples.SAMPLES if name != "hostile"])
def test_lines_fit_a_terminal_unless_one_word_does_not(sample: str, width: int) -> None:
    for line in shown(samples.SAMPLES[sample](), width).splitlines():
        assert len(line) <= width or " " not in line.strip()


def test_classes_too_long_for_the_table_are_numbered() -> None:
    text = below(shown(samples.exception(), 100), "ablation")
    assert "raises [1]" in text and "[1] raises:InternalTorchDynamoError" in text
    assert "[1]" not in shown(samples.exception(), 160)


def test_a_narrow_terminal_gets_a_line_for_each_backend() -> None:
    lines = below(shown(samples.nothing(), 60), "ablation").splitlines()
    assert lines[:2] == ["eager", "  None same · True same · False same"]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100])
def test_a_path_is_never_broken(width: int) -> None:
    d = samples.exception()
    assert d.symptom
    assert d.symptom.file in shown(d, width)
    assert f"{d.run_folder}/report.html" in shown(d, width)
    assert "    torch._inductor.lowering.make_fallback(torch.ops.aten.view)" in shown(d, width)


def test_a_terminal_gets_colour() -> None:
    assert "\x1b[31mdiffers:value" in shown(samples.wrong_value(), 120, colour=True)


def test_an_encoding_without_the_signs_is_served_too() -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"))
    terminal.render(samples.hostile(), console)
    console.file.flush()
    assert b"2 compiled regions - 6 calls" in raw.getvalue()


def test_hostile_strings_stay_text() -> None:
    text = shown(samples.hostile(), 100)
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text and "\x9b" not in text
    assert "[red]markup[/red]" in text
    assert "\\u202egnp.exe" in text and "[31m" not in text
    assert len(text) < 60_000
