"""Both raised: the same error of the user's, or a failure of the compiler's?"""

from __future__ import annotations

from typing import Any

import pytest

from torchtriage.oracle.exceptions import same_meaning


def raised(name: str, message: str, *chain: str, cause: str = "") -> dict[str, Any]:
    return {"type": name, "message": message, "chain": list(chain), "cause_message": cause}


OUT_OF_BOUNDS = raised("builtins.IndexError", "index 7 is out of bounds for dimension 0 with size 5")
MATMUL = raised("builtins.RuntimeError", "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")
BARE = raised("builtins.AssertionError", "")


@pytest.mark.parametrize(
    ("eager", "compiled"),
    [
        pytest.param(OUT_OF_BOUNDS, OUT_OF_BOUNDS, id="the very same"),
        pytest.param(
            OUT_OF_BOUNDS,
            raised("builtins.RuntimeError", "index out of bounds: 0 <= tmp3 < 5"),
            id="a kernel checks it with another class",
        ),
        pytest.param(
            MATMUL,
            raised("torch._dynamo.exc.TorchRuntimeError", "Dynamo failed to run FX node", "RuntimeError"),
            id="Dynamo wraps it",
        ),
        pytest.param(
            MATMUL,
            raised(
                "torch._dynamo.exc.TorchRuntimeError",
                "Dynamo failed to run FX node with fake tensors: a and b must have same reduction dim",
                cause="mat1 and mat2 shapes cannot be multiplied (s0x3 and 4x5)",
            ),
            id="only the cause has eager's words",
        ),
        pytest.param(
            BARE,
            raised("torch._dynamo.exc.InternalTorchDynamoError", "", "AssertionError"),
            id="wrapped, without a message",
        ),
    ],
)
def test_the_user_s_error_stays_the_user_s(eager: dict[str, Any], compiled: dict[str, Any]) -> None:
    assert same_meaning(eager, compiled)


@pytest.mark.parametrize(
    ("eager", "compiled"),
    [
        pytest.param(
            OUT_OF_BOUNDS,
            raised(
                "torch._inductor.exc.InductorError",
                "LoweringException: expected a Pointwise",
                "LoweringException",
            ),
            id="the compiler fails before it comes to the error",
        ),
        pytest.param(
            raised("ValueError", "no such data set"),
            raised("BackendCompilerFailed", "backend='inductor' raised: CppCompileError", "CppCompileError"),
            id="the C++ compiler fails",
        ),
        pytest.param(
            OUT_OF_BOUNDS,
            raised("builtins.RuntimeError", "wrapped by the program", "InternalTorchDynamoError"),
            id="the program wraps a failure of the compiler's",
        ),
    ],
)
def test_a_failure_of_the_compiler_s_is_not_hidden_by_the_user_s_error(
    eager: dict[str, Any], compiled: dict[str, Any]
) -> None:
    assert not same_meaning(eager, compiled)


def test_an_error_without_a_message_does_not_hide_a_failure_of_the_compiler_s() -> None:
    assert not same_meaning(BARE, raised("torch._inductor.exc.InductorError", "LoweringException: no"))
