"""Packages that go with one torch only (torchvision, torchaudio): which version of them asks for which torch."""

from __future__ import annotations

import email.parser
import re
import zipfile
from collections.abc import Callable, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchtriage.bisect.errors import BadInput, CannotInstall
from torchtriage.bisect.network import fetch, open_ranged
from torchtriage.bisect.versions import Wheel

#: Matched by their metadata. triton is not here: torch's own metadata names it, so installers match it themselves.
MATCHED = ("torchvision", "torchaudio", "torchtext", "torchcodec")
#: Never taken over from the project's requirements when torch is bisected.
FREED = (*MATCHED, "triton", "pytorch-triton")
#: Files whose metadata is looked at before giving up.
MOST = 60


def requires(wheel: Wheel) -> list[Requirement]:
    """What a wheel requires: from the metadata file beside it where there is one, else out of the wheel."""
    if wheel.metadata:
        text = fetch(wheel.url + ".metadata")[0].decode("utf-8", "replace")
    else:
        text = metadata_inside(wheel.url)
    message = email.parser.Parser().parsestr(text, headersonly=True)
    found = []
    for line in message.get_all("Requires-Dist", []):
        try:
            found.append(Requirement(line))
        except InvalidRequirement:
            continue
    return found


def metadata_inside(url: str) -> str:
    try:
        with open_ranged(url) as file, zipfile.ZipFile(file) as archive:
            names = [n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)]
            return archive.read(names[0]).decode("utf-8", "replace") if names else ""
    except (OSError, zipfile.BadZipFile) as error:
        raise BadInput(f"the wheel could not be read: {error}") from error


def matching(
    name: str,
    wheels: Sequence[Wheel],
    torch: Wheel | None,
    version: str,
    read: Callable[[Wheel], list[Requirement]] = requires,
) -> str:
    """`name==VERSION` that requires this torch. Raises CannotInstall where there is none."""
    wanted = Version(version)
    looked = 0
    for wheel in by_nearness(wheels, torch.date if torch else "", wanted):
        if looked >= MOST:
            break
        looked += 1
        try:
            asked = [r for r in read(wheel) if canonicalize_name(r.name) == "torch"]
        except BadInput:
            continue
        if any(fits(requirement, wanted) for requirement in asked):
            return f"{name}=={wheel.version}"
    raise CannotInstall(f"no {name} goes with torch {version} ({looked} were looked at)")


def fits(requirement: Requirement, wanted: Version) -> bool:
    """Whether it asks for exactly this torch: `torch` alone, or a lower bound, matches nothing in particular."""
    exact = [s for s in requirement.specifier if s.operator in ("==", "===", "~=")]
    return bool(exact) and requirement.specifier.contains(wanted, prereleases=True)


def by_nearness(wheels: Sequence[Wheel], date: str, wanted: Version) -> list[Wheel]:
    """Those released about when torch was come first; without dates, by the minor version that usually goes with it."""

    def apart(wheel: Wheel) -> tuple[float, str]:
        if date and wheel.date:
            return float(abs(days(wheel.date) - days(date))), str(wheel.version)
        minor = wheel.version.minor + (
            15 if wheel.version.major == 0 else 0
        )  # torchvision 0.24 goes with torch 2.9
        return float(abs(minor - wanted.minor)), str(wheel.version)

    return sorted(wheels, key=apart)


def days(date: str) -> int:
    year, month, day = (int(part) for part in date.split("-"))
    return year * 372 + month * 31 + day
