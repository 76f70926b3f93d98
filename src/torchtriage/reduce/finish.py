"""The last form of a script: what it asserts, and the proof that a plain `python` shows the failure every time."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torchtriage.reduce import harness
from torchtriage.reduce import tree as trees
from torchtriage.reduce.signature import RECOMPILES_ALLOWED, Failure
from torchtriage.reduce.tester import Conditions

TIMES = 5
SCRIPT, ASSERTION = "repro.py", "AssertionError"
TRACED = re.compile(r'^ *File "([^"]*)", line ', re.MULTILINE)
COMPARISON = "torch/testing/_comparison.py"
EAGER = 'torch.compiler.set_stance("force_eager")'


class Plain(Protocol):
    """What is needed to run a finished script by itself."""

    def plain(self, script: Path, seconds: float, compiled: bool = True) -> tuple[int, str]: ...


@dataclass(frozen=True)
class Finished:
    """A script with its assertion, and what running it in fresh processes showed."""

    text: str
    failures: int = 0
    """How many of `runs` showed the failure (exit status 1)."""
    runs: int = 0
    fine_disabled: bool = False
    """Whether it exits with 0 when the compiler is switched off."""
    output: str = ""
    """What the last run printed."""

    @property
    def proven(self) -> bool:
        return self.fine_disabled and self.failures == self.runs > 0


def finish(lab: Plain, text: str, failure: Failure, conditions: Conditions, folder: Path) -> Finished:
    """The first of the forms that holds in fresh processes; else the one that came closest."""
    best = Finished(text)
    for script in forms(text, failure, conditions):
        found = prove(lab, script, failure, conditions, folder)
        if found.proven:
            return found
        if not best.runs or (found.failures, found.fine_disabled) > (best.failures, best.fine_disabled):
            best = found
    if best.runs == 1 and best.fine_disabled:  # none failed at once: it may come and go
        best = prove(lab, best.text, failure, conditions, folder, patient=True)
    return best


def prove(
    lab: Plain, text: str, failure: Failure, conditions: Conditions, folder: Path, patient: bool = False
) -> Finished:
    """Run a script in fresh processes: it must fail with the compiler, every time, and pass without it.

    `patient`: go on after a first run that does not fail.
    """
    script = folder / SCRIPT
    save(script, text)
    seconds = conditions.seconds * 2 + 60
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lab.plain, script, seconds)
        status, output = lab.plain(script, seconds, compiled=False)
        ends = [first.result()]
        if status != 0:
            return Finished(text, output=output)
        if patient or as_expected(failure, *ends[0]):
            ends += pool.map(lambda _: lab.plain(script, seconds), range(TIMES - 1))
    failures = sum(as_expected(failure, status, output) for status, output in ends)
    return Finished(text, failures, len(ends), True, ends[-1][1])


def save(path: Path, text: str) -> None:
    """Replace the script in one step: whoever looks, also after a kill, finds a whole one."""
    part = path.with_suffix(".part")
    try:
        part.write_text(text)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def as_expected(failure: Failure, status: int, output: str) -> bool:
    """Whether a run of a finished script ended with the failure: with its own assertion, and with none of torch's."""
    word = expected(failure)
    if status != 1 or word not in output:
        return False
    if failure.kind in ("raises", "no-exception") or word != ASSERTION:
        return True
    places = TRACED.findall(output.rpartition(word)[0])
    return not places or places[-1].endswith((SCRIPT, COMPARISON))


def expected(failure: Failure) -> str:
    """What the output has to name."""
    if failure.kind in ("raises", "no-exception"):
        return failure.type.rpartition(".")[2]
    return "Timeout (" if failure.kind == "timeout" else ASSERTION


def forms(text: str, failure: Failure, conditions: Conditions) -> Iterator[str]:
    """Scripts to try, the nicest first: with the program's own settings, and with the layer's backend."""
    makers: dict[str, tuple[Callable[[str, Failure], str], ...]] = {
        "differs": (one_call, two_runs, two_runs_with_nan),
        "no-exception": (missed_in_one_call, missed),
        "killed": (in_a_process,),
        "timeout": (watched,),
        "slow": (timed,),
        "recompiles": (counted,),
        "graph-break": (broken,),
        "raises": (raising,),
    }
    lines = [f"{name} = {value!r}" for name, value in conditions.switches]
    for switches in ([], lines) if lines else ([],):
        for backend in dict.fromkeys(("", conditions.backend)):
            for make in makers[failure.kind]:
                try:
                    given = harness.compiled_with(text, backend=backend) if backend else text
                    yield pretty(with_lines(make(given, failure), switches)) + comment(failure)
                except ValueError:
                    continue


