"""The diagnosis as JSON, in the published form that `schema.json` describes.

Floats that JSON cannot hold become the strings "nan", "inf" and "-inf"; the schema says so as well.
"""

from __future__ import annotations

import importlib.resources
import json
import math
from typing import Any

from torchtriage.model.diagnosis import Diagnosis

try:
    import orjson
except ImportError:  # pragma: no cover - the standard library gives the same text, more slowly
    orjson = None  # type: ignore[assignment]

_LARGEST = 2**63


def render(diagnosis: Diagnosis) -> str:
    """Indented JSON with sorted keys and a line end."""
    plain = valid(diagnosis.to_json())
    if orjson is None:
        return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode() + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `render` gives."""
    text = importlib.resources.files("torchtriage.report").joinpath("schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def valid(value: Any) -> Any:
    """The value with nothing in it that JSON or UTF-8 cannot hold."""
    if isinstance(value, dict):
        return {_text(str(key)): valid(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [valid(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -_LARGEST <= value < _LARGEST else str(value)
    return _text(value if isinstance(value, str) else str(value))


def _text(text: str) -> str:
    """Lone surrogates, which file names and messages can hold, become the replacement character."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
