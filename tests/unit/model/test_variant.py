"""A variant is plain data that survives JSON, and prints itself as Python to paste."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from torchtriage.model.variant import Limit, Variant

from .strategies import variants

quickly = settings(max_examples=80, deadline=None)


@quickly
@given(variants)
def test_a_variant_comes_back_from_json_as_it_was(variant: Variant) -> None:
    assert Variant.from_json(json.loads(json.dumps(variant.to_json()))) == variant


@quickly
@given(variants)
def test_what_a_variant_prints_is_python(variant: Variant) -> None:
    compile("\n".join(variant.lines()), "<lines>", "exec")
    for change in variant.changes():
        compile(change, "<change>", "exec")


@quickly
@given(variants)
def test_variants_can_be_keys(variant: Variant) -> None:
    assert {variant: "found"}[Variant.from_json(variant.to_json())] == "found"


def test_json_holds_only_what_is_changed() -> None:
    assert Variant().to_json() == {}
    assert Variant(dynamic=None).to_json() == {"dynamic": None}
    assert Variant(fullgraph=False, limit=Limit("inductor", "lowerings", 3)).to_json() == {
        "fullgraph": False,
        "limit": {"backend": "inductor", "subsystem": "lowerings", "maximum": 3, "start": 0},
    }


def test_the_last_value_of_a_switch_counts_and_the_order_of_switches_does_not() -> None:
    one = Variant().with_switches(("b", 2)).with_switches(("a", 1), ("a", 3))
    assert one == Variant().with_switches(("a", 3), ("b", 2))
    assert one.switches == (("a", 3), ("b", 2))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("__main__:rescale", "rescale = torch.compiler.disable(rescale)"),
        (
            "net.parts:Block.forward",
            "net.parts.Block.forward = torch.compiler.disable(net.parts.Block.forward)",
        ),
        (
            "net:Block.make|staticmethod",
            "net.Block.make = staticmethod(torch.compiler.disable(net.Block.make))",
        ),
        (
            "net:Block.make|classmethod",
            "net.Block.make = classmethod(torch.compiler.disable(net.Block.make.__func__))",
        ),
    ],
)
def test_a_disabled_function_is_replaced_where_it_is_defined(name: str, line: str) -> None:
    assert Variant(disabled=(name,)).lines() == [line]


def test_settings_of_torch_compile_are_named_together() -> None:
    changed = Variant(backend="aot_eager", dynamic=None, mode="default", fullgraph=False)
    assert changed.changes() == [
        "torch.compile(..., backend='aot_eager', dynamic=None, mode='default', fullgraph=False)"
    ]


def test_switches_come_before_functions_and_operators_before_settings() -> None:
    changed = Variant(
        backend="eager",
        switches=(("torch._inductor.config.cpp.simdlen", 1),),
        disabled=("__main__:f",),
        eager_operators=("aten.ldexp.Tensor",),
    )
    switch, function, operator, settings_of_compile = changed.changes()
    assert switch == "torch._inductor.config.cpp.simdlen = 1"
    assert function == "f = torch.compiler.disable(f)"
    assert operator.splitlines()[-1] == (
        "torch._inductor.lowering.make_fallback(torch.ops.aten.ldexp.Tensor, warn=False, override_decomp=True)"
    )
    assert settings_of_compile == "torch.compile(..., backend='eager')"


def test_a_region_is_not_compiled_since_torch_compile_unwraps_what_is_disabled() -> None:
    line = "torch.compile(rescale, ..., disable=True)"
    assert Variant(disabled=("__main__:rescale|region",)).lines() == [line]