def comment(failure: Failure) -> str:
    """What the last line of the script raises, where that is the failure."""
    short = f"{failure.type.rpartition('.')[2]}: {failure.text}".rstrip(": ")
    if failure.kind == "raises":
        return f"# torch.compile raises {short}\n"
    if failure.kind == "no-exception":
        return f"# eager mode raises {short}\n# the compiled call did not\n"
    return ""


def with_lines(text: str, lines: list[str]) -> str:
    """The script with settings after its imports."""
    tree = ast.parse(text)
    if lines:
        imports = [f"import {line.rpartition('.config.')[0]}.config" for line in lines]
        position = next((i for i, s in enumerate(tree.body) if not trees.is_import(s)), len(tree.body))
        tree.body[position:position] = ast.parse("\n".join([*dict.fromkeys(imports), *lines])).body
    return trees.text_of(tree)


def pretty(text: str) -> str:
    """Two blank lines around functions, none elsewhere; what the interpreter made of quotes stays."""
    rows: list[str] = []
    for row in text.splitlines():
        if row.startswith(("def ", "class ", "@")) and rows and not rows[-1].startswith("@"):
            rows += ["", ""]
        elif row.lstrip().startswith(("def ", "class ", "@")) and rows:
            rows += [""] if not rows[-1].lstrip().startswith(("@", "class ", "def ")) else []
        elif row and not row.startswith((" ", ")")) and rows and rows[-1].startswith(" "):
            rows += ["", ""] if inside_function(rows) else []
        if row.strip():
            rows.append(row)
    return "\n".join(rows) + "\n"


def inside_function(rows: list[str]) -> bool:
    """Whether the last block is that of a function or a class."""
    head = next((r for r in reversed(rows) if r and not r.startswith(" ")), "")
    return head.startswith(("def ", "class "))


def needs_torch(text: str) -> str:
    tree = ast.parse(text)
    return text if "torch" in trees.modules(tree) else "import torch\n" + text


# --- the assertions -------------------------------------------------------------------------------------


def two_runs(text: str, failure: Failure, more: str = "") -> str:
    """`run` in eager mode and compiled."""
    stride = ", check_stride=True" if failure.aspect == "stride" else ""
    check = f"torch.testing.assert_close(run(), expected{stride}{more})"
    if not compares_tensors(text):
        check = "assert run() == expected"
    return needs_torch(text) + f"with {EAGER}:\n    expected = run()\n{check}\n"


def two_runs_with_nan(text: str, failure: Failure) -> str:
    return two_runs(text, failure, ", equal_nan=True")


def compares_tensors(text: str) -> bool:
    result = ast.unparse(trees.functions(ast.parse(text))["run"].body[-1])
    return (
        not result.endswith((" is None", "__name__", ".requires_grad", ".data_ptr()"))
        and "str(" not in result
    )


def one_call(text: str, failure: Failure) -> str:
    """The compiled call and the eager call, side by side, without a function around them."""
    tree = ast.parse(needs_torch(text))
    run = trees.functions(tree)["run"]
    tree.body = [s for s in tree.body if s is not run]
    body = [s for s in run.body if not isinstance(s, (ast.Global, ast.Nonlocal))]
    result = body.pop()
    if not isinstance(result, ast.Return) or result.value is None or not compares_tensors(text):
        raise ValueError("no result")
    setup, compiled, eager = both_ways(tree, result.value)
    stride = ", check_stride=True" if failure.aspect == "stride" else ""
    check = ast.parse(f"torch.testing.assert_close(COMPILED, EAGER{stride})").body[0]
    assert isinstance(check, ast.Expr) and isinstance(check.value, ast.Call)
    check.value.args = [compiled, eager]
    tree.body += [*body, *setup, check]
    return trees.text_of(tree)


def both_ways(tree: ast.Module, result: ast.expr) -> tuple[list[ast.stmt], ast.expr, ast.expr]:
    """An expression with one compiled call: statements for its arguments, and it compiled and in eager mode."""
    decorated = undecorate(tree)
    compiled = Wrap(decorated).visit(copy.deepcopy(result))
    calls = [n for n in ast.walk(compiled) if isinstance(n, ast.Call) and is_region_call(n)]
    if len(calls) != 1 or any(isinstance(n, ast.Call) and harness.is_compile(n) for n in ast.walk(tree)):
        raise ValueError("not one compiled call")
    setup = named_arguments(calls[0], trees.own_names(tree))
    eager = Unwrap().visit(copy.deepcopy(compiled))
    return setup, compiled, eager


def undecorate(tree: ast.Module) -> dict[str, ast.expr]:
    """Take torch.compile off the functions of a script. Name -> the decorator."""
    found: dict[str, ast.expr] = {}
    for name, function in trees.functions(tree).items():
        for decorator in list(function.decorator_list):
            head = decorator.func if isinstance(decorator, ast.Call) else decorator
            if trees.dotted(head) == "torch.compile":
                function.decorator_list.remove(decorator)
                found[name] = decorator
    return found


