"""What a GPU is needed for. Not yet run on one: these say what has to hold there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.gpu]

PROGRAM = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)

    def forward(self, x):
        return torch.relu(self.layer(x)) * 2

torch.manual_seed(0)
net = torch.compile(Net().cuda(){arguments})
for _ in range(2):
    net(torch.randn(8, 32, device="cuda")).sum().backward()
"""


def run(folder: Path, arguments: str) -> dict[str, Any]:
    script, report = folder / "program.py", folder / "report.json"
    script.write_text(PROGRAM.format(arguments=arguments))
    command = [
        sys.executable,
        "-m",
        "torchtriage.cli.main",
        "diagnose",
        "-q",
        "--no-reduce",
        "--json",
        str(report),
        str(script),
    ]
    subprocess.run(command, cwd=folder, check=False, timeout=1200)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_a_cuda_program_is_rerun_and_passes(tmp_path: Path) -> None:
    found = run(tmp_path, "")
    assert found["program"]["mode"] == "rerun"
    assert found["kind"] in ("none", "noise")
    assert found["environment"]["gpu"]


def test_cuda_graphs_pass_as_the_programs_own_mode(tmp_path: Path) -> None:
    found = run(tmp_path, ', mode="reduce-overhead"')
    assert found["kind"] in ("none", "noise")
    assert found["own"]["word"] in ("same", "within noise")
