"""A gradient penalty, which AOTAutograd cannot do, in a script that ends with status 3 in eager mode as well."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
critic = torch.compile(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), backend="aot_eager")
x = torch.randn(5, 3, requires_grad=True)
(slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
penalty = (slope.norm(dim=1) - 1).square().mean()
penalty.backward()
print("penalty", penalty.item())
if penalty > 0.1:
    sys.exit(3)  # the metric is not good enough
