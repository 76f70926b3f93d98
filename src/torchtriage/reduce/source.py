"""The road over Python source: the order of the passes, and what they need to know of the script first."""

from __future__ import annotations

from torchtriage.reduce import engine, notes
from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Row, Search
from torchtriage.reduce.passes import (
    arguments,
    decorations,
    elements,
    expressions,
    inline,
    literals,
    outputs,
    statements,
    tensors,
)
from torchtriage.reduce.tester import Tester

MOST_FUNCTIONS = 3
#: Cheap and coarse first; what makes the most of the others possible comes before them.
ENDS = (
    *(Row("outputs", outputs.cut(nth), how="first") for nth in range(MOST_FUNCTIONS)),
    Row("fewer outputs", outputs.fewer),
    Row("unused values", outputs.unused),
)
COARSE = (
    *ENDS,
    Row("annotations", decorations.drop),
    Row("statements", statements.delete),
)
STRUCTURE = (
    *COARSE,
    Row("blocks", statements.unwrap, how="singly"),
    Row("functions", inline.functions, how="singly"),
    Row("unused variables", statements.unused_targets),
    Row("decorators", decorations.undecorate),
    Row("parameters", arguments.parameters),
    Row("arguments", arguments.drop),
)
TABLES = (
    Row("elements", elements.plain(1)),
    Row("elements", elements.plain(0)),
    Row("tables", elements.short, how="singly"),
    Row("rows and columns", elements.fewer),
)
"""What is written out in full is made small at once: as long as it is there, every script is a long one."""
DETAILS = (
    Row("one-line functions", inline.one_liners, how="singly"),
    Row("lists", inline.lists, how="singly"),
    Row("classes", inline.classes, how="singly"),
    Row("split assignments", statements.split, how="singly"),
    Row("expressions", expressions.simplify, how="singly"),
    Row("variables", inline.variables, how="singly"),
    Row("equal assignments", statements.join, how="singly"),
    Row("shapes", literals.shared, how="singly"),
    Row("literals", literals.single, how="singly"),
    Row("seeds", statements.seeds),
)


def reduce(search: Search, tester: Tester, straight: bool = False) -> None:
    """Make the script of a search as small as the passes can. Raises engine.Interrupted when the time is up.

    `straight`: it is the text of a captured graph, whose values all hang together: that is cut at both ends first.
    """
    if not straight:
        drop_unexecuted(search, tester)
    else:
        engine.run(search, ENDS, again=1)
        cut_inputs(search, tester)
    engine.run(search, COARSE, again=1)
    replace_values(search, tester, whole=False)
    for _ in range(6):
        start = search.best
        engine.run(search, STRUCTURE, again=2)
        replace_values(search, tester)
        engine.run(search, TABLES, again=2)
        engine.run(search, (*STRUCTURE, *DETAILS, *TABLES), again=2)
        if search.best == start:
            return


def drop_unexecuted(search: Search, tester: Tester) -> None:
    """What no run of the script reaches can go at once."""
    failure = tester.failure
    mode = "compare" if failure.kind == "differs" else "compiled"
    request = tester.conditions.request(search.best, mode=mode, covered=True)
    covered = set(tester.lab.run(request).covered)
    if failure.kind != "differs":
        covered |= tester.lab.run(tester.eager(search.best).with_(covered=True)).covered
    if covered:
        search.run_pass(Row("lines that are not run", statements.uncovered(covered)))


def replace_values(search: Search, tester: Tester, whole: bool = True) -> None:
    """Put fresh values in the place of what is computed from others. `whole`: the very values, where no others will do."""
    cut_inputs(search, tester, whole)
    known = take_notes(search, tester)
    for also_long in (False, True) if whole else (False,):
        row = Row("values", tensors.values(known, also_long), how="singly", smaller=trees.needs_less)
        search.run_pass(row)


def cut_inputs(search: Search, tester: Tester, whole: bool = True) -> None:
    """What a compiled function computes becomes what it is given."""
    for choice in (0, 1, 2, -1) if whole else (0, 1, 2):
        known = take_notes(search, tester)
        if known:
            search.run_pass(Row("computations", tensors.inputs(known, choice)))


def take_notes(search: Search, tester: Tester) -> dict[str, dict[str, object]]:
    """What the expressions of the best script are in eager mode, by their text."""
    text, names = notes.instrument(search.best)
    end = tester.lab.run(tester.conditions.request(text, mode="notes", before=""))
    found: dict[str, dict[str, object]] = {}
    for number, note in end.notes.items():
        found.setdefault(names[int(number)], note)
    return found
