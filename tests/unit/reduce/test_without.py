"""Each condition is taken out of a script as a person would do it, and only where it is there."""

import ast

import pytest

from torchtriage.reduce import conditions, without
from torchtriage.reduce import tree as trees

HEAD = "import torch\nf = torch.compile(net)\n"
#: condition -> a script that has it, and the script without it
KNOWN = {
    "a stride": (HEAD + "x = torch.ones(2, 3).t()\nf(x)\n", HEAD + "x = torch.ones(2, 3).t().contiguous()\nf(x)\n"),
    "an alias": (HEAD + "x = torch.ones(4)\nf(x, x[1:])\n", HEAD + "x = torch.ones(4)\nf(x.clone(), x[1:].clone())\n"),
    "a second call": (
        HEAD + "def run():\n    f(1)\n    for i in range(3):\n        y = f(i)\n    return y\n",
        HEAD + "def run():\n    i = next(iter(range(3)))\n    y = f(i)\n    return y\n",
    ),
    "a tensor subclass": (
        "import torch\nclass Own(torch.Tensor):\n    pass\nx = f(torch.ones(3).as_subclass(Own), Own(y))\n",
        "import torch\nx = f(torch.ones(3), y)\n",
    ),
    "a custom operator": (
        "import torch\n@torch.library.custom_op('me::twice', mutates_args=())\ndef twice(x):\n    return x * 2\n"
        "@twice.register_fake\ndef _(x):\n    return x\nf(lambda x: torch.ops.me.twice(x), twice)\n",
        "def twice(x):\n    return x * 2\nf(lambda x: twice(x), twice)\n",
    ),
    "compiled autograd": (
        HEAD + "with torch._dynamo.compiled_autograd._enable(c):\n    f(1)\n", HEAD + "f(1)\n",
    ),
    "hooks": (HEAD + "net.register_forward_hook(g)\nf(1)\n", HEAD + "f(1)\n"),
    "autocast": (HEAD + "with torch.autocast('cpu'):\n    f(1)\n", HEAD + "f(1)\n"),
    "requires_grad": (HEAD + "f(torch.ones(2, requires_grad=True))\n", HEAD + "f(torch.ones(2))\n"),
    "mutation": (HEAD + "x.mul_(2)\nx += 1\nf(x)\n", HEAD + "x.mul(2)\nx = x + 1\nf(x)\n"),
    "a mode or options": ("import torch\ntorch.compile(net, mode='max-autotune')(1)\n", "import torch\ntorch.compile(net)(1)\n"),
    "dynamic shapes": ("import torch\ntorch.compile(net)(1)\n", "import torch\ntorch.compile(net, dynamic=False)(1)\n"),
}  # fmt: skip
ROWS = {row.name: row for row in conditions.TABLE}
PLAIN = "import torch\n\ndef net(x):\n    return x + 1\nprint(net(torch.ones(3)))\n"


@pytest.mark.parametrize("name", KNOWN)
def test_a_condition_is_taken_out(name: str) -> None:
    text, expected = KNOWN[name]
    tree = ast.parse(text)
    before = trees.loaded(tree)
    assert ROWS[name].change(tree)
    trees.tidy(tree, before)
    assert trees.text_of(tree) == trees.text_of(ast.parse(expected))


@pytest.mark.parametrize("name", [name for name in ROWS if name != "dynamic shapes"])
def test_what_a_script_does_not_have_is_not_taken_out(name: str) -> None:
    tree = ast.parse(PLAIN)
    assert not ROWS[name].change(tree) and ast.unparse(tree) == ast.unparse(ast.parse(PLAIN))


def test_arguments_without_a_common_root_are_no_alias() -> None:
    tree = ast.parse(HEAD + "x = torch.ones(3)\ny = torch.ones(3)\nf(x, y)\n")
    assert not without.aliases(tree)
    assert without.aliases(ast.parse(HEAD + "x = torch.ones(3)\ny = x.view(3, 1)\nf(y)\n"))


def test_a_view_inside_of_compiled_code_is_no_stride_of_an_input() -> None:
    tree = ast.parse(
        "import torch\n@torch.compile\ndef f(x):\n    y = x.t()\n    return y\nf(torch.ones(2, 2))\n"
    )
    assert not without.strides(tree)
