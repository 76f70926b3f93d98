"""Draws from Python's, numpy's and torch's generators before, in and after a compiled region. Seeded only if asked: `seeds.py seeded`."""

import random
import sys

import numpy
import torch

generator, own = numpy.random.default_rng(), torch.Generator()
own.seed()
if sys.argv[1:] == ["seeded"]:
    random.seed(1)
    numpy.random.seed(2)
    torch.manual_seed(3)
    generator = numpy.random.default_rng(4)
    own.manual_seed(5)


def draw():
    return [
        random.random(),
        float(numpy.random.rand()),
        float(generator.random()),
        torch.rand(()).item(),
        torch.rand((), generator=own).item(),
        float(torch.nn.functional.dropout(torch.ones(100)).sum()),
    ]


@torch.compile(backend="eager")
def step(x):
    return x * 2


rows = [draw()]
for _ in range(3):
    step(torch.tensor(draw()))
    rows.append(draw())
print(rows, flush=True)
