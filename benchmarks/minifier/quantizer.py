"""Division that rounds down, by an infinite width: another value when compiled (a bug of torch 2.13)."""

import torch
from torch import nn


class Quantizer(nn.Module):
    def __init__(self, channels: int = 16):
        super().__init__()
        self.embed = nn.Linear(8, channels)
        self.gain = nn.Parameter(torch.linspace(0.5, 2.0, channels))
        widths = torch.linspace(0.1, 1.0, channels)
        widths[3] = float("inf")
        self.register_buffer("widths", widths)

    def forward(self, x):
        hidden = torch.tanh(self.embed(x)) * self.gain
        centred = hidden - hidden.mean(dim=0, keepdim=True)
        scaled = centred / (centred.std(dim=0, keepdim=True) + 1e-6)
        bins = torch.div(scaled, self.widths, rounding_mode="floor")
        clipped = bins.clamp(-8, 8)
        return clipped.abs().sum(dim=1) + hidden.square().sum(dim=1)


torch.manual_seed(0)
model = torch.compile(Quantizer().eval())
with torch.no_grad():
    print(model(torch.randn(32, 8)))
