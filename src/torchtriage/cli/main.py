"""The `torchtriage` command. Subcommands are imported when they are called, so that --help is instant."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. Ends the process with the exit status of the command."""
    from torchtriage.cli.app import app

    try:
        app()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
