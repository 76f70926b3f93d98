"""The counts equal those of tlparse on the same real logs. Skipped where tlparse is not at hand."""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from trace_writing import real_logs

from torchtriage.trace import read_trace

TLPARSE = shutil.which(
    "tlparse", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
)
DATA = sorted((Path(__file__).parent / "data").rglob("*.log.xz"))
#: Kinds that are artefacts here and that tlparse does not list as such.
NOT_LISTED = (
    "compilation_metrics_runtime", "create_unbacked_symbol", "guard_added", "expression_created",
    "propagate_real_tensors_provenance", "exported_program", "symbolic_shape_specialization",
)  # fmt: skip

pytestmark = pytest.mark.skipif(TLPARSE is None, reason="tlparse is not installed")


@pytest.mark.parametrize("path", [*real_logs(), *DATA], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_records_compiles_artefacts_and_failures_are_as_many_as_tlparse_finds(
    path: Path, tmp_path: Path
) -> None:
    assert TLPARSE is not None
    out = tmp_path / "out"
    if path.suffix == ".xz":
        plain = tmp_path / path.stem
        plain.write_bytes(lzma.decompress(path.read_bytes()))
        path = plain
    command = [TLPARSE, str(path), "-o", str(out), "--no-browser", "--plain-text"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    stats = {
        k: int(v)
        for k, v in re.findall(r"(\w+): (\d+)", run.stderr.partition("Stats {")[2].partition("}")[0])
    }
    directory = json.loads((out / "compile_directory.json").read_text())
    failures = (out / "failures_and_restarts.html").read_text().count("<tr>") - 1

    (log,) = read_trace(path).logs
    assert log.records - log.kinds.get("str", 0) == stats["ok"]
    assert sum(p.reason in ("md5", "truncated") for p in log.problems) == stats.get("fail_payload_md5", 0)
    assert sum(len(c.attempts) for c in log.compiles) == len(set(directory) - {"[-/-]"})
    listed = [a for a in log.artifacts if a.kind not in NOT_LISTED]
    assert len(listed) == sum(len(entry["artifacts"]) for entry in directory.values())
    assert (
        sum(c.failure is not None for c in log.compiles) + sum(len(c.restarts) for c in log.compiles)
        == failures
    )
