"""The commands and their options. Each command is a thin caller of the API."""

from __future__ import annotations

from typing import Annotated

import typer

from torchtriage import __version__
from torchtriage.cli import bisect as bisect_commands
from torchtriage.cli import trace as trace_commands

app = typer.Typer(
    help="Find out why a PyTorch program fails under torch.compile, and what makes it go away.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(value: bool) -> None:
    if value:
        print(f"torchtriage {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Options of all commands."""


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
    epilog="Exit status: 0 nothing found, 1 a symptom found, 2 bad input or a program that fails in eager mode already, "
    "3 inconclusive, 130 interrupted.",
)
def diagnose(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET [ARGS]...", help="A script, or module:function. With -m, a module."),
    ],
    module: Annotated[
        bool, typer.Option("-m", help="TARGET is a module, to be run as `python -m` does.")
    ] = False,
    json_to: Annotated[
        str,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write the JSON report here too; - for stdout, and nothing else is printed there.",
        ),
    ] = "",
    jobs: Annotated[int, typer.Option(help="Trials at a time. 0: one a core, at most 4.")] = 0,
    trial_timeout: Annotated[float, typer.Option(help="Seconds that one trial may take.")] = 180.0,
    trial_memory: Annotated[float, typer.Option(help="GiB that one trial may take. 0: a fair share.")] = 0.0,
    isolation: Annotated[str, typer.Option(help="How trials start: fork, rerun, or auto.")] = "auto",
    max_calls: Annotated[int, typer.Option(help="Calls of compiled regions to watch.")] = 64,
    budget: Annotated[
        float, typer.Option(help="Seconds after which searches for causes and workarounds stop.")
    ] = 600.0,
    runs: Annotated[str, typer.Option(help="Folder for run folders.")] = "runs",
    python: Annotated[str, typer.Option(help="Interpreter to run the program with.")] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not go on with an unfinished run.")] = False,
    verdict_only: Annotated[
        bool,
        typer.Option(
            "--verdict-only", help="Stop at the verdict: no search for the cause and no workarounds."
        ),
    ] = False,
    reduce: Annotated[
        bool | None,
        typer.Option(
            "--reduce/--no-reduce",
            help="Go on to a reproducer with what is left of the budget, as `reduce` does. If not said: for bugs.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run a program under every layer of the compiler, and say which one is at fault and what helps."""
    from torchtriage.cli.diagnose import command

    command(
        target,
        list(context.args),
        module=module,
        json_to=json_to,
        quiet=quiet,
        settings={
            "jobs": jobs,
            "trial_timeout": trial_timeout,
            "trial_memory": int(trial_memory * (1 << 30)),
            "isolation": isolation,
            "max_calls": max_calls,
            "budget": budget,
            "runs": runs,
            "python": python,
            "fresh": fresh,
            "verdict_only": verdict_only,
        },
        reduce=reduce,
    )


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
    epilog="Exit status: 0 a script that was shown to fail by itself, 1 only a smaller program, 2 bad input or nothing to "
    "reduce, 130 interrupted (the best script so far is on disk).",
)
def reduce(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET [ARGS]...", help="A script, or module:function. With -m, a module."),
    ],
    module: Annotated[
        bool, typer.Option("-m", help="TARGET is a module, to be run as `python -m` does.")
    ] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds that the search may take.")] = 600.0,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace names and texts of the program by neutral ones.")
    ] = False,
    bundle: Annotated[
        bool, typer.Option(help="Collect torch's trace and logs of the script in bundle.zip.")
    ] = True,
    jobs: Annotated[int, typer.Option(help="Scripts at a time. 0: one a core, at most 4.")] = 0,
    trial_timeout: Annotated[float, typer.Option(help="Seconds that one trial may take.")] = 180.0,
    trial_memory: Annotated[float, typer.Option(help="GiB that one trial may take. 0: a fair share.")] = 0.0,
    isolation: Annotated[
        str, typer.Option(help="How trials of the verdict start: fork, rerun, or auto.")
    ] = "auto",
    runs: Annotated[str, typer.Option(help="Folder for run folders.")] = "runs",
    python: Annotated[str, typer.Option(help="Interpreter to run the program with.")] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not go on with an unfinished run.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Make the shortest script that fails in the same way, prove it, and write the issue."""
    from torchtriage.cli.reduce import command

    command(
        target,
        list(context.args),
        module=module,
        quiet=quiet,
        settings={
            "jobs": jobs,
            "trial_timeout": trial_timeout,
            "trial_memory": int(trial_memory * (1 << 30)),
            "isolation": isolation,
            "max_calls": 64,
            "budget": 600.0,
            "runs": runs,
            "python": python,
            "fresh": fresh,
        },
        more={"time_limit": time_limit, "redact": redact, "bundle": bundle},
    )


app.command()(trace_commands.trace)
app.command()(trace_commands.diff)
app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
    epilog="Exit status: 0 found, 2 bad input or an end that is not as said, 3 no single answer or stopped (the same command "
    "goes on), 130 interrupted.",
)(bisect_commands.bisect)
app.command()(bisect_commands.environments)
