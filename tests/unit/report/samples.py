"""Diagnoses to render: one of each kind, and one whose every string is hostile."""

from __future__ import annotations

import dataclasses
from typing import Any

from torchtriage.model.diagnosis import (
    LAYERS,
    Cell,
    Culprit,
    Diagnosis,
    Environment,
    Program,
    Region,
    Symptom,
    Workaround,
)
from torchtriage.model.outcome import Difference, ExceptionInfo, GraphBreak, Recompile

TRACEBACK = "Traceback (most recent call last):\n" + "".join(
    f'  File "/venv/site-packages/torch/_dynamo/frame_{i}.py", line {i}, in step\n    return inner(frame_{i})\n'
    for i in range(60)
)


def cell(word: str, trial: str = "", **more: Any) -> Cell:
    return Cell(
        word=word,
        trial=trial or f"t-{abs(hash(word)) % 997}",
        **{"graphs": 1, "captured": 5, "seconds": 1.2, **more},
    )


def matrix(*words: str, dynamic: tuple[str, ...] = ("None", "True", "False")) -> dict[str, dict[str, Cell]]:
    """A word for each backend, the same for every value of dynamic."""
    return {
        backend: {d: cell(word, f"{backend}-{d}") for d in dynamic}
        for backend, word in zip(LAYERS, words, strict=True)
    }


def environment() -> Environment:
    return Environment(
        torch="2.13.0+cpu",
        torch_git="abc1234",
        python="3.11.2",
        os="Debian 12, Linux 6.1",
        cpu="Xeon Platinum 8481C, 2 cores",
        compiler="g++ 12.2.0",
        variables={"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_FREEZING": "1"},
        configs={"torch._inductor.config.freezing": "True", "torch._dynamo.config.cache_size_limit": "16"},
        threads=2,
        packages={"numpy": "2.1.0", "transformers": "4.55.0"},
    )


def diagnosis(**changes: Any) -> Diagnosis:
    """Nothing wrong, unless changes say so."""
    base = Diagnosis(
        kind="none",
        symptoms=(),
        program=Program(
            target="train.py --steps 3",
            regions=(
                Region("Model.forward", "train.py", 42, "dynamic=None", 3, 2),
                Region("AdamW.step", "train.py", 50, "", 3, 1),
            ),
            calls=6,
            signatures=3,
            seconds=0.4,
        ),
        matrix=matrix("same", "same", "same", "same"),
        modes={"default": cell("same"), "reduce-overhead": cell("same", detail="no CUDA, as default")},
        own=cell("same"),
        own_settings="mode='default'",
        environment=environment(),
        command="torchtriage diagnose train.py --steps 3",
        run_folder="runs/train-20260711-101500",
        started="2026-07-11T10:15:00Z",
        seconds=41.5,
        trials=31,
        version="0.1.0",
    )
    return dataclasses.replace(base, **changes)


def wrong_value() -> Diagnosis:
    return diagnosis(
        kind="bug",
        symptoms=("value",),
        symptom=Symptom(
            words=("value",),
            region="Model.forward",
            file="train.py",
            line=42,
            call=1,
            sentence="output 0 differs from eager by 3.1e-1 at [0, 7]",
            differences=(
                Difference(1, "output[0]", "value", "by 3.1e-1 at [0, 7], 12 of 64 elements", 0.31, eager="0.5", compiled="0.81", float64="0.5"),
                Difference(1, "grad[scale.weight]", "value", "by 1e-7", 1e-7, True, "eager's own noise is 2e-7"),
            ),
            evidence=("eager repeats itself exactly; `float64` says eager is right",),
            signature="differs value output[0]",
        ),
        matrix=matrix("same", "same", "same", "differs:value"),
        modes={
            "default": cell("differs:value"),
            "max-autotune": cell("differs:value"),
            "reduce-overhead": cell("same", detail="no CUDA, as default"),
        },
        own=cell("differs:value"),
        first_failing_layer="inductor",
        needs=("float16", "second-call"),
        remarks=("Only the backward of call 1 fails with `dynamic=True`.",),
        culprit=Culprit("lowering", "lowering 14 of 23", "aten.ldexp", "model.py", 88, "y = torch.ldexp(x, n)", "With 13 lowerings the output is the same, with 14 it differs."),
        explanation="Inductor computes `ldexp` in float32 and does not round back.",
        workarounds=(
            Workaround(
                "torch._inductor.config.emulate_precision_casts = True",
                ("torch._inductor.config.emulate_precision_casts = True",),
                "same",
                "Rounds where eager rounds.",
                1.02,
                variant={"switches": [["torch._inductor.config.emulate_precision_casts", True]]},
            ),
            Workaround(
                "torch.compiler.disable on Block.rescale",
                ("Block.rescale = torch.compiler.disable(Block.rescale)",),
                "same",
                step_time_ratio=1.31,
            ),
        ),
        tried=("torch._inductor.config.fallback_random = True", "dynamic=False"),
    )  # fmt: skip


