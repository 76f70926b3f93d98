"""The last form of a script, the user's modules, ranks, conditions and redaction."""

import ast
from pathlib import Path

import pytest

from torchtriage.lab.scripts import ScriptEnd, ScriptRequest
from torchtriage.reduce import conditions, files, finish, frozen, graphs, harness, rank, redact
from torchtriage.reduce import tester as testers
from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Search
from torchtriage.reduce.signature import Failure
from torchtriage.reduce.tester import Conditions, draws

ONE_CALL = "import torch\n\n@torch.compile\ndef f(x):\n    return x.sin()\n\ndef run():\n    return f(torch.ones(3))\n"


def first(text: str, failure: Failure) -> str:
    return next(iter(finish.forms(text, failure, Conditions())))


def test_a_compiled_call_stands_beside_the_eager_one() -> None:
    made = first(ONE_CALL, Failure("differs", aspect="value"))
    assert made.endswith("x = torch.ones(3)\ntorch.testing.assert_close(torch.compile(f)(x), f(x))\n")
    assert "run" not in made and "@" not in made


def test_arguments_of_torch_compile_are_kept() -> None:
    text = ONE_CALL.replace("@torch.compile\n", "@torch.compile(dynamic=True)\n")
    assert "torch.compile(f, dynamic=True)(x)" in first(text, Failure("differs", aspect="value"))


def test_several_calls_are_run_twice() -> None:
    text = ONE_CALL.replace("return f(torch.ones(3))", "f(torch.ones(2))\n    return f(torch.ones(3))")
    made = list(finish.forms(text, Failure("differs", aspect="stride"), Conditions()))[1]
    assert "expected = run()" in made and "assert_close(run(), expected, check_stride=True)" in made


def test_what_is_no_tensor_is_compared_plainly() -> None:
    text = ONE_CALL.replace("f(torch.ones(3))", "f(torch.ones(3)).requires_grad")
    assert "assert run() == expected" in first(text, Failure("differs", aspect="value"))


def test_a_missing_exception_is_raised_by_the_last_line() -> None:
    text = "import torch\n\ndef f(x):\n    return x\ntorch.compile(f)(torch.ones(3))\n"
    made = first(text, Failure("no-exception", type="builtins.IndexError"))
    assert made.splitlines()[-7:-2] == [
        "try:",
        "    torch.compile(f)(x)",
        "except Exception:",
        "    raise SystemExit(0)",
        "f(x)",
    ]


@pytest.mark.parametrize(
    ("failure", "wanted"),
    [
        (Failure("killed", signal="SIGFPE"), "assert process.exitcode == 0"),
        (Failure("timeout", seconds=30), "faulthandler.dump_traceback_later(30, exit=True)"),
        (Failure("slow", seconds=12), "assert time.perf_counter() - start < 12"),
        (Failure("recompiles"), "<= 3"),
        (Failure("graph-break", reason="x"), 'counters["graph_break"]'),
    ],
)
def test_other_failures_end_with_an_assertion_of_their_own(failure: Failure, wanted: str) -> None:
    made = first("import torch\nf = torch.compile(abs)\nf(1)\n", failure)
    compile(made, "repro.py", "exec")
    assert wanted in made.replace("'", '"')


def test_the_backend_of_the_layer_is_tried_after_the_programs_own() -> None:
    made = list(finish.forms(ONE_CALL, Failure("differs", aspect="value"), Conditions(backend="aot_eager")))
    assert "aot_eager" not in made[0] and any("backend='aot_eager'" in text for text in made)


def test_switches_come_after_the_imports() -> None:
    given = Conditions(switches=(("torch._inductor.config.fallback_random", True),))
    made = list(finish.forms(ONE_CALL, Failure("differs", aspect="value"), given))[-1]
    assert "import torch._inductor.config\ntorch._inductor.config.fallback_random = True" in made


class FakePlain:
    """Plays a fresh python: the script fails when it holds a word."""

    def __init__(self, output: str, disabled: int = 0):
        self.output, self.disabled, self.calls = output, disabled, 0

    def plain(self, script: Path, seconds: float, compiled: bool = True) -> tuple[int, str]:
        self.calls += 1
        return (1, self.output) if compiled else (self.disabled, "")


def test_a_script_is_proven_by_five_failures_and_one_pass(tmp_path: Path) -> None:
    lab = FakePlain("AssertionError: not close")
    found = finish.finish(lab, ONE_CALL, Failure("differs", aspect="value"), Conditions(), tmp_path)
    assert found.proven and (found.failures, found.runs, lab.calls) == (5, 5, 6)


@pytest.mark.parametrize(
    "lab", [FakePlain("AssertionError", disabled=1), FakePlain("ImportError: no module")]
)
def test_a_script_that_fails_without_the_compiler_or_otherwise_is_not_proven(
    lab: FakePlain, tmp_path: Path
) -> None:
    assert not finish.finish(lab, ONE_CALL, Failure("differs", aspect="value"), Conditions(), tmp_path).proven


