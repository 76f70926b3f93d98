"""Every way of handing code to the compiler is seen, under the name and line that the user knows it by."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import PROGRAMS, line_of, opened

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import label
from torchtriage.model.variant import Variant

pytestmark = pytest.mark.e2e

#: name of the region, file, what stands on the line of its definition (a decorator counts as its first line)
WAYS = [
    ("plain", "ways.py", "def plain"),
    ("decorated_with_arguments", "ways.py", "@torch.compile(backend=refuse, dynamic=True)"),
    ("imported_name", "ways.py", "@compile(backend=refuse)"),
    ("optimized", "ways.py", "@torch._dynamo.optimize(refuse)"),
    ("Block.forward", "ways.py", "self.linear(x).relu()"),
    ("InPlace.forward", "ways.py", "self.linear(x).tanh()"),
    ("ByAttribute.forward", "ways.py", "self.linear(x).sigmoid()"),
    ("DecoratedForward.forward", "ways.py", "self.linear(x).sin()"),
    ("WithMethod.generate", "ways.py", "def generate"),
    ("outer", "ways.py", "def outer"),
    ("inner", "ways.py", "def inner"),
    ("optimizer_step", "ways.py", "def optimizer_step"),
    ("make.from_helper", "helper_compiled.py", "@jit(backend=backend)"),
    ("<lambda>", "ways.py", "x - 1)"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[LocalLab]:
    with opened(tmp_path_factory.mktemp("ways") / "run", store, "ways.py") as lab:
        yield lab


def region_of(lab: LocalLab, name: str, file: str, text: str) -> str:
    """Key of the region of that name near the line that holds `text`."""
    line = line_of(file, text)
    found = [r for r in lab.survey().regions if r["name"] == name and abs(r["line"] - line) <= 2]
    assert found, [(r["name"], r["line"]) for r in lab.survey().regions]
    assert found[0]["file"] == str(PROGRAMS / file)
    return str(found[0]["key"])


@pytest.mark.parametrize(("name", "file", "text"), WAYS)
def test_a_region_is_seen_and_compiled(lab: LocalLab, name: str, file: str, text: str) -> None:
    key = region_of(lab, name, file, text)
    calls = [c["call"] for c in lab.survey().calls if c["region"] == key]
    assert calls, "its call was not seen"
    outcome = lab.run_one(Request(only=key, stop=calls[0]))
    assert "refused" in outcome.exception.message


def test_the_alias_in_torch_compiler_is_seen(open_lab: Callable[..., LocalLab], tmp_path: Path) -> None:
    program = tmp_path / "alias.py"
    program.write_text(
        "import torch\nstep = torch.compiler.compile(lambda x: x * 2, backend='eager')\nstep(torch.ones(2))\n"
    )
    assert open_lab(str(program)).survey().regions


def test_the_step_of_a_torch_optimizer_is_seen(lab: LocalLab) -> None:
    (region,) = (r for r in lab.survey().regions if r["name"] in ("AdamW.step", "Adam.step"))
    assert [c for c in lab.survey().calls if c["region"] == region["key"]]


def test_the_whole_program_runs_in_eager_mode(lab: LocalLab) -> None:
    assert lab.survey().exception is None
    assert "done 15" in lab.survey().log


def test_a_variant_replaces_the_backend_of_all_of_them(lab: LocalLab) -> None:
    outcome = lab.run_one(Request(Variant(backend="eager"), compare=100))
    assert label(outcome) == "same"
    assert outcome.measures.calls_seen == len(lab.survey().calls)


def test_a_compiled_module_is_still_a_module(open_lab: Callable[..., LocalLab]) -> None:
    lab = open_lab("module_face.py")
    assert lab.survey().exception is None
    expected = [True] * 13
    assert ast.literal_eval(lab.survey().log.splitlines()[-1]) == expected
    outcome = lab.run_one(Request())
    assert label(outcome) == "same"
    assert ast.literal_eval(outcome.log.splitlines()[-1]) == expected
