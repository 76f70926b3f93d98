"""Every way of handing code to the compiler, each with a backend that refuses to compile: eager calls work, compiled calls raise."""

import functools

import helper_compiled
import torch
import torch._dynamo
from torch import compile, nn


def refuse(graph, inputs):
    raise RuntimeError("refused")


x = torch.ones(2, 2, requires_grad=True)
done = []


def call(name, function, *args):
    result = function(*args)
    done.append(name)
    return result


def plain(x):
    return x + 1


call("function", torch.compile(plain, backend=refuse), x)


@torch.compile(backend=refuse, dynamic=True)
def decorated_with_arguments(x):
    return x + 2


call("decorator with arguments", decorated_with_arguments, x)


@compile(backend=refuse)
def imported_name(x):
    return x + 3


call("from torch import compile", imported_name, x)


@torch._dynamo.optimize(refuse)
def optimized(x):
    return x + 4


call("torch._dynamo.optimize", optimized, x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x).relu()


class InPlace(Block):
    def forward(self, x):
        return self.linear(x).tanh()


class ByAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.forward = torch.compile(self.forward, backend=refuse)

    def forward(self, x):
        return self.linear(x).sigmoid()


class DecoratedForward(Block):
    @torch.compile(backend=refuse)
    def forward(self, x):
        return self.linear(x).sin()


class WithMethod(nn.Module):
    def generate(self, x):
        return x.exp()


call("torch.compile(module)", torch.compile(Block(), backend=refuse), x)
in_place = InPlace()
in_place.compile(backend=refuse)
call("Module.compile()", in_place, x)
call("self.forward = torch.compile(self.forward)", ByAttribute(), x)
call("decorated forward", DecoratedForward(), x)
call("bound method", torch.compile(WithMethod().generate, backend=refuse), x)


@torch.compile(backend=refuse)
def inner(x):
    return x * 2


def outer(x):
    return inner(x) + 1


call("one region inside another", torch.compile(outer, backend=refuse), x)
call("that region by itself", inner, x)

block = Block()
optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
block(x).sum().backward()


@torch.compile(backend=refuse)
def optimizer_step():
    optimizer.step()


call("optimizer step", optimizer_step)
call("bound optimizer step", torch.compile(torch.optim.AdamW(block.parameters()).step, backend=refuse))
call("another module", helper_compiled.make(refuse), x)
call("partial", functools.partial(torch.compile, backend=refuse)(lambda x: x - 1), x)
print("done", len(done), flush=True)
