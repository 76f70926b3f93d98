"""Which versions there are: package indexes (PEP 503 HTML, PEP 691/700 JSON), folders of wheels, plain lists.

Parses and filters; what is fetched comes through `network`. One wheel is chosen for each version, the one that pip would take.
"""

from __future__ import annotations

import html.parser
import json
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torchtriage.bisect.errors import BadInput
from torchtriage.bisect.network import fetch, shown

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


#: Why one is left out, and what takes it in.
PRERELEASE = "pre-release, which --pre takes"


@dataclass(frozen=True)
class Wheel:
    """One file of an index."""

    filename: str
    url: str
    version: Version
    tags: frozenset[Tag]
    build: tuple[int, str] | tuple[()] = ()
    size: int = 0
    """Bytes; 0 where the index does not say."""
    date: str = ""
    """As YYYY-MM-DD; empty where it is not known."""
    requires_python: str = ""
    yanked: str = ""
    """The reason; empty if it is not yanked."""
    metadata: bool = False
    """Whether `url + ".metadata"` is there (PEP 658)."""


@dataclass(frozen=True)
class Candidate:
    """A version that can be tried."""

    version: str
    date: str = ""
    size: int = 0
    url: str = ""


@dataclass(frozen=True)
class Listing:
    """The candidates, oldest first, and what was left out, by reason."""

    candidates: tuple[Candidate, ...]
    left_out: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Interpreter:
    """What wheels have to fit. `tags` in order of preference."""

    version: str
    tags: tuple[Tag, ...]


class Links(html.parser.HTMLParser):
    """The anchors of a PEP 503 page, with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def read_index(index: str, package: str) -> list[Wheel]:
    """All wheels of a package. Raises BadInput or Unreachable."""
    page = index.rstrip("/") + "/" + canonicalize_name(package) + "/"
    content, kind = fetch(page, ACCEPT)
    try:
        text = content.decode("utf-8", "replace")
        if "json" in kind or text.lstrip().startswith("{"):
            return parse_json(text, page)
        return parse_html(text, page)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{shown(page)} is not a package index: {error}") from error


def parse_json(text: str, page: str) -> list[Wheel]:
    """PEP 691, with the sizes and dates of PEP 700 where they are."""
    found = []
    for file in json.loads(text)["files"]:
        yanked = file.get("yanked", False)
        wheel = wheel_of(
            file["filename"],
            urllib.parse.urljoin(page, file["url"]),
            size=int(file.get("size") or 0),
            date=str(file.get("upload-time") or "")[:10],
            requires_python=file.get("requires-python") or "",
            yanked=(yanked if isinstance(yanked, str) and yanked else "no reason given") if yanked else "",
            metadata=bool(file.get("core-metadata") or file.get("dist-info-metadata")),
        )
        if wheel is not None:
            found.append(wheel)
    return found


def parse_html(text: str, page: str) -> list[Wheel]:
    """PEP 503 with the attributes of PEP 592 and 658."""
    links = Links()
    links.feed(text)
    found = []
    for link in links.found:
        url = urllib.parse.urljoin(page, link.get("href") or "")
        path = urllib.parse.urlsplit(url).path
        yanked = link.get("data-yanked", "") or "no reason given" if "data-yanked" in link else ""
        wheel = wheel_of(
            urllib.parse.unquote(path.rpartition("/")[2]),
            url.partition("#")[0],
            requires_python=link.get("data-requires-python") or "",
            yanked=yanked,
            metadata="data-core-metadata" in link or "data-dist-info-metadata" in link,
        )
        if wheel is not None:
            found.append(wheel)
    return found


def read_folder(folder: Path, package: str) -> list[Wheel]:
    """The wheels of a package in a folder."""
    if not folder.is_dir():
        raise BadInput(f"no such folder: {folder}")
    found = []
    for path in sorted(folder.glob("*.whl")):
        wheel = wheel_of(path.name, path.absolute().as_uri(), size=path.stat().st_size)
        if wheel is not None and canonicalize_name(path.name.split("-")[0]) == canonicalize_name(package):
            found.append(wheel)
    return found


def wheel_of(
    filename: str,
    url: str,
    *,
    size: int = 0,
    date: str = "",
    requires_python: str = "",
    yanked: str = "",
    metadata: bool = False,
) -> Wheel | None:
    """None for what is not a wheel: source archives are not built for a bisection."""
    try:
        _, version, build, tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    return Wheel(
        filename, url, version, tags, build, size, date or date_of(version), requires_python, yanked, metadata
    )


def date_of(version: Version) -> str:
    """The date in a nightly's version, as 2.15.0.dev20260110."""
    match = re.fullmatch(r"(20\d\d)([01]\d)([0-3]\d)", str(version.dev or ""))
    return "-".join(match.groups()) if match else ""


