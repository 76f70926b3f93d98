"""Fails in about seven of ten runs: the fault in the compiler is a matter of chance."""

import planted  # noqa: F401
import torch


@torch.compile
def step(x):
    y = torch.relu(x) + 1
    return torch.atan(y)


def main():
    data = [torch.ones(3) for _ in range(2)]
    print(step(data[0]).sum())


main()