class Wrap(ast.NodeTransformer):
    """`f(x)` becomes `torch.compile(f)(x)` where f was decorated so."""

    def __init__(self, decorated: dict[str, ast.expr]):
        self.decorated = decorated

    def visit_Name(self, node: ast.Name) -> ast.AST:
        decorator = self.decorated.get(node.id)
        if decorator is None:
            return node
        if isinstance(decorator, ast.Call):
            return ast.Call(func=decorator.func, args=[node], keywords=copy.deepcopy(decorator.keywords))
        return ast.Call(func=copy.deepcopy(decorator), args=[node], keywords=[])


class Unwrap(ast.NodeTransformer):
    """`torch.compile(f)` becomes `f`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[0] if trees.dotted(node.func) == "torch.compile" and node.args else node


def is_region_call(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Call) and trees.dotted(node.func.func) == "torch.compile"


def named_arguments(call: ast.Call, taken: set[str]) -> list[ast.stmt]:
    """Variables for the arguments of a call that are more than a name, so that both calls get the same."""
    names = iter([n for n in "xyzuvwabcdefgh" if n not in taken])
    setup: list[ast.stmt] = []
    for holder in (*call.args, *call.keywords):
        value: Any = holder.value if isinstance(holder, ast.keyword) else holder
        if isinstance(value, (ast.Name, ast.Constant)):
            continue
        name = next(names, None)
        if name is None or isinstance(value, ast.Starred):
            raise ValueError("too many arguments")
        setup.append(ast.Assign(targets=[ast.Name(name, ast.Store())], value=value))
        trees.Replace(value, ast.Name(name, ast.Load())).visit(call)
    return setup


def missed_in_one_call(text: str, failure: Failure) -> str:
    """The compiled call, and then the eager one, which raises what the compiled one should have raised."""
    tree = ast.parse(needs_torch(text))
    last = tree.body.pop()
    if not isinstance(last, (ast.Expr, ast.Assign)):
        raise ValueError("no call at the end")
    setup, compiled, eager = both_ways(tree, last.value)
    tree.body += setup
    return trees.text_of(tree) + missing(ast.unparse(compiled), ast.unparse(eager))


def missed(text: str, failure: Failure) -> str:
    tree = ast.parse(needs_torch(text))
    return as_function(tree) + missing("run()", f"with {EAGER}:\n    run()")


def missing(compiled: str, eager: str) -> str:
    """The eager run comes last: its exception is what is missed above."""
    return f"try:\n    {compiled}\nexcept Exception:\n    raise SystemExit(0)\n{eager}\n"


def as_function(tree: ast.Module) -> str:
    """The statements of a script as a function `run`, whose names stay those of the script."""
    stay = [s for s in tree.body if trees.is_import(s) or isinstance(s, trees.SCOPES)]
    body = [s for s in tree.body if all(s is not other for other in stay)]
    assigned = sorted(trees.stored(ast.Module(body, [])))
    first: list[ast.stmt] = [ast.Global(names=assigned)] if assigned else []
    return trees.text_of(ast.Module([*stay, harness.empty_function("run", [*first, *body])], []))


def in_a_process(text: str, failure: Failure) -> str:
    tree = ast.parse("import multiprocessing\n" + needs_torch(text))
    return as_function(tree) + (
        'process = multiprocessing.get_context("fork").Process(target=run)\nprocess.start()\nprocess.join()\n'
        "assert process.exitcode == 0, process.exitcode\n"
    )


def watched(text: str, failure: Failure) -> str:
    tree = ast.parse("import faulthandler\n" + text)
    position = next((i for i, s in enumerate(tree.body) if not trees.is_import(s)), len(tree.body))
    line = f"faulthandler.dump_traceback_later({failure.seconds:.0f}, exit=True)"
    tree.body[position:position] = ast.parse(line).body
    return trees.text_of(tree)


def timed(text: str, failure: Failure) -> str:
    """With an empty cache folder each time: what was compiled once is fast."""
    return (
        "import os\nimport tempfile\nimport time\n"
        'os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()\n'
        f"start = time.perf_counter()\n{needs_torch(text)}assert time.perf_counter() - start < {failure.seconds:.0f}\n"
    )


def counted(text: str, failure: Failure) -> str:
    limit = RECOMPILES_ALLOWED + 1
    return needs_torch(text) + f'assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= {limit}\n'


def broken(text: str, failure: Failure) -> str:
    counters = "torch._dynamo.utils.counters"
    return needs_torch(text) + f'assert not ({counters}["graph_break"] or {counters}["unimplemented"])\n'


def raising(text: str, failure: Failure) -> str:
    return text
