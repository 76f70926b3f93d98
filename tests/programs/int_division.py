"""Integer division by zero: eager raises, the compiled kernel is killed by SIGFPE."""

import torch


@torch.compile
def per_worker(items, workers):
    return torch.div(items.sum(), workers.sum(), rounding_mode="trunc")


try:
    print(per_worker(torch.arange(5), torch.zeros(3, dtype=torch.int64)))
except RuntimeError as error:
    print("no workers:", error)
