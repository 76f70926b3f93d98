"""The `torchtriage` command. Subcommands are imported when they are called, so that --help is instant."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. Ends the process with the exit status of the command; bad usage is one line and status 2."""
    from torchtriage.cli.app import app

    try:
        status = app(standalone_mode=False)
    except KeyboardInterrupt:
        print("torchtriage: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        said = getattr(
            error, "format_message", None
        )  # what Typer raises for bad usage, whichever click it carries
        if said is None:
            raise
        print(f"torchtriage: {said()}".replace("\n", " "), file=sys.stderr)
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
