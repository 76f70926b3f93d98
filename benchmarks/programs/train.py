"""A small training loop, as a user would write it; the options stand for what one would edit by hand."""

import argparse
import os
import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU()
        )
        self.head = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mark = os.environ.get("BENCH_MARK")
        if mark and not torch.compiler.is_compiling() and not os.path.exists(mark):
            with open(mark, "w") as file:
                file.write(repr(time.time()))
        return self.head(self.body(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--dynamic", default="None", choices=["None", "True", "False"])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    if os.environ.get("BENCH_EAGER"):
        torch.compiler.set_stance("force_eager")
    dynamic = {"None": None, "True": True, "False": False}[args.dynamic]
    torch.manual_seed(0)
    model = Net()
    compiled = model if args.eager else torch.compile(model, backend=args.backend, dynamic=dynamic)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(args.steps):
        loss = nn.functional.cross_entropy(compiled(torch.randn(16, 32)), torch.randint(8, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


if __name__ == "__main__":
    main()
