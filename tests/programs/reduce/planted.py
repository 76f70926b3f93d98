"""Plants faults in Inductor's lowerings when imported: each of them in one operator. PLANTED=0 turns them off."""

import os
import random

import torch
from torch._inductor import lowering

aten = torch.ops.aten


def install() -> None:
    table = lowering.lowerings
    exp, log = table[aten.exp.default], table[aten.log.default]

    def raises(error: Exception):
        def lower(*args, **kwargs):
            raise error

        return lower

    def wrong(x, **kwargs):
        return table[aten.mul.Tensor](exp(x, **kwargs), 1.5)

    def small(x, **kwargs):
        if all(int(s) == 1 for s in x.get_size()):
            raise AssertionError("log of one element")
        return log(x, **kwargs)

    atan, chance = table[aten.atan.default], random.SystemRandom()

    def sometimes(x, **kwargs):
        if chance.random() < 0.7:
            raise ValueError("no loader for atan, sometimes")
        return atan(x, **kwargs)

    table[aten.atan.default] = sometimes
    table[aten.sin.default] = raises(ValueError("no loader for sin"))
    table[aten.cos.default] = raises(AssertionError("cos has no layout"))
    table[aten.exp.default] = wrong
    table[aten.log.default] = small
    table[aten.tan.default] = lambda x, **kwargs: table[aten.mul.Tensor](x, 2.0)


if os.environ.get("PLANTED", "1") != "0":
    install()
