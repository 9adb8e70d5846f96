"""The table of what was seen to work on FreeBSD, from the outcomes of the tests in its guest."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

FEATURES = Path(__file__).with_name("freebsd_features.toml")
BEGIN, END = "<!-- verified:begin -->\n", "<!-- verified:end -->\n"


@dataclass(frozen=True)
class Feature:
    """tests are patterns of FILE::FUNCTION; otherwise is what it rests on without any."""

    name: str
    tests: tuple[str, ...]
    otherwise: str

    def has(self, test: str) -> bool:
        return any(fnmatchcase(test, pattern) for pattern in self.tests)


def load() -> list[Feature]:
    found = tomllib.loads(FEATURES.read_text())["feature"]
    return [
        Feature(one["name"], tuple(one.get("tests", ())), one.get("otherwise", "")) for one in found
    ]


def table(passed: Mapping[str, bool], where: str) -> str:
    """The table in Markdown. passed has the outcome of each test by its id in pytest; where is the
    system that ran them and when. Raises ValueError for a feature whose tests were not run."""
    lines = [f"Ran in the lab on {where}:", "", "| feature | ran |", "|---|---|"]
    for feature in load():
        outcomes = [ok for test, ok in passed.items() if feature.has(function(test))]
        if feature.tests and not outcomes:
            raise ValueError(f"no test ran of: {feature.name}")
        verdict = _verdict(outcomes) if outcomes else f"no: {feature.otherwise}"
        lines.append(f"| {feature.name} | {verdict} |")
    return "\n".join(lines) + "\n"


def _verdict(outcomes: Sequence[bool]) -> str:
    count, failed = len(outcomes), outcomes.count(False)
    if failed:
        return f"{failed} of {count} tests failed"
    return f"{count} tests" if count > 1 else "1 test"


def system(release: str, zfs: str) -> str:
    """``FreeBSD 15.0 with ZFS 2.4.0-rc4`` of ``15.0-RELEASE`` and ``2.4.0-rc4-FreeBSD_g1234``."""
    return f"FreeBSD {release.partition('-')[0]} with ZFS {zfs.partition('-FreeBSD')[0]}"


def function(test: str) -> str:
    """``FILE::FUNCTION`` of a test's id."""
    path, _, name = test.partition("::")
    return f"{Path(path).name}::{name.partition('[')[0]}"


def replaced(page: str, text: str) -> str:
    """The page with its table exchanged."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1]
