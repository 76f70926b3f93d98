"""The verdict on programs that were re-created from public bug reports equals what is known about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paste import pasted

from torchtriage.api import Settings, options
from torchtriage.investigate.facts import RECOMPILES_ALLOWED, of_user
from torchtriage.lab.journal import Journal
from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Same

pytestmark = [pytest.mark.e2e, pytest.mark.cases]
CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.name for path in CASES.iterdir() if path.is_dir())
#: Fork and rerun must agree. All cases are compared by `make rerun-acceptance`; these are in every run.
RERUN = (
    NAMES
    if os.environ.get("RERUN_CASES") == "all"
    else ["attr_change", "budget_dropout_bw", "data_assign", "double_bw_meta", "mut_alias_norecompile"]
)
#: What inside the layer is at fault, where it can be named: case -> (operator, line).
OPERATORS = {
    "bce_target_range": ("aten.binary_cross_entropy.default", 13),
    "bernoulli_prob": ("aten.bernoulli.default", 6),
    "budget_dropout_bw": ("aten.dropout", 10),
    "data_assign": ("aten.set_", 5),
    "dropout_seed_diff": ("aten.native_dropout.default", 11),
    "floordiv_inf": ("aten.div.Tensor_mode", 5),
    "funcgrad_dropped": ("aten.cos.default", 24),
    "index_add_neg": ("aten.index_add.default", 11),
    "late_fwd_hook": ("aten.add.Tensor", 16),
    "ldexp_dtype": ("aten.ldexp.Tensor", 5),
    "linear_mixed_dtype": ("aten.addmm.default", 11),
    "lr_float_recompile": ("", 14),
    "mut_alias_norecompile": ("aten.mul_", 6),
    "nested_region_global": ("aten.add.Tensor", 14),
    "np_int8_rules": ("aten.cumsum.default", 8),
    "overlap_expand_add": ("aten.add_", 10),
    "remainder_inf": ("aten.remainder.Tensor", 5),
}


def run(name: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    report = folder / "report.json"
    done = subprocess.run(
        [
            sys.executable, "-m", "torchtriage.cli.main", "diagnose", "-q", "--no-reduce", "--runs", str(folder / "runs"),
            "--json", str(report), *options, str(CASES / name / "program.py"),
        ],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert report.exists(), done.stderr[-3000:]
    return done.returncode, json.loads(report.read_text())


def works(source: str, lines: list[str], symptoms: list[str], folder: Path) -> bool:
    """Whether the program with the lines pasted in is like eager, without the counts that were the symptom."""
    program = folder / "pasted.py"
    program.write_text(pasted(source, lines))
    run = folder / "pasted"
    run.mkdir(exist_ok=True)
    target = {"kind": "script", "name": str(program), "args": []}
    with LocalLab(target, run, Journal(Path(":memory:")), options(Settings())) as lab:
        if not lab.survey().calls:  # everything is disabled: eager is what is left
            return True
        outcome = lab.run_one(Request(observe=True))
    measures = outcome.measures
    if "recompiles" in symptoms and measures.recompiles > RECOMPILES_ALLOWED:
        return False
    if symptoms == ["graph-break"] and any(of_user(b) for b in measures.graph_breaks):
        return False
    return isinstance(outcome, Same)


def expectation(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / name / "expected.json").read_text())
    found["kind"] = "none" if found["kind"] == "control" else found["kind"]
    return found


def same_cell(got: str, wanted: str, kind: str) -> bool:
    """For noise the known matrix was made with fixed tolerances: to call it noise is right."""
    return got == wanted or (kind == "noise" and got in ("same", "within noise"))


def check_verdict(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found["kind"] == wanted["kind"]
    assert found["symptoms"] == wanted["symptom"]
    assert found["first_failing_layer"] == wanted["first_failing_layer"]
    assert found["own_dynamic"] == wanted["own_dynamic"]
    assert found["monotone"] == wanted["monotone"]
    different = {
        (backend, dynamic): (found["matrix"][backend][dynamic], cell)
        for backend, row in wanted["matrix"].items()
        for dynamic, cell in row.items()
        if not same_cell(found["matrix"][backend][dynamic], cell, wanted["kind"])
    }
    assert not different


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_the_known_one(name: str, tmp_path: Path) -> None:
    status, found = run(name, tmp_path)
    wanted = expectation(name)
    check_verdict(found, wanted)
    if wanted["kind"] in ("none", "noise"):
        assert status == (2 if wanted["eager"].startswith("raises") else 0)
        assert not found["workarounds"]
    else:
        assert status == 1
        healed = found["workarounds"] or wanted["kind"] != "bug"
        assert healed, "a change that heals is known for every bug here"
    if name in OPERATORS:
        assert (found["operator"] or "", found["line"]) == OPERATORS[name]
    source = (CASES / name / "program.py").read_text()
    useless = [
        w["change"]
        for w in found["workarounds"]
        if not works(source, w["lines"], found["symptoms"], tmp_path)
    ]
    assert not useless, "a printed workaround does not work when it is pasted into the program"


@pytest.mark.parametrize("name", RERUN)
def test_running_the_program_anew_for_each_trial_gives_the_same_verdict(name: str, tmp_path: Path) -> None:
    _, found = run(name, tmp_path, "--isolation", "rerun", "--verdict-only")
    check_verdict(found, expectation(name))
