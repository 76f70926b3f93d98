"""Each pass on programs as users have them: what it makes is Python, and what it is meant to make."""

import ast
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.reduce import harness, notes, source
from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Row, Search
from torchtriage.reduce.passes import (
    arguments,
    decorations,
    expressions,
    inline,
    literals,
    outputs,
    statements,
    tensors,
)

CASES = Path(__file__).parents[2] / "acceptance" / "cases"
PROGRAMS = sorted(CASES.glob("*/program.py"))
ROWS = (*source.STRUCTURE, *source.DETAILS, *source.TABLES)
#: passes for what the known programs do not have; each has a test of its own below
SELDOM = (
    "outputs", "unused values", "annotations", "unused variables", "split assignments", "equal assignments", "lists",
    "tables",
)  # fmt: skip


def only(row: Row, text: str) -> list[str]:
    """Every script that one change of a pass makes."""
    search = Search(lambda text: False, trees.text_of(ast.parse(text)))
    count = len(row.changes(ast.parse(search.best)))
    found = [search.candidate(row, [n]) for n in range(count)]
    search.close()
    return [text for text in found if text is not None]


def changed(changes, text: str) -> list[str]:
    return only(Row("under test", changes, smaller=lambda a, b: True), text)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_change_of_every_known_program_makes_a_smaller_script(row: Row) -> None:
    made = 0
    for path in PROGRAMS:
        text = trees.text_of(ast.parse(path.read_text()))
        for script in only(row, text):
            compile(script, "repro.py", "exec")
            assert row.smaller(script, text)
            made += 1
    assert made or row.name in SELDOM


@given(st.sampled_from(PROGRAMS), st.data())
@settings(max_examples=60, deadline=None)
def test_any_changes_together_make_python_or_nothing(path: Path, data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(ROWS))
    search = Search(lambda text: False, trees.text_of(ast.parse(path.read_text())))
    count = len(row.changes(ast.parse(search.best)))
    chosen = data.draw(st.sets(st.integers(0, max(count - 1, 0)), max_size=12)) if count else set()
    script = search.candidate(row, sorted(chosen))
    search.close()
    if script is not None:
        compile(script, "repro.py", "exec")
        assert not trees.undefined(ast.parse(script))


def test_blocks_become_their_bodies() -> None:
    text = "for i in range(3):\n    f(i)\nif a:\n    b()\nelse:\n    c()\nwith d() as e:\n    g(e)\n"
    found = "".join(changed(statements.unwrap, "def f(*x): pass\na = b = c = d = g = f\n" + text))
    for wanted in ("i = next(iter(range(3)))\nf(i)", "\nb()\n", "\nc()\n", "e = d()\ng(e)"):
        assert wanted in found


def test_lines_that_were_not_run_go() -> None:
    text = "def f():\n    a = 1\n    return a\nx = 1\nif x:\n    y = 1\nelse:\n    z = 1\n"
    made = Search(lambda text: True, trees.text_of(ast.parse(text)))
    made.run_pass(Row("lines", statements.uncovered({1, 4, 5, 6})))
    assert "z" not in made.best and "return" not in made.best and "y = 1" in made.best


def test_a_parameter_goes_with_its_arguments() -> None:
    text = "def f(a, b=2, *, c=3):\n    return a\nf(1, b=5, c=6)\nf(7, 8)\n"
    found = changed(arguments.parameters, text)
    assert "def f(a, *, c=3):\n    return a\nf(1, c=6)\nf(7)\n" in found
    assert "def f(a, b=2):\n    return a\nf(1, b=5)\nf(7, 8)\n" in found


