"""Fails in about half of its runs."""

import random

import planted  # noqa: F401
import torch


@torch.compile
def step(x):
    if random.random() < 0.5:
        return torch.sin(x)
    return torch.relu(x)


def main():
    random.seed()
    data = [torch.ones(3) for _ in range(2)]
    print(step(data[0]).sum())


main()