def exception() -> Diagnosis:
    """Not monotone; the exception's class is too long for a table of 100 columns."""
    word = "raises:InternalTorchDynamoError"
    return diagnosis(
        kind="bug",
        symptoms=("exception",),
        symptom=Symptom(
            words=("exception",),
            region="Net.forward",
            file="/home/someone/projects/very-long-project-name/src/package/subpackage/networks/model_definition.py",
            line=120,
            call=0,
            exception=ExceptionInfo(
                "torch._dynamo.exc.InternalTorchDynamoError",
                "AttributeError: 'NoneType' object has no attribute 'size'\nfrom user code:\n   line 121",
                chain=("AttributeError",),
                user_file="model.py",
                user_line=121,
                user_code="return self.head(x).size",
                torch_frames=("torch/_dynamo/symbolic_convert.py:run",),
                traceback=TRACEBACK,
            ),
        ),
        matrix=matrix("same", word, "same", "raises:BackendCompilerFailed"),
        own=cell("raises:BackendCompilerFailed"),
        modes={},
        first_failing_layer="aot_autograd",
        monotone=False,
        culprit=Culprit(operator="aten.view", how="Kept eager, it does not raise."),
        workarounds=(
            Workaround(
                "keep aten.view eager",
                (
                    "import torch._inductor.lowering\ntorch._inductor.lowering.make_fallback(torch.ops.aten.view)",
                ),
                "same",
                step_time_ratio=0.98,
                ratio_against="eager",
            ),
            Workaround("dynamic=False", ("torch.compile(..., dynamic=False)",), "same"),
        ),
    )


def by_design() -> Diagnosis:
    return diagnosis(
        kind="by-design",
        symptoms=("value",),
        symptom=Symptom(("value",), "f", "drop.py", 11, 0, "output 0 differs in 50 of 100 elements"),
        matrix=matrix("same", "same", "differs:value", "differs:value"),
        first_failing_layer="decomposition_partition",
        needs=("rng",),
        explanation="Compiled dropout draws other random numbers than eager, unless `fallback_random` is set.",
        source="pytorch/pytorch#113169",
    )