@given(st.sets(st.integers(0, 11), min_size=1))
@settings(deadline=None)
def test_parameters_that_go_together_take_their_own_arguments_with_them(gone: set[int]) -> None:
    names = [f"p{n}" for n in range(12)]
    tree = ast.parse(
        f"def f({', '.join(names)}):\n    return 0\nf({', '.join(f'a{n}' for n in range(12))})\n"
    )
    changes = arguments.parameters(tree)
    for number in sorted(gone):
        changes[number]()
    kept = [n for n in range(12) if n not in gone]
    assert trees.text_of(tree) == (
        f"def f({', '.join(f'p{n}' for n in kept)}):\n    return 0\nf({', '.join(f'a{n}' for n in kept)})\n"
    )


def test_a_seed_stays_until_the_end() -> None:
    text = "import torch\ntorch.manual_seed(0)\nx = torch.rand(3)\n"
    assert "import torch\ntorch.manual_seed(0)\n" in changed(statements.delete, text)
    assert all("manual_seed" in made for made in changed(statements.delete, text))
    assert changed(statements.seeds, text) == ["import torch\nx = torch.rand(3)\n"]


def test_a_parameter_of_a_module_goes_with_the_arguments_of_its_compiled_calls() -> None:
    text = (
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x, y):\n        return x\n"
        "net = torch.compile(M())\nnet(1, 2)\ntorch.compile(M())(3, 4)\n"
    )
    made = [t for t in changed(arguments.parameters, text) if "forward(self, x)" in t]
    assert made and "net(1)" in made[0] and "torch.compile(M())(3)" in made[0]


def test_a_function_that_is_called_once_is_put_there() -> None:
    text = "def helper(a, b=2):\n    c = a + b\n    return c\nx = 1\ny = helper(x)\nprint(y)\n"
    assert "x = 1\na = x\nb = 2\nc = a + b\ny = c\nprint(y)\n" in changed(inline.functions, text)


def test_inlining_renames_what_is_in_use() -> None:
    text = "def helper(a):\n    x = a * 2\n    return x\nx = 1\ny = helper(5)\nprint(x, y)\n"
    (made,) = changed(inline.functions, text)
    names: dict[str, object] = {}
    exec(made.replace("print(x, y)", "out = (x, y)"), names)
    assert names["out"] == (1, 10)


def test_a_function_that_returns_in_the_middle_stays() -> None:
    assert not changed(inline.functions, "def f(a):\n    if a:\n        return 1\n    return 2\nx = f(3)\n")


def test_a_module_becomes_functions_and_variables() -> None:
    text = (
        "import torch.nn as nn\nclass Net(nn.Module):\n    def __init__(self, w):\n        super().__init__()\n"
        "        self.lin = nn.Linear(w, w)\n    def helper(self, x):\n        return x + 1\n"
        "    def forward(self, x):\n        return self.lin(self.helper(x))\nnet = Net(4)\nnet(5)\n"
    )
    (made,) = changed(inline.classes, text)
    assert "class" not in made and "lin = nn.Linear(w, w)" in made and "return lin(helper(x))" in made


def test_expressions_become_their_parts() -> None:
    found = changed(expressions.simplify, "import torch\na = b = 1\nx = torch.sin(a + b)\n")
    assert {t.splitlines()[-1] for t in found} == {"x = a + b", "x = torch.sin(a)", "x = torch.sin(b)"}


def test_a_choice_from_a_table_becomes_what_is_chosen() -> None:
    found = changed(expressions.simplify, "f = g = len\nx = {'a': f, 'b': g}['a']([])\ny = (f, g)[0]\n")
    assert "f = g = len\nx = f([])\ny = (f, g)[0]\n" in found
    assert "f = g = len\nx = {'a': f, 'b': g}['a']([])\ny = f\n" in found


def test_numbers_that_are_the_same_shrink_together() -> None:
    found = changed(literals.shared, "a = (16, 4)\nb = 16\n")
    assert "a = (2, 4)\nb = 2\n" in found and "a = (8, 4)\nb = 8\n" in found


@given(st.integers(-5, 10**6) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20))
def test_literals_only_become_simpler(value: object) -> None:
    for new in literals.simpler(value):
        assert type(new) is type(value)
        assert (len(repr(new)), trees.weight(new)) < (len(repr(value)), trees.weight(value)) or new in (
            0.0,
            1.0,
        )


