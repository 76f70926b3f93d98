"""A planted fault: the backward decomposition of an embedding with padding raises."""

import buggy_backend  # noqa: F401
import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, items: int = 50, width: int = 16):
        super().__init__()
        self.items = nn.Embedding(items, width, padding_idx=0)
        self.norm = nn.LayerNorm(width)
        self.tower = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, basket):
        seen = (basket > 0).float().unsqueeze(-1)
        pooled = (self.items(basket) * seen).sum(dim=1) / seen.sum(dim=1).clamp(min=1)
        return torch.sigmoid(self.tower(self.norm(pooled))).squeeze(-1)


torch.manual_seed(0)
model = torch.compile(Recommender())
score = model(torch.randint(0, 50, (12, 6)))
torch.nn.functional.binary_cross_entropy(score, torch.ones(12)).backward()