def choose(wheels: Iterable[Wheel], python: Interpreter, nightlies: bool = False) -> Listing:
    """One candidate for each version that fits; the rest by reason."""
    rank = {tag: number for number, tag in reversed(list(enumerate(python.tags)))}
    best: dict[Version, tuple[int, tuple[int, str] | tuple[()], Wheel]] = {}
    refused: dict[str, set[Version]] = {}
    for wheel in wheels:
        reason = unfit(wheel, python, rank, nightlies)
        if reason:
            refused.setdefault(reason, set()).add(wheel.version)
            continue
        fit = -min(rank[tag] for tag in wheel.tags if tag in rank)
        known = best.get(wheel.version)
        if known is None or (fit, wheel.build) > (known[0], known[1]):
            best[wheel.version] = (fit, wheel.build, wheel)
    chosen = merged_locals({version: wheel for version, (_, _, wheel) in best.items()})
    candidates = tuple(Candidate(str(v), w.date, w.size, w.url) for v, w in sorted(chosen.items()))
    left = {
        reason: tuple(map(str, sorted(v for v in versions if v not in best)))
        for reason, versions in refused.items()
    }
    return Listing(candidates, {k: v for k, v in left.items() if v})


def merged_locals(wheels: dict[Version, Wheel]) -> dict[Version, Wheel]:
    """2.13.0+cpu and 2.13.0 are one version; the one that an installer prefers (with a local part) stays."""
    chosen: dict[str, Version] = {}
    for version in sorted(wheels):
        chosen[version.public] = version
    return {version: wheels[version] for version in chosen.values()}


def unfit(wheel: Wheel, python: Interpreter, rank: dict[Tag, int], nightlies: bool) -> str:
    """Why a wheel is not a candidate; empty if it is."""
    if wheel.yanked:
        return "yanked"
    if wheel.requires_python:
        try:
            if not SpecifierSet(wheel.requires_python).contains(python.version, prereleases=True):
                return f"not for Python {python.version}"
        except InvalidSpecifier:
            pass
    if not any(tag in rank for tag in wheel.tags):
        return f"no wheel for Python {python.version} on this platform"
    if wheel.version.is_prerelease and not nightlies:
        return PRERELEASE
    return ""


def listed(text: str) -> Listing:
    """A list: versions apart by commas, spaces or lines, in the order in which they are to be searched."""
    lines = [line.partition("#")[0] for line in text.splitlines()]
    words = [word for line in lines for word in re.split(r"[\s,]+", line) if word]
    if len(set(words)) != len(words):
        raise BadInput("the list of versions names one of them twice")
    return Listing(tuple(Candidate(word, date_of(parsed(word))) for word in words), {})


def parsed(word: str) -> Version:
    try:
        return Version(word)
    except InvalidVersion as error:
        raise BadInput(f"{word!r} is not a version") from error


def between(listing: Listing, first: str, last: str) -> tuple[Candidate, ...]:
    """The candidates from `first` to `last`, both in it. Raises BadInput with what is there instead."""
    names = [c.version for c in listing.candidates]
    places = []
    for wanted in (first, last):
        place = position(names, wanted)
        if place is None:
            raise BadInput(out_of_reach(listing, wanted))
        places.append(place)
    low, high = places
    if low == high:
        raise BadInput(f"both ends are {names[low]}")
    if low > high:
        raise BadInput(f"{first} is newer than {last}")
    return listing.candidates[low : high + 1]


def position(names: Sequence[str], wanted: str) -> int | None:
    """Where a version is; 2.13.0 also finds 2.13.0+cpu, and a date finds the nightly of that day."""
    if wanted in names:
        return names.index(wanted)
    day = date_named(wanted)
    for index, name in enumerate(names):
        if (day and str(parsed(name).dev or "") == day) or same_version(name, wanted):
            return index
    return None


def date_named(wanted: str) -> str:
    """YYYYMMDD where a version is named by its date; else empty."""
    day = wanted.replace("-", "")
    return day if re.fullmatch(r"20\d{6}", day) else ""


def same_version(has: str, wanted: str) -> bool:
    """2.13 and v2.13.0 are 2.13.0, and so is 2.13.0+cpu; 2.13.0+cu128 is not 2.13.0+cpu."""
    a, b = parsed_or_none(has), parsed_or_none(wanted)
    if a is None or b is None:
        return has == wanted
    return a == b or (Version(a.public) == Version(b.public) and None in (a.local, b.local))


def parsed_or_none(word: str) -> Version | None:
    try:
        return Version(word)
    except InvalidVersion:
        return None


def out_of_reach(listing: Listing, wanted: str) -> str:
    """Why a version is not among the candidates."""
    reason = next((why for why, names in listing.left_out.items() if position(names, wanted) is not None), "")
    if not listing.candidates:
        return f"{wanted} is out of reach: there is no version at all" + _reasons(listing)
    first, last = listing.candidates[0].version, listing.candidates[-1].version
    if reason:
        return f"{wanted} is out of reach: {reason}. There are {len(listing.candidates)} others, from {first} to {last}"
    return (
        f"{wanted} is out of reach: there are {len(listing.candidates)} versions here, from {first} to {last}"
        + (_reasons(listing))
    )


def _reasons(listing: Listing) -> str:
    told = [f"{len(names)} {why}" for why, names in listing.left_out.items()]
    return f" (left out: {', '.join(told)})" if told else ""
