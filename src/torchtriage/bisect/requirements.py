"""What goes into every environment beside the bisected package: requirement files, further packages, what is held."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from torchtriage.bisect.companions import FREED, MATCHED
from torchtriage.bisect.errors import BadInput


@dataclass(frozen=True)
class Beside:
    """The rest of an environment."""

    fixed: tuple[str, ...] = ()
    """Requirements as they are."""
    matched: tuple[str, ...] = ()
    """Names whose version follows torch's."""
    files: tuple[str, ...] = ()
    """Files with what could not be taken apart (URLs, options), for the installer."""
    extras: tuple[str, ...] = ()
    """Extras that are asked of the bisected package."""


def beside(
    package: str, further: tuple[str, ...], files: tuple[str, ...], hold: tuple[str, ...], folder: Path
) -> Beside:
    """Leave out the bisected package, and set free what has to follow torch. Writes what is left of a file to `folder`."""
    fixed: list[str] = []
    matched: list[str] = []
    rest: list[str] = []
    extras: set[str] = set()
    own = canonicalize_name(package)
    lines = [*further, *hold]
    for file in files:
        lines += read_lines(Path(file))
    for line in lines:
        name = name_of(line)
        if name is None:
            rest.append(line)
        elif name == own:
            extras |= Requirement(without_hashes(line)).extras
        elif own == "torch" and name in FREED:
            matched += [name] if name in MATCHED and name not in matched else []
        elif line not in fixed:
            fixed.append(line)
    if not rest:
        return Beside(tuple(fixed), tuple(matched), (), tuple(sorted(extras)))
    kept = folder / "requirements-rest.txt"
    kept.write_text("\n".join(rest) + "\n")
    return Beside(tuple(fixed), tuple(matched), (str(kept),), tuple(sorted(extras)))


def text_of(file: Path | str) -> str:
    """Raises BadInput for what cannot be read, or is no text."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"cannot read {file}: it is not a text in UTF-8") from error


def read_lines(file: Path, within: tuple[Path, ...] = ()) -> list[str]:
    """The requirements of a file, with those that it includes. Raises BadInput."""
    if file.absolute() in within:
        raise BadInput(f"{file} includes itself")
    found: list[str] = []
    for line in text_of(file).replace("\\\n", " ").splitlines():
        plain = re.sub(r"(?:^|\s)#.*$", "", line).strip()
        included = re.match(r"(?:-r|--requirement)[ =](.+)", plain)
        if included:
            found += read_lines(file.parent / included.group(1).strip(), (*within, file.absolute()))
        elif plain:
            found.append(at_its_place(plain, file.parent))
    return found


def at_its_place(line: str, folder: Path) -> str:
    """An option that names a file or folder beside the requirements, by its full address: what is left is written elsewhere."""
    named = re.fullmatch(r"(-c|--constraint|-f|--find-links)[ =]+(\S.*)", line)
    path = folder / named.group(2) if named else folder
    return f"{named.group(1)} {path.absolute().as_uri()}" if named and path.exists() else line


def without_hashes(line: str) -> str:
    return re.sub(r"\s--hash=\S+", "", line)


def name_of(line: str) -> str | None:
    """The package that a line asks for; None for options, URLs and paths."""
    try:
        requirement = Requirement(without_hashes(line))
    except InvalidRequirement:
        return None
    return None if requirement.url else canonicalize_name(requirement.name)
