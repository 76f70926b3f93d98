"""Failures that depend on something: `depends.py WHAT`. Each is wrong, or raises, only in the way its name says."""

import sys

import torch
from torch import nn

WHAT = sys.argv[1]


def fails_if(condition):
    """A backend whose code gives a wrong answer once `condition(graph, inputs)` holds."""

    def backend(graph, inputs):
        wrong = condition(graph, inputs)
        return lambda *args: [v + 1 if wrong and isinstance(v, torch.Tensor) else v for v in graph(*args)]

    return backend


torch.manual_seed(0)

if WHAT == "second-shape":  # automatic dynamic shapes, from the second size on
    step = torch.compile(
        lambda x: x.relu() * 2, backend=fails_if(lambda g, i: any(isinstance(v, torch.SymInt) for v in i))
    )
    for size in (3, 4, 5):
        print(step(torch.randn(size)).sum().item())

if WHAT == "alias-on-call-two":  # pytorch/pytorch#139789

    @torch.compile(backend="aot_eager")
    def decay_and_mix(a, b):
        a.mul_(2)
        return a + b

    print(decay_and_mix(torch.ones(4), torch.ones(4)).tolist())
    buffer = torch.ones(8)
    print(decay_and_mix(buffer[:4], buffer[2:6]).tolist(), buffer.tolist())

if WHAT == "late-hook":  # pytorch/pytorch#117758
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    net = torch.compile(model, backend="eager")
    with torch.no_grad():
        net(torch.ones(2, 4))
        model[0].register_forward_hook(lambda module, args, out: out + 1.0)
        print(net(torch.ones(2, 4)).tolist())

if WHAT == "caches":  # pytorch/pytorch#194976: a cached graph keeps a constant of the second call

    @torch.compile
    def update(p, d, lr, decay):
        p.mul_(1 - lr * decay).add_(d, alpha=-lr)

    weight, gradient = torch.ones(4), torch.full((4,), 0.5)
    for number in range(4):
        update(weight, gradient, 0.1 / (number + 1), 0.01)
        print(weight.tolist())

if WHAT == "dynamic":  # pytorch/pytorch#196285

    @torch.compile(backend="eager")
    def pick_branch(x):
        branches = [x * 2, x.relu(), x - 1]
        chosen = branches.pop(x.shape[0] - 2)
        return chosen + branches[0]

    print(pick_branch(torch.randn(3)).shape)

if WHAT == "fullgraph":

    @torch.compile(backend="eager", fullgraph=True)
    def step(x):
        y = x * 2
        print("sum", y.sum().item())
        return y + 1

    try:
        step(torch.ones(3))
    except torch._dynamo.exc.Unsupported:
        sys.exit("cannot compile")

if WHAT == "twelfth-layer":  # layers of one class, compiled one by one; only the last is compiled wrongly

    class Layer(nn.Module):
        def __init__(self, number):
            super().__init__()
            self.number = number
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x)

    layers = [Layer(number) for number in range(12)]
    for layer in layers:
        wrong = layer.number == 11
        layer.compile(backend=fails_if(lambda g, i, wrong=wrong: wrong), dynamic=False)
    x = torch.randn(2, 4)
    for layer in layers:
        x = layer(x)
    print(x.sum().item())

if WHAT == "twelfth-region":  # twelve different functions, only the last compiled wrongly
    for number in range(12):

        def part(x):
            return x * 2

        part.__qualname__ = f"part_{number}"
        wrong = number == 11
        print(torch.compile(part, backend=fails_if(lambda g, i, wrong=wrong: wrong))(torch.ones(2)).tolist())

if WHAT == "twelfth-call":  # a value that wrong code depends on, not seen by guards
    step = torch.compile(
        lambda x: x * 2,
        backend=lambda graph, inputs: lambda x: [graph(x)[0] + (x[0] > 10)],
    )
    for number in range(12):
        print(step(torch.full((2,), float(number))).tolist())

if WHAT == "raises-in-twelfth-call":

    def backend(graph, inputs):
        def run(x):
            if x[0] > 10:
                raise RuntimeError("no more than ten")
            return graph(x)

        return run

    step = torch.compile(lambda x: x * 2, backend=backend)
    for number in range(12):
        print(step(torch.full((2,), float(number))).tolist())
