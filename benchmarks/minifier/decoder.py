"""A planted fault: silu after an affine normalisation is one per cent too large."""

import buggy_backend  # noqa: F401
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, channels: int = 8):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.norm1 = nn.GroupNorm(2, channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(2, channels)
        self.last = nn.Conv2d(channels, 3, 1)

    def forward(self, x):
        hidden = self.first(x)
        hidden = hidden + self.second(torch.relu(self.norm1(hidden)))
        hidden = nn.functional.silu(self.norm2(hidden))
        return torch.tanh(self.last(hidden)) * 0.5 + x.mean(dim=(2, 3), keepdim=True)


torch.manual_seed(0)
model = torch.compile(Decoder().eval())
with torch.no_grad():
    print(model(torch.randn(2, 3, 8, 8)).std())
