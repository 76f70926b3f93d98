"""Scripts of the reducers in the real lab: forks of one process that has done what every compilation does first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchtriage.lab.scripts import ScriptLab, ScriptRequest

pytestmark = pytest.mark.e2e
ASKED = """
import torch
from torch._inductor import codecache
torch.compile(lambda x: x.sin())(torch.ones(3))
print(codecache._precompile_header.cache_info())
"""


@pytest.mark.parametrize("fresh_store", [False, True])
def test_the_header_of_kernels_is_known_before_the_first_script(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, fresh_store: bool
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))  # elsewhere scripts must not write
    lab = ScriptLab(tmp_path / "scripts", store, sys.executable)
    try:
        end = lab.run(ScriptRequest(ASKED, backend="inductor", fresh_store=fresh_store))
    finally:
        lab.close()
    assert end.exception is None and "hits=1, misses=1" in end.log, end
