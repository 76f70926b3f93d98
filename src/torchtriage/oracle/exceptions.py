"""Whether two exceptions mean the same: eager's error and what compiled raised in its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: Exceptions that say that the compiler failed, not the program.
COMPILER = frozenset(
    {
        "InternalTorchDynamoError", "BackendCompilerFailed", "InductorError", "LoweringException",
        "CppCompileError", "SubprocException", "Unsupported", "RecompileError", "UserError",
        "ConstraintViolationError", "InvalidBackend", "TorchRuntimeError", "FailOnRecompileLimitHit",
        "UncapturedHigherOrderOpError",
    }
)  # fmt: skip


def same_meaning(eager: Mapping[str, Any], compiled: Mapping[str, Any]) -> bool:
    """Both raised: is it the same error of the user's?

    A class of its own on the compiled side is fine when the message is eager's; so is another message from an
    ordinary exception, since kernels check in another order.
    """
    compiler_raised = COMPILER & {short(compiled["type"]), *compiled.get("chain", ())}
    if not compiler_raised:
        return True
    if short(eager["type"]) in {*compiled.get("chain", ()), short(compiled["type"])}:
        return True
    ours = words(f"{compiled['message']} {compiled.get('cause_message', '')}")
    theirs = words(eager["message"])
    return bool(theirs) and len(theirs & ours) / len(theirs) >= 0.6


def short(name: str) -> str:
    return name.rpartition(".")[2]


def words(text: str) -> set[str]:
    """The words of a message, without numbers and names that vary."""
    return set(re.findall(r"[a-z_]{3,}", text.lower()))
