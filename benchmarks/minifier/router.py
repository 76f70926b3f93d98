"""A planted fault: the lowering of gather raises for a router's top experts."""

import buggy_backend  # noqa: F401
import torch
from torch import nn


class Router(nn.Module):
    def __init__(self, width: int = 32, experts: int = 8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Linear(width, 64)
        self.down = nn.Linear(64, width)

    def forward(self, x):
        hidden = self.norm(x)
        scores = torch.softmax(self.gate(hidden), dim=-1)
        _, chosen = torch.topk(scores, 2, dim=-1)
        weights = scores.gather(-1, chosen)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        mixed = self.down(nn.functional.gelu(self.up(hidden)))
        return x + mixed * weights.amax(dim=-1, keepdim=True)


torch.manual_seed(0)
model = torch.compile(Router().eval())
with torch.no_grad():
    print(model(torch.randn(4, 10, 32)).shape)
