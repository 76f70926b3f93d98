"""Programs that compile badly, recorded: what is known to be wrong with each heads the report, and nothing else does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from torchtriage.trace import Trace, read_trace
from torchtriage.trace.analyses.verdicts import problems

DATA = Path(__file__).parent / "data" / "recompiles"
EXPECTED = json.loads((DATA / "expected.json").read_text())

#: program -> for each known cause: kind of verdict, what has to be said of it, and the line of program.py that has to
#: be told with it. The line is the one in `expected.json`, but for those of `ELSEWHERE`.
CAUSES: dict[str, list[tuple[str, str, int]]] = {
    "adapter_per_request": [("recompiles", "run was compiled again", 34), ("recompiles", "`adapter.scale`", 16)],
    "bert_lengths": [
        ("recompiles", "`kwargs['input_ids']` changed in dimension 1", 37),
        ("recompiles", "`kwargs['input_ids']` changed in dimension 0 (8 → 1)", 37),
    ],
    "deep_stack": [("repetition", "24 copies of the same block", 19)],
    "early_stop_error": [("graph break", "gb0170", 26)],
    "global_flag": [
        ("recompiles", "`G['NOISE_LEVEL']`", 29),
        ("recompiles", "`G['CONFIG']['bits']`", 16),
        ("recompiles", "`G['CONFIG']['quantise']`", 15),
    ],
    "growing_mask": [
        ("recompiles", "`tokens`", 32),
        ("recompiles", "`mask` changed", 32),
        ("recompiles", "`temperature`", 32),
    ],
    "hook_stats": [("graph break", "reached through", 23), ("graph break", "gb0124", 17)],
    "kv_list": [("recompiles", "the length of a list, tuple or dict changed: `cache`", 22)],
    "layout_flips": [("recompiles", "strides changed: `x`", 40), ("recompiles", "768 → 3072", 40)],
    "llama_layers": [
        ("recompiles", "layer_idx", 22),
        ("recompiles", "`kwargs['cache'].layers[*].is_initialized`", 22),
        ("recompiles", "`kwargs['cache'].layers[*].keys` changed in dimension 2", 22),
    ],
    "lr_schedule": [("recompiles", "a Python number changed: `lr`", 62)],
    "mask_nonzero": [
        ("graph break", "gb0036", 24),
        ("graph break", "gb0036", 25),
        ("graph break", "gb0036", 27),
        ("recompiles", "forward, resumed after a graph break,", 54),
    ],
    "mode_flips": [
        ("recompiles", "train() and eval(): `self._modules['bn1']`", 45),
        ("recompiles", "grad mode changed", 47),
        ("recompiles", "dispatch keys changed, as between inference tensors", 38),
    ],
    "numpy_ext": [("graph break", "gb0294", 13), ("graph break", "gb0007", 36), ("recompiles", "`___stack1`", 36)],
    "qwen_growing_mask": [
        ("recompiles", "`ids` changed in dimension 1", 49),
        ("recompiles", "a Python number changed: `rank`", 25),
    ],
    "text_cls_lengths": [
        ("recompiles", "`tokens` changed in dimension 1", 64),
        ("recompiles", "`tokens` changed in dimension 0", 64),
    ],
    "time_loop": [("repetition", "a loop was unrolled 40 times", 16)],
    "timer_try": [("graph break", "gb0007", 15), ("graph break", "inside of `with stage", 39)],
}  # fmt: skip

#: (program, line in expected.json) -> why the trace cannot have it. The nearest line that it has is told instead.
ELSEWHERE = {
    ("bert_lengths", 35): "the header of the loop over batches: not on the stack",
    ("deep_stack", 49): "where .compile() was called: not logged",
    ("growing_mask", 34): "where a value is made, not where it is passed",
    ("growing_mask", 31): "the same",
    ("layout_flips", 26): "the same",
    ("llama_layers", 37): "where .compile() was called",
    ("llama_layers", 19): "where the cache is made",
    ("lr_schedule", 25): "torch leaves the direct caller of a decorated function out of the stack",
    (
        "mask_nonzero",
        25,
    ): "of the resume function: its break is told with this line, its recompile with the call",
    ("mode_flips", 46): "the `with` line of torch.no_grad(): the call below it is told",
    ("mode_flips", 37): "the same for torch.inference_mode()",
    ("qwen_growing_mask", 35): "where a value is made",
    ("text_cls_lengths", 37): "the header of the loop over batches",
    ("time_loop", 32): "the header of the loop: graphs have the lines of its body",
}


def recorded(name: str) -> Trace:
    return read_trace(DATA / f"{name}.log.xz")


def said(verdict: object) -> str:
    return " ".join((str(verdict.place), verdict.title, *verdict.details))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_counts_are_those_that_were_measured_when_it_ran(name: str) -> None:
    totals, measured = recorded(name).totals, EXPECTED[name]["measured"]
    found = {
        "compiles": totals.compiles, "graphs": totals.graphs, "graph_breaks": totals.break_sites,
        "recompiles": totals.recompiles, "limit_hits": totals.limit_hits, "failed_compiles": totals.failed,
    }  # fmt: skip
    assert found == {key: measured[key] for key in found}
    assert totals.problems == 0


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_the_known_causes_head_the_report(name: str) -> None:
    """Every known cause is among the first verdicts, and each of the first verdicts is a known cause."""
    told = [v for v in problems(recorded(name)) if v.kind != "recompile limit"]
    used = set()
    for kind, words, line in CAUSES[name]:
        at = re.compile(rf"program\.py:{line}\b")
        hits = [n for n, v in enumerate(told) if v.kind == kind and words in said(v) and at.search(said(v))]
        assert hits, (kind, words, line, [said(v) for v in told])
        used.update(hits)
    assert used == set(range(len(told)))
    limits = [v for v in problems(recorded(name)) if v.kind == "recompile limit"]
    assert len(limits) == EXPECTED[name]["measured"]["limit_hits"]
    assert problems(recorded(name))[0].kind != "recompile limit"


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if name.startswith("ctl_")))
def test_a_program_without_a_flaw_gets_no_cause(name: str) -> None:
    assert problems(recorded(name)) == ()


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_lines_are_those_of_the_record_of_known_causes(name: str) -> None:
    known = {cause["line"] for cause in EXPECTED[name]["causes"]}
    lines = {line for _, _, line in CAUSES[name]}
    assert {line for line in known - lines if (name, line) not in ELSEWHERE} == set()
    assert len(CAUSES[name]) == len(EXPECTED[name]["causes"])
