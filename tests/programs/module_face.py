"""What programs do with a compiled module besides calling it. Prints a list of True."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        return self.linear(x)

    def extra(self):
        return "extra"


net = Net()
model = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.ones(4, 3)).sum()
loss.backward()
optimizer.step()
weights = torch.ones(2, 3)
net.linear.weight.data.copy_(weights)
inplace = Net()
inplace.compile(backend="aot_eager")
inplace.load_state_dict(net.state_dict())
model.train(False)


@torch.compile(backend="aot_eager")
def named(x):
    """A docstring."""
    return x


print(
    [
        isinstance(model, nn.Module),
        type(model).__name__ == "OptimizedModule",
        model._orig_mod is net,
        list(model.state_dict()) == ["_orig_mod.count", "_orig_mod.linear.weight", "_orig_mod.linear.bias"]
        or sorted(model.state_dict())
        == ["_orig_mod.count", "_orig_mod.linear.bias", "_orig_mod.linear.weight"],
        [p is q for p, q in zip(model.parameters(), net.parameters(), strict=True)] == [True, True],
        model.extra() == "extra",
        net.training is False,
        isinstance(inplace, Net),
        sorted(inplace.state_dict()) == ["count", "linear.bias", "linear.weight"],
        torch.equal(inplace(torch.ones(1, 3)), net(torch.ones(1, 3))),
        named.__name__ == "named" and named.__doc__ == "A docstring.",
        torch.compile.__name__ == "compile" and torch.compile.__module__ == "torch",
        callable(torch.compile(backend="eager")),
    ],
    flush=True,
)
