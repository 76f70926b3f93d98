"""What the commands ask of a path before a long run."""

from __future__ import annotations

import os
from pathlib import Path


def can_be_written(path: str) -> bool:
    """Whether a file can be made or replaced there."""
    file = Path(path).absolute()
    return (
        not file.is_dir()
        and file.parent.is_dir()
        and os.access(file if file.exists() else file.parent, os.W_OK)
    )
