"""What `torchtriage reduce` says while it searches, and for bad input."""

import sys

import pytest

from torchtriage.cli import reduce as room
from torchtriage.cli.main import main
from torchtriage.model.reduction import SearchPoint


class Notes:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def test_progress_shows_size_pass_rate_and_time() -> None:
    notes = Notes()
    shown = room.Shrinking(notes, 600.0)  # type: ignore[arg-type]
    for lines, tests in ((80, 1), (40, 5), (10, 9)):
        shown.best(SearchPoint(1.0, tests, lines, 100, "statements"), "")
    assert "█▅▂ 80 lines → 10 (statements), 9 tried" in notes.texts[-1]
    assert "a second, at most" in notes.texts[-1] and notes.texts[-1].endswith("s left")


@pytest.mark.parametrize(
    ("sizes", "bars"),
    [([5], "█"), ([8, 4, 0], "█▅▁"), ([0], "▁"), (list(range(100, 0, -1)), "█▇▇▆▆▅▅▄▄▄▃▂▂▁▁")],
)
def test_bars(sizes: list[int], bars: str) -> None:
    made = room.trend(sizes)
    assert made[0] == bars[0] and made[-1] == bars[-1] and len(made) <= 16
    if len(sizes) < 16:
        assert made == bars


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nope.py"], "no such file: nope.py"),
        (["--time-limit", "0", __file__], "--time-limit must be positive"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    args: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["torchtriage", "reduce", *args])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2 and capsys.readouterr().err == f"torchtriage: {said}\n"
