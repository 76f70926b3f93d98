"""A remainder by an infinite period: another value when compiled (a bug of torch 2.13)."""

import torch
from torch import nn


class Phases(nn.Module):
    def __init__(self, size: int = 12):
        super().__init__()
        periods = torch.linspace(0.5, 4.0, size)
        periods[-1] = float("inf")
        self.register_buffer("periods", periods)
        self.mix = nn.Linear(2 * size, 4)

    def forward(self, times):
        centred = times - times.mean()
        phase = torch.remainder(centred[:, None], self.periods)
        angle = phase.clamp(0, 100) * 0.5
        waves = torch.cat([angle.sin(), angle.cos()], dim=1)
        hidden = torch.relu(self.mix(waves))
        return hidden.softmax(dim=-1).cumsum(dim=-1)


torch.manual_seed(0)
model = torch.compile(Phases().eval())
with torch.no_grad():
    print(model(torch.randn(20)).sum())