CHAIN = "".join(f"    v{n} = v{n - 1} + 1\n" for n in range(1, 33))
BRANCHES = "".join(f"    v{n} = v{max(n - 4, 0)} + 1\n" for n in range(1, 33))


def cut(body: str, end: str, needed: str) -> Search:
    text = f"def f(v0):\n{body}    return {end}\nf(0)\n"
    search = Search(lambda text: needed in text, trees.text_of(ast.parse(text)))
    for row in source.ENDS:
        search.run_pass(row)
    return search


@given(st.integers(1, 31), st.integers(1, 3))
@settings(deadline=None)
def test_a_function_is_cut_where_the_failure_is(place: int, jobs: int) -> None:
    search = cut(CHAIN, "v32", f"v{place} = ")
    assert search.best.splitlines()[-2] == f"    return v{place}" and search.tests <= 12


@given(st.integers(1, 31))
@settings(deadline=None)
def test_values_that_do_not_depend_on_each_other_are_all_kept_until_the_end_is_found(place: int) -> None:
    search = cut(BRANCHES, "(v29, v30, v31, v32)", f"v{place} = ")
    assert search.best.splitlines()[-2] == f"    return (v{place},)" and search.tests <= 16


def test_a_computed_value_becomes_an_input() -> None:
    text = "import torch\n@torch.compile\ndef f(x):\n    h = x.relu()\n    return h.sin()\nf(torch.ones(3))\n"
    tensor = {"kind": "tensor", "shape": [3], "stride": [1], "dtype": "torch.float32", "contiguous": True,
              "requires_grad": False, "leaf": True}  # fmt: skip
    found = changed(tensors.inputs({"x.relu()": tensor}, 0), text)
    assert found == [
        "import torch\n\n@torch.compile\ndef f(x, h):\n    return h.sin()\nf(torch.ones(3), torch.ones(3))\n"
    ]


def test_what_comes_from_outside_becomes_what_it_was() -> None:
    text = "import sys\nwords = sys.stdin.read()\nprint(len(words))\n"
    row = Row(
        "values",
        tensors.values({"sys.stdin.read()": {"kind": "plain", "text": "''"}}),
        smaller=trees.needs_less,
    )
    assert only(row, text) == ["words = ''\nprint(len(words))\n"]


@pytest.mark.parametrize("choice", [0, 1, 2, -1])
def test_values_that_cannot_be_written_stay_computations(choice: int) -> None:
    text = "import torch\ndef f(x):\n    h = x.relu()\n    return h.sin()\nf(1)\n"
    note = {"kind": "tensor", "shape": [3], "stride": [1], "dtype": "torch.quint8", "contiguous": True,
            "requires_grad": False, "leaf": True}  # fmt: skip
    for known in ({}, {"x.relu()": {"kind": "other"}}, {"x.relu()": {"kind": "plain", "text": "1"}}):
        assert not changed(tensors.inputs(known, choice), text)
    changed(tensors.inputs({"x.relu()": note}, choice), text)  # whatever it makes is Python


def test_what_run_returns_never_becomes_a_constant() -> None:
    text = "def run():\n    x = [1]\n    return x[0]\n"
    note = {"kind": "plain", "text": "1"}
    assert not changed(tensors.values({"x[0]": note}), text)


def test_what_nothing_reads_goes() -> None:
    text = "def f(x):\n    a = x + 1\n    b = a + 1\n    return x\ny = f(1)\n"
    assert changed(outputs.unused, text) == ["def f(x):\n    return x\ny = f(1)\n"]
    assert "def f(x):\n    a = x + 1\n    b = a + 1\n    return x\nf(1)\n" in changed(
        statements.unused_targets, text
    )


def test_assignments_of_several_names_come_apart() -> None:
    assert changed(statements.split, "a, b = (1, 2)\nprint(b)\n") == ["b = 2\nprint(b)\n"]
    assert "a = b = 1\nprint(a, b)\n" in changed(statements.join, "a = 1\nb = 1\nprint(a, b)\n")