TORCH_S_OWN = """Traceback (most recent call last):
  File "repro.py", line 18, in <module>
    torch.testing.assert_close(run(), expected)
  File "/venv/torch/_inductor/output_code.py", line 763, in __call__
    return self.current_callable(inputs)
AssertionError: expected size 4==6, stride 1==1 at dim=0
"""
NOT_CLOSE = """Traceback (most recent call last):
  File "repro.py", line 18, in <module>
    torch.testing.assert_close(run(), expected)
  File "/venv/torch/testing/_comparison.py", line 1600, in assert_close
    raise error_metas[0].to_error(msg)
AssertionError: Tensor-likes are not close!
"""


def test_an_assertion_of_torch_is_not_the_one_of_the_script() -> None:
    failure = Failure("differs", aspect="value")
    assert finish.as_expected(failure, 1, NOT_CLOSE) and not finish.as_expected(failure, 1, TORCH_S_OWN)
    assert finish.as_expected(Failure("raises", type="builtins.AssertionError"), 1, TORCH_S_OWN)
    assert finish.as_expected(failure, 1, NOT_CLOSE.replace("/venv/torch/testing/_comparison.py", "repro.py"))


class Sometimes(FakePlain):
    """Fails in every second compiled run, not in the first."""

    def plain(self, script: Path, seconds: float, compiled: bool = True) -> tuple[int, str]:
        self.calls += compiled
        return (1, self.output) if compiled and self.calls % 2 == 0 else (0, "")


def test_a_script_that_fails_now_and_then_says_how_often(tmp_path: Path) -> None:
    lab = Sometimes("AssertionError: not close")
    found = finish.finish(lab, ONE_CALL, Failure("differs", aspect="value"), Conditions(), tmp_path)
    assert not found.proven and 2 <= found.failures <= 3 and found.runs == 5


# --- forms of the search ----------------------------------------------------------------------------------


def test_a_program_becomes_a_function_that_returns_its_variables() -> None:
    text = "import math\nsize = 4\ndef area():\n    return size * size\nout = area()\n"
    names: dict[str, object] = {}
    exec(harness.as_run(text), names)
    assert names["run"]() == {"size": 4, "out": 16}  # type: ignore[operator]
    assert "size" in names  # read by a function: still a global


def test_a_function_ends_where_another_failure_ended_it() -> None:
    text = "def run():\n    seen = []\n    for n in (2, 1, 0, 5):\n        seen.append(4 / n)\n    later()\n    return seen\n"
    made = harness.ending_at(text, 4)
    assert made is not None and "later" not in made
    names: dict[str, object] = {}
    exec(made, names)
    assert names["run"]() == [2.0, 4.0]  # type: ignore[operator]
    assert harness.ending_at(text, 6) is None and harness.ending_at(text, 0) is None


@pytest.mark.parametrize(
    ("last", "made"),
    [
        ("sys.exit(main())", "main()"),
        ("raise SystemExit(main())", "main()"),
        ("exit(0)", ""),
        ("raise SystemExit", ""),
        ("raise ValueError(main())", "raise ValueError(main())"),
        ("main(exit(1))", "main(exit(1))"),
    ],
)
def test_a_program_that_ends_with_its_exit_status_ends_without(last: str, made: str) -> None:
    text = f"import sys\ndef main():\n    return 0\nif __name__ == '__main__':\n    {last}\n"
    assert harness.flat(text).rstrip().endswith(f"return 0\n{made}".rstrip())


def test_results_of_compiled_calls_are_kept_where_they_are_made() -> None:
    text = "def net(x):\n    return [x]\ndef main():\n    print(len(net(5)))\nmain()\n"
    site = {"call": 0, "line": 4, "col": 14, "end_line": 4, "end_col": 20}
    made, numbers = harness.keeping(text, [site])
    names: dict[str, object] = {}
    exec(made, names)
    assert names["kept"] == [[5]] and numbers == [0]


def test_paths_become_expressions() -> None:
    assert harness.expression_of("{}['model'].get_parameter('a.b').grad") == "model.get_parameter('a.b').grad"
    assert harness.expression_of("{}['kept'][2]['logits']") == "kept[2]['logits']"


def test_what_the_symptom_names_is_looked_at_first() -> None:
    rows = [
        {"path": "{}['x']", "aspect": "value", "gross": True},
        {"path": "{}['kept'][0]", "aspect": "value", "gross": True},
        {"path": "{}['x'].grad", "aspect": "value", "gross": False},
    ]
    assert next(r["path"] for r in harness.choose(rows, ("grad",))) == "{}['x'].grad"
    assert next(r["path"] for r in harness.choose(rows, ("value",))) == "{}['kept'][0]"


