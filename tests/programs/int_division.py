"""Integer division by a tensor with zeros in it: eager raises, a compiled kernel is killed by SIGFPE."""

import torch


@torch.compile
def per_worker(items, workers):
    return items // workers


items, workers = torch.arange(1, 6), torch.tensor([1, 2, 0, 1, 2])
try:
    print(per_worker(items, workers))
except RuntimeError as error:
    print("no workers:", error)
