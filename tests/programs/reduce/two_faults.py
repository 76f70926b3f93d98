"""Programs with two different faults each, one easy to reach from the other: `crash`, `value` or `leaf`."""

import sys

import planted  # noqa: F401
import torch


@torch.compile
def crash(x, y):
    a = torch.relu(x) + 1
    b = torch.sin(a * 2)
    return torch.cos(b + y)


@torch.compile
def value(x, y):
    kept = torch.exp(x - y)
    return torch.log(kept + 3) + kept


@torch.compile
def leaf(x, y):
    first = torch.exp(x) * 2
    second = torch.tan(y + 1)
    return first, second


if __name__ == "__main__":
    torch.manual_seed(0)
    x, y = torch.rand(4, 6), torch.rand(4, 6)
    out = {"crash": crash, "value": value, "leaf": leaf}[sys.argv[1]](x, y)
    print(out)
