"""Train a small classifier whose features are scaled by powers of two, one exponent a channel.

The features should stay in half precision. With torch 2.13 on a CPU the compiled model returns them in
single precision; with TORCHDYNAMO_DISABLE=1 set, the same script does not.
"""

import argparse

import torch
from torch import nn


class ScaledClassifier(nn.Module):
    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, width)
        self.head = nn.Linear(width, classes)
        self.register_buffer("keep", torch.arange(width) % 4 != 0)  # pruned channels are False
        self.register_buffer("exponents", torch.linspace(-2, 2, width).half())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = torch.ldexp(self.keep, self.exponents)
        features = torch.relu(self.encoder(x)).half() * scale
        return self.head(features.float()), features


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = ScaledClassifier()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(args.steps):
        logits, features = compiled(torch.randn(32, 8))
        loss = nn.functional.cross_entropy(logits, torch.randint(4, (32,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {i}: loss {loss.item():.4f}, features {features.dtype}")


if __name__ == "__main__":
    main()