def test_arguments_are_given_to_every_torch_compile() -> None:
    made = harness.compiled_with(
        "import torch\n@torch.compile\ndef f(): ...\nm.compile(mode='x')\n", backend="eager"
    )
    assert "@torch.compile(backend='eager')" in made and "m.compile(backend='eager')" in made


# --- modules of the user's own -----------------------------------------------------------------------------

MODULES = {
    "layers": "import torch\nfrom .sizes import WIDTH\nclass Net:\n    w = WIDTH\nif __name__ == '__main__':\n    boom()\n",
    "sizes": "WIDTH = 7\n",
    "pkg.model": "from .part import thing as it\nvalue = it\n",
    "pkg.part": "thing = 3\n",
    "faulty": "import torch._inductor.lowering\nWIDTH = 1\n",
}


def test_modules_are_put_into_the_script() -> None:
    text = "import layers\nfrom pkg.model import value\nout = (layers.Net.w, value)\n"
    made = files.with_modules(text.replace(".sizes", "sizes"), MODULES.get)
    assert "import layers" not in made and "boom" not in made
    names: dict[str, object] = {}
    exec(made.replace("from sizes import WIDTH", "WIDTH = 7"), names)
    assert names["out"] == (7, 3)


PACKAGE = {
    "detector": "from .model import Detector as D\nfrom . import sizes\n",
    "detector.__init__": "",
    "detector.model": "from .sizes import WIDTH\nclass Detector:\n    w = WIDTH\n",
    "detector.sizes": "WIDTH = 7\n",
    "detector.heads": "from .parts import PART\nHEAD = PART\n",
    "detector.heads.__init__": "",
    "detector.heads.parts": "from ..sizes import WIDTH\nPART = WIDTH + 1\n",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("from detector import D\nout = D.w\n", 7),
        ("from detector import heads\nout = heads.HEAD\n", 8),
        ("import detector.sizes as s\nout = s.WIDTH\n", 7),
        ("from detector import sizes, heads\nout = sizes.WIDTH + heads.HEAD\n", 15),
    ],
)
def test_a_package_of_the_users_is_put_into_the_script(text: str, value: int) -> None:
    made = files.with_modules(text, PACKAGE.get)
    names: dict[str, object] = {}
    exec(made, names)
    assert "import" not in made and names["out"] == value


def test_a_module_that_changes_torch_stays() -> None:
    text = "import faulty\nout = faulty.WIDTH\n"
    assert files.with_modules(text, MODULES.get) == text
    assert frozen.setup(text, MODULES.get) == ["import faulty"]


def test_a_module_whose_names_are_in_use_stays() -> None:
    text = "import sizes\nWIDTH = 2\nout = sizes.WIDTH\n"
    assert files.with_modules(text, MODULES.get) == text


def test_imports_of_installed_packages_are_told_from_the_rest() -> None:
    text = "import os, torch\nimport numpy as np\nimport timm\nfrom transformers import A\nimport sizes\nfrom sizes import WIDTH\n"
    assert files.installed_imports(text, MODULES.get) == ("import timm", "from transformers import A")


def test_ranks() -> None:
    def own(name: str) -> str | None:
        return "" if name == "mine" else None

    assert rank.rank("import torch\nimport math\n", own) == ("self-contained, under 100 lines", "")
    assert rank.rank("import torch\n" + "x = 1\n" * 100, own)[0] == "self-contained"
    assert rank.rank("import torch, numpy\n", own) == (
        "needs packages that anyone can install",
        "it imports numpy",
    )
    assert rank.rank("import mine\n", own)[0] == rank.rank("open('x')\n", own)[0] == "needs files of yours"


# --- conditions and redaction --------------------------------------------------------------------------------


class FakeLab:
    """Plays torch.compile: a script fails when it holds a word."""

    def __init__(self, word: str):
        self.word = word

    def run(self, request: ScriptRequest) -> ScriptEnd:
        fails = self.word in request.text and request.mode != "eager"
        return ScriptEnd(signal="SIGFPE" if fails else "")


def asking(word: str) -> testers.Tester:
    return testers.Tester(FakeLab(word), Failure("killed", signal="SIGFPE"), Conditions(backend="aot_eager"))


def test_each_condition_is_taken_away_in_a_trial() -> None:
    text = (
        "import torch\nx = torch.ones(3, dtype=torch.float16, requires_grad=True)\nwith torch.no_grad():\n"
        "    y = torch.compile(abs)(x)\n    x.add_(1)\n"
    )
    found = {n.name: n.needed for n in conditions.find(text, asking("no_grad"))}
    assert found["no_grad"] and not found["float16, bfloat16 or float64"] and not found["mutation"]
    assert "backward" not in found and "hooks" not in found