def noise() -> Diagnosis:
    return diagnosis(
        kind="noise",
        symptoms=("value",),
        symptom=Symptom(
            ("value",), "f", "bf16.py", 9, 0, "output 0 differs by 1.2e-2",
            differences=(Difference(0, "output[0]", "value", "by 1.2e-2", 1.2e-2, True, "float64 lies closer to compiled"),),
            evidence=("eager itself is 2.0e-2 from float64, compiled 0.9e-2",),
        ),
        explanation="bfloat16 rounds after each operator in eager, and once in a fused kernel.",
        source="https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    )  # fmt: skip


def user_error() -> Diagnosis:
    raised = ExceptionInfo(
        "IndexError", "index 7 is out of bounds for dimension 0 with size 5", user_file="e.py", user_line=4
    )
    return diagnosis(
        kind="user-error",
        symptoms=("exception",),
        symptom=Symptom(
            ("exception",), "f", "e.py", 4, 0, "eager raises IndexError as well", exception=raised
        ),
        program=dataclasses.replace(diagnosis().program, eager_exception=raised),
        matrix=matrix(*["raises:IndexError"] * 4),
        explanation="The index is out of range in eager mode too.",
    )


def nothing() -> Diagnosis:
    return diagnosis()


def fails_in_eager() -> Diagnosis:
    raised = ExceptionInfo("ValueError", "no such data set")
    return diagnosis(
        program=Program("train.py", eager_exception=raised), matrix={}, modes={}, own=None, trials=0
    )


def recompiles() -> Diagnosis:
    return diagnosis(
        kind="bug",
        symptoms=("recompiles", "graph-break"),
        symptom=Symptom(("recompiles",), "step", "loop.py", 8, sentence="compiled 8 times for 9 calls"),
        matrix={**matrix(*["differs:recompiles"] * 4), "eager": {"None": cell("differs:recompiles"), "True": cell("same")}},
        first_failing_layer="dynamo",
        recompiles=(
            *(Recompile("step", f"L['n'] == {i}", "loop.py", 8) for i in range(8)),
            Recompile("other", "tensor 'x' size mismatch at index 0. expected 4, actual 5"),
        ),
        graph_breaks=(
            *[GraphBreak("call to print\nsecond line", "loop.py", 9, "print(x)", ("Remove the `print`.",))] * 3,
            *(GraphBreak(f"reason {i}", "loop.py", 20 + i) for i in range(5)),
        ),
        tried=("dynamic=True",),
    )  # fmt: skip


def inconclusive() -> Diagnosis:
    return diagnosis(
        kind="inconclusive",
        symptoms=(),
        inconclusive_reason="the stage could not be started: no C++ compiler was found",
        matrix=matrix("same", "same", "inconclusive", "inconclusive"),
    )


EVIL = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"quoted' & {{ 7*7 }} {% raw %}"
    " | a ``` b ` c **bold** _it_ [link](https://evil.example) ![i](https://evil.example/p.png) @everyone"
    " \x1b[31mred\x1b[0m \x1b]0;title\x07 \x00\x07\x9b5n \u202egnp.exe \ud800 [red]markup[/red] 日本語 é 👩‍💻"
    "\n```\n# heading\n| x | y |\n|---|---|\n--> </details>\r\n$x$ ~~s~~"
)


def hostile() -> Diagnosis:
    """Every string of a full diagnosis is hostile, and there are very many and very long ones."""
    full = dataclasses.replace(
        wrong_value(), graph_breaks=recompiles().graph_breaks, recompiles=recompiles().recompiles,
        source=EVIL, inconclusive_reason=EVIL,
    )  # fmt: skip
    poisoned = _poison(full)
    raised = _poison(exception().symptom.exception)  # type: ignore[union-attr]
    raised = dataclasses.replace(raised, message=EVIL * 2000, traceback=(EVIL + "\n") * 4000)
    symptom = dataclasses.replace(poisoned.symptom, exception=raised, sentence=EVIL, evidence=(EVIL,) * 50)
    return dataclasses.replace(
        poisoned,
        symptom=symptom,
        tried=(EVIL * 50,) * 300,
        explanation=EVIL * 100,
        workarounds=poisoned.workarounds * 40,
    )


def _poison(value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        return value if name in ("kind", "aspect", "own_dynamic", "ratio_against") else f"{value}{EVIL}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _poison(getattr(value, f.name), f.name) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(_poison(item) for item in value)
    if isinstance(value, dict) and name == "matrix":
        return {_poison(b): {d: _poison(c) for d, c in row.items()} for b, row in value.items()}
    if isinstance(value, dict):
        return {_poison(key): _poison(item) for key, item in value.items()}
    return value


SAMPLES = {
    make.__name__: make
    for make in (
        wrong_value, exception, by_design, noise, user_error, nothing, fails_in_eager, recompiles, inconclusive, hostile
    )
}  # fmt: skip
