"""A small training program as people have them: arguments, a module of one's own, a loop, an optimizer, logging."""

import argparse
import logging
from dataclasses import dataclass
from pathlib import Path

import planted  # noqa: F401
import torch
from blocks import Block
from torch import nn

log = logging.getLogger("training")


@dataclass
class Config:
    width: int = 16
    depth: int = 3
    steps: int = 2
    lr: float = 1e-2


class Net(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.embed = nn.Linear(8, config.width)
        self.blocks = nn.ModuleList([Block(config.width) for _ in range(config.depth)])
        self.head = nn.Linear(config.width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def batches(path: Path, count: int):
    rows = [[float(v) for v in line.split(",")] for line in path.read_text().splitlines()]
    data = torch.tensor(rows)
    for start in range(count):
        yield data[start * 4 : start * 4 + 4]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    config = Config(steps=args.steps)
    torch.manual_seed(0)
    net = Net(config)
    fast = torch.compile(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=config.lr)
    for number, batch in enumerate(batches(args.data, config.steps)):
        loss = fast(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("step %d: %f", number, loss.item())
    print("done")


if __name__ == "__main__":
    main()
