"""Runs every workaround of a folder of JSON reports, pasted into its program. For people; takes a while.

python tests/acceptance/check_pasted.py REPORTS_FOLDER CASES_FOLDER
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from paste import pasted

from torchtriage.api import Settings, options
from torchtriage.investigate.facts import RECOMPILES_ALLOWED, of_user
from torchtriage.lab.journal import Journal
from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Outcome, Same, label


def own_outcome(program: Path, folder: Path) -> Outcome:
    target = {"kind": "script", "name": str(program), "args": []}
    with LocalLab(target, folder, Journal(folder / "journal.sqlite"), options(Settings())) as lab:
        survey = lab.survey()
        if not survey.calls:  # everything is disabled: eager is what is left
            return Same()
        return lab.run_one(Request(observe=True))


def works(outcome: Outcome, symptoms: list[str]) -> bool:
    measures = outcome.measures
    if "recompiles" in symptoms and measures.recompiles > RECOMPILES_ALLOWED:
        return False
    if symptoms == ["graph-break"] and any(of_user(b) for b in measures.graph_breaks):
        return False
    return isinstance(outcome, Same)


def main() -> None:
    reports, cases = Path(sys.argv[1]), Path(sys.argv[2])
    good = total = 0
    for report in sorted(reports.glob("*.json")):
        found = json.loads(report.read_text())
        source = (cases / report.stem / "program.py").read_text()
        for workaround in found["workarounds"]:
            with tempfile.TemporaryDirectory() as base:
                program = Path(base, "program.py")
                program.write_text(pasted(source, workaround["lines"]))
                outcome = own_outcome(program, Path(base))
            fine = works(outcome, found["symptoms"])
            total, good = total + 1, good + fine
            if not fine:
                print(f"{report.stem}: {workaround['change']}: {label(outcome)}", flush=True)
    print(f"{good} of {total} printed workarounds work when pasted")


if __name__ == "__main__":
    main()
