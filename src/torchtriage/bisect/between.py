"""What differs between the last good and the first bad environment beyond the version. Pure: two dumps in, changes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchtriage.model.bisection import Change


def changes(
    good: Mapping[str, Any], bad: Mapping[str, Any], operators: tuple[str, ...], package: str
) -> tuple[Change, ...]:
    """Changed defaults, dependencies, and table entries of the operators that the target uses. From `dump` of both."""
    return (
        *defaults(good.get("configs", {}), bad.get("configs", {})),
        *dependencies(good.get("packages", {}), bad.get("packages", {}), package),
        *entries(good.get("tables", {}), bad.get("tables", {}), operators),
    )


def defaults(good: Mapping[str, Any], bad: Mapping[str, Any]) -> tuple[Change, ...]:
    """Config values that both versions have, with other defaults."""
    found = []
    for module in sorted(good.keys() & bad.keys()):
        for name in sorted(good[module].keys() & bad[module].keys()):
            before, after = good[module][name], bad[module][name]
            if before != after or type(before) is not type(after):
                lines = (f"import {module}", f"{module}.{name} = {before!r}")
                found.append(Change("default", f"{module}.{name}", repr(before), repr(after), lines=lines))
    return tuple(found)


def dependencies(good: Mapping[str, str], bad: Mapping[str, str], package: str) -> tuple[Change, ...]:
    """Distributions that came, went or changed, but for the one that is bisected."""
    own = package.lower().replace("_", "-")
    return tuple(
        Change("dependency", name, good.get(name, "not there"), bad.get(name, "not there"))
        for name in sorted(good.keys() | bad.keys())
        if name != own and good.get(name) != bad.get(name)
    )


def entries(
    good: Mapping[str, Any], bad: Mapping[str, Any], operators: tuple[str, ...]
) -> tuple[Change, ...]:
    """Decompositions and lowerings of these operators that came, went, or whose source changed."""
    found = []
    for table in sorted(good.keys() & bad.keys()):
        names = good[table].keys() | bad[table].keys()
        used = {operator for operator in operators if operator in names}
        # An overload that has no entry of its own, as those that work in place, goes by those of its name.
        bases = {base(operator) for operator in operators if operator not in names}
        for name in sorted(names):
            before, after = good[table].get(name), bad[table].get(name)
            if (name in used or base(name) in bases) and before != after:
                words = (
                    "none" if before is None else "its source",
                    "none" if after is None else "another source",
                )
                found.append(Change(table, name, *words))
    return tuple(found)


def base(operator: str) -> str:
    """aten.add for aten.add.Tensor: overloads share their decomposition more often than not."""
    return ".".join(operator.split(".")[:2]).rstrip("_")


def patch(change: Change, good: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the runner sets for one changed default."""
    for module, values in good.get("configs", {}).items():
        if change.name.startswith(module + "."):
            name = change.name[len(module) + 1 :]
            return {module: {name: values[name]}}
    return {}
