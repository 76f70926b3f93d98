"""Symptoms that show only after the region has returned: `after.py WHERE`. All of it works in eager mode."""

import pickle
import sys

import torch
from torch import nn

WHERE = sys.argv[1]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

if WHERE == "double-backward":  # a gradient penalty: AOTAutograd has no double backward
    critic = torch.compile(model, backend="aot_eager")
    x = torch.randn(5, 3, requires_grad=True)
    score = critic(x).sum()
    (slope,) = torch.autograd.grad(score, x, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    penalty.backward()  # here
    print("penalty", penalty.item())

if WHERE == "in-place":  # the caller goes on with the output in place

    class Frozen(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad

    def backend(graph, inputs):
        return lambda *args: [Frozen.apply(v) for v in graph(*args)]

    features = torch.compile(model, backend=backend)
    y = features(torch.randn(5, 3))
    y += 1  # here
    y.sum().backward()
    print("sum", y.sum().item())

if WHERE == "optimizer":  # gradients come, but the step cannot use them

    def backend(graph, inputs):
        def run(*args):
            out = graph(*args)
            out[0].register_hook(lambda grad: setattr(model[0], "touched", True))
            return out

        return run

    features = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: check())

    def check():
        if getattr(model[0], "touched", False):
            raise RuntimeError("sparse gradients are not supported")  # here

    features(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    print("stepped")

if WHERE == "exits":  # the program looks at the result and gives up
    features = torch.compile(
        model, backend=lambda graph, inputs: lambda *args: [v * float("nan") for v in graph(*args)]
    )
    with torch.no_grad():
        y = features(torch.randn(5, 3))
    if y.isnan().any():
        sys.exit("loss is nan")  # here
    print(pickle.loads(pickle.dumps(y)).sum().item())

if WHERE == "killed":  # the damage shows in the next operator
    import os
    import signal

    touched = []
    features = torch.compile(model, backend=lambda graph, inputs: touched.append(1) or graph)
    with torch.no_grad():
        y = features(torch.randn(5, 3))
    if touched:
        os.kill(os.getpid(), signal.SIGSEGV)
    print(y.sum().item())

if WHERE == "hangs":
    touched = []
    features = torch.compile(model, backend=lambda graph, inputs: touched.append(1) or graph)
    features(torch.randn(5, 3))
    while touched:
        pass
