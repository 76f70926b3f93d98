"""Skips tests marked `gpu` where there is no CUDA device."""

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    torch = pytest.importorskip("torch")  # imported only once such a test is about to run
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