def test_a_list_of_one_becomes_its_element() -> None:
    text = "def run():\n    kept = []\n    kept.append(f(1))\n    return kept[-1]\ndef f(x):\n    return x\nrun()\n"
    assert any("    kept = f(1)\n    return kept\n" in made for made in changed(inline.lists, text))


def test_no_random_numbers_are_put_into_compiled_code() -> None:
    text = "import torch\ndef f(x):\n    return x.sin()\ndef run():\n    y = torch.ones(2)\n    z = f(y * 2)\n    return z\n"
    note = {"kind": "tensor", "shape": [2], "stride": [1], "dtype": "torch.float32", "contiguous": True,
            "requires_grad": False, "leaf": True}  # fmt: skip
    made = changed(tensors.values({"x.sin()": note, "y * 2": note}), text)
    assert any("f(torch.randn(2))" in t for t in made) and not any("return torch.randn" in t for t in made)


def test_annotations_and_docstrings_go() -> None:
    made = "".join(
        changed(decorations.drop, "def f(a: int) -> int:\n    'doc'\n    b: int = a\n    return b\nf(1)\n")
    )
    assert "def f(a) -> int" in made and "def f(a: int):" in made and "    b = a" in made


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("shape", [[], [3], [2, 3], [0]])
def test_literals_make_values_like_the_one_noted(dtype: str, shape: list[int]) -> None:
    torch = pytest.importorskip("torch")
    from torchtriage.probe.notes import describe

    value = torch.ones(shape, dtype=getattr(torch, dtype))
    for text in notes.literals(describe(value)):
        made = eval(text, {"torch": torch})
        assert made.dtype == value.dtype and made.shape == value.shape


def test_an_instrumented_program_notes_the_values_of_its_expressions() -> None:
    text, shown = notes.instrument("a = [4]\nb = len(a) + a[0]\n")
    noted: dict[str, object] = {}

    def note(number: int, value: object) -> object:
        noted[shown[number]] = value
        return value

    names: dict[str, object] = {notes.NOTE: note}
    exec(text, names)
    assert names["b"] == 5 and noted["len(a)"] == 1 and noted["a[0]"] == 4 and noted["len(a) + a[0]"] == 5


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.parent.name)
def test_every_known_program_can_be_brought_into_form(path: Path) -> None:
    flat = harness.flat(path.read_text())
    inlined = harness.inlined(flat)
    assert "__main__" not in flat
    for text, outside in itertools.product((flat, inlined), (True, False)):
        run = harness.as_run(text, outside)
        assert "run" in trees.functions(ast.parse(run)) and not trees.undefined(ast.parse(run))
        instrumented, shown = notes.instrument(run)
        compile(instrumented, "repro.py", "exec")
        assert shown


def test_long_tables_of_values_are_for_where_nothing_simpler_will_do() -> None:
    note = {"kind": "tensor", "shape": [17], "stride": [1], "dtype": "torch.bool", "contiguous": True,
            "requires_grad": False, "leaf": True, "values": [True] * 16 + [False]}  # fmt: skip
    text = "import torch\nx = torch.arange(17)\ny = x.lt(16)\n"
    tree = ast.parse(text)
    assert len(tensors.values({"x.lt(16)": note}, whole=False)(tree)) == 2
    *_, last = tensors.values({"x.lt(16)": note})(tree)
    last()
    assert "[True, True" in ast.unparse(tree)


def test_the_first_of_two_outputs_is_not_replaced_by_the_second() -> None:
    text = "def f(x):\n    a = x + 1\n    b = x + 2\n    return (a, b)\nf(0)[0]\n"
    search = Search(lambda text: True, trees.text_of(ast.parse(text)))
    search.run_pass(Row("fewer", outputs.fewer))
    assert "return (a,)" in search.best and "b = " not in search.best