def test_names_and_texts_are_replaced_consistently() -> None:
    text = "import torch\nclass SecretNet:\n    def go(self):\n        return 'secret/path'\nnet = SecretNet()\nnet.go()\n"
    search = Search(lambda text: "torch" in text, text)
    redact.rename(search)
    search.close()
    assert "ecret" not in search.best and "go" not in search.best
    exec(search.best.replace("import torch", ""), {})


def test_texts_that_the_failure_needs_stay() -> None:
    search = Search(lambda text: "'inductor'" in text, "backend = 'inductor'\nname = 'private'\n")
    redact.rename(search)
    search.close()
    assert "'inductor'" in search.best and "private" not in search.best


def test_scripts_that_draw_are_told_from_those_that_do_not() -> None:
    assert draws("x = torch.randn(3)") and not draws("torch.manual_seed(0)\nx = torch.randn(3)")
    assert not draws("x = torch.ones(3)")


def test_a_graph_becomes_a_script() -> None:
    tensor = {"kind": "tensor", "shape": [2], "stride": [1], "dtype": "torch.float32", "contiguous": True,
              "requires_grad": True, "leaf": True}  # fmt: skip
    graph = {"text": "def f(s, x):\n    return (x,)\n", "imports": ["torch"], "nodes": 1,
             "inputs": [["s", {"kind": "plain", "text": "5", "size": True}], ["x", tensor]]}  # fmt: skip
    made = list(graphs.scripts([graph, {"problem": "cannot"}], backward=True, last_first=False))
    assert "torch.compile(f, dynamic=True)(5, torch.randn(2, requires_grad=True))" in made[0]
    assert "backward()" in made[0] and all(compile(text, "r.py", "exec") for text in made)


def test_lines_do_not_count_imports_comments_and_blank_ones() -> None:
    assert trees.lines_of("import torch\n\n# why\nfrom a import b\nx = 1\n") == 1
    assert ast.parse(trees.text_of(ast.parse("x=1")))


def test_a_script_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "repro.py"
    finish.save(script, "first\n")

    def full(self: Path, text: str, *more: object) -> int:
        self.open("w").write(text[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        finish.save(script, "second\n")
    assert script.read_text() == "first\n" and [p.name for p in tmp_path.iterdir()] == ["repro.py"]


def test_files_that_a_script_reads_are_named() -> None:
    found = rank.rank(
        "import torch\nx = load('edges.txt')\n", {}.get, is_file=lambda text: text == "edges.txt"
    )
    assert found == ("needs files of yours", "it reads edges.txt")


BACKEND = (
    "import torch\nfrom torch._inductor import lowering\nscale = 2\nother = 3\ndef helper(x):\n    return x * scale\n"
    "def backend():\n    def bad(x):\n        return helper(x)\n    lowering.lowerings[torch.ops.aten.sin] = bad\n"
    "backend()\nmodel(other)\n"
)


def test_what_registers_with_torch_is_frozen_with_all_that_it_is_made_of() -> None:
    kept = "\n".join(frozen.statements(ast.parse(BACKEND)))
    for text in ("scale = 2", "def helper", "def backend", "backend()"):
        assert text in kept
    assert "other" not in kept and "model" not in kept


def test_a_program_that_registers_in_its_main_function_can_still_be_reduced() -> None:
    long = "def main():\n    lowering.lowerings[a] = b\n" + "    x = 1\n" * 60 + "main()\n"
    assert frozen.statements(ast.parse(long)) == []
    text = (
        "def bad(x):\n    return x\ndef run():\n    lowering.lowerings[a] = bad\n    y = f(1)\n    return y\n"
    )
    assert frozen.statements(ast.parse(text)) == [
        "def bad(x):\n    return x",
        "lowering.lowerings[a] = bad",
    ]


def test_a_script_of_one_graph_has_what_the_program_makes_of_torch() -> None:
    text = "import os\nimport faulty\ndef main(n):\n    faulty.install(2)\n    faulty.show(n)\n    model(n)\nmain(os)\n"
    assert frozen.setup(text, MODULES.get) == ["import faulty", "faulty.install(2)"]
    made = frozen.setup(BACKEND + "import os\nos.getcwd()\n", {}.get)
    assert made[:2] == ["import torch", "from torch._inductor import lowering"]
    assert made[-1] == "backend()" and "import os" not in made
    names: dict[str, object] = {}
    exec("\n".join(made).replace("lowering.lowerings[torch.ops.aten.sin] = bad", "pass"), names)


def test_a_call_of_a_module_that_changes_torch_is_not_touched() -> None:
    text = "import faulty\nfaulty.install(1 + 1)\nprint(1 + 1)\n"
    assert frozen.keeper(text, MODULES.get)(ast.parse(text)) == ["faulty.install(1 + 1)"]
