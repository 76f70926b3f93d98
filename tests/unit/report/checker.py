"""A JSON Schema check for the keywords that `schema.json` uses; an unknown keyword is an error.

It stands in for the jsonschema package, which a machine may lack.
"""

from __future__ import annotations

from typing import Any

NOTES = {"$schema", "$id", "$defs", "title", "description", "examples"}
TYPES: dict[str, Any] = {
    "string": str, "object": dict, "array": list, "null": type(None), "boolean": bool, "integer": int,
    "number": (int, float),
}  # fmt: skip


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = "$") -> list[str]:
    """What in the value is not as the schema says."""
    found: list[str] = []
    for keyword, rule in schema.items():
        if keyword not in NOTES and keyword not in RULES:
            raise AssertionError(f"the checker does not know {keyword!r}")
        if keyword in RULES:
            found += RULES[keyword](value, rule, schema, root, where)
    return found


def _type(value: Any, rule: str, schema: Any, root: Any, where: str) -> list[str]:
    right = isinstance(value, TYPES[rule]) and (rule == "boolean" or not isinstance(value, bool))
    return [] if right else [f"{where}: {value!r:.80} is no {rule}"]


def _ref(value: Any, rule: str, schema: Any, root: Any, where: str) -> list[str]:
    return problems(value, root["$defs"][rule.removeprefix("#/$defs/")], root, where)


def _any_of(value: Any, rule: list[Any], schema: Any, root: Any, where: str) -> list[str]:
    tries = [problems(value, one, root, where) for one in rule]
    return [] if any(not t for t in tries) else tries[0]


def _properties(value: Any, rule: dict[str, Any], schema: Any, root: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [p for k, one in rule.items() if k in value for p in problems(value[k], one, root, f"{where}.{k}")]


def _additional(value: Any, rule: Any, schema: Any, root: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return []
    more = {k: v for k, v in value.items() if k not in schema.get("properties", {})}
    if rule is False:
        return [f"{where}: {k!r:.80} is not in the schema" for k in more]
    return [p for k, v in more.items() for p in problems(v, rule, root, f"{where}.{k:.40}")]


def _required(value: Any, rule: list[str], schema: Any, root: Any, where: str) -> list[str]:
    return [f"{where}: {k} is missing" for k in rule if isinstance(value, dict) and k not in value]


def _items(value: Any, rule: Any, schema: Any, root: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        return []
    return [p for i, item in enumerate(value) for p in problems(item, rule, root, f"{where}[{i}]")]


def _names(value: Any, rule: Any, schema: Any, root: Any, where: str) -> list[str]:
    return [
        p for k in (value if isinstance(value, dict) else ()) for p in problems(k, rule, root, f"{where} key")
    ]


def _enum(value: Any, rule: list[Any], schema: Any, root: Any, where: str) -> list[str]:
    return [] if value in rule else [f"{where}: {value!r:.80} is none of {rule}"]


def _minimum(value: Any, rule: float, schema: Any, root: Any, where: str) -> list[str]:
    return [f"{where}: {value} < {rule}"] if isinstance(value, (int, float)) and value < rule else []


def _min_length(value: Any, rule: int, schema: Any, root: Any, where: str) -> list[str]:
    return [f"{where}: too short"] if isinstance(value, str) and len(value) < rule else []


RULES: dict[str, Any] = {
    "type": _type,
    "$ref": _ref,
    "anyOf": _any_of,
    "properties": _properties,
    "additionalProperties": _additional,
    "required": _required,
    "items": _items,
    "propertyNames": _names,
    "enum": _enum,
    "const": lambda value, rule, schema, root, where: _enum(value, [rule], schema, root, where),
    "minimum": _minimum,
    "minLength": _min_length,
}
