"""A short training loop with a compiled model that reads its table by a helper; a compiled call fails under aot_eager."""

import argparse
from pathlib import Path

import small_bug_helper
import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, a, b):
        return small_bug_helper.decay_and_mix(a, b)


parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=4)
width = parser.parse_args().width
torch.manual_seed(0)
model = torch.compile(Mixer(width), backend="aot_eager")
with torch.no_grad():
    model(torch.ones(width), torch.ones(width))
    buffer = torch.ones(2 * width)
    out = model(buffer[:width], buffer[width // 2 : width // 2 + width])
print(Path(__file__).name, out.tolist())
