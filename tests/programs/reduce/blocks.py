"""The module of a training program."""

import torch
from torch import nn


class Block(nn.Module):
    """Residual block with a gate."""

    def __init__(self, width: int, rate: float = 0.0):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(width, width)
        self.drop = nn.Dropout(rate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.up(self.norm(x)).chunk(2, -1)
        return x + self.drop(self.down(torch.sin(gate) * value))
