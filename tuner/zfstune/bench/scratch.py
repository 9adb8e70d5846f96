"""The disks that a benchmark erases: refusals, and the question."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from zfstrace.disk import Scratch
from zfstrace.host import Host
from zfstrace.printable import printable
from zfstrace.strict import strict_zip
from zfstune.errors import NotPossible, UsageError
from zfstune.term.log import say
from zfstune.term.table import aligned
from zfstune.term.units import format_size

DISK_BYTES = 1 << 30
SLOG_BYTES = 512 << 20


@dataclass(frozen=True)
class Wanted:
    """A disk named by an option, and its least size."""

    option: str
    path: str
    least_bytes: int = DISK_BYTES


def confirm(
    host: Host,
    wanted: Sequence[Wanted],
    force: Sequence[str],
    *,
    yes: bool,
    source: TextIO | None = None,
) -> list[Scratch]:
    """Examines the disks, lists what will be destroyed, and asks; writes nothing. Raises UsageError
    or TraceError for the first that must not be erased, and UsageError unless the answer is their
    names."""
    source = source or sys.stdin
    if not yes and not source.isatty():
        raise UsageError(
            "cannot ask whether the disks may be erased: stdin is not a terminal",
            "repeat with --yes",
        )
    _check_names(wanted, force)
    found = [host.scratch(one.path) for one in wanted]
    for one, disk in strict_zip(wanted, found):
        check(disk, one, forced=one.path in force)
    _check_distinct(wanted, found)
    for line in _listed(wanted, found):
        print(line, file=sys.stderr)
    if not yes:
        _ask([one.path for one in wanted], source)
    return found


def _check_names(wanted: Sequence[Wanted], force: Sequence[str]) -> None:
    names = [one.path for one in wanted]
    for name in force:
        if name not in names:
            raise UsageError(
                f"--force-erase {name}: no other option names this disk",
                f"repeat one of {', '.join(names)} exactly",
            )


def check(disk: Scratch, wanted: Wanted, *, forced: bool) -> None:
    """Raises NotPossible when the disk must not be erased."""
    what = f"{wanted.option} {wanted.path}"
    if disk.in_use:
        even = ", not even with --force-erase" if forced else ""
        raise NotPossible(f"{what} {printable(disk.in_use)}: not erased{even}")
    if disk.size_bytes < wanted.least_bytes:
        raise NotPossible(
            f"{what} is too small: it has {format_size(disk.size_bytes)}, "
            f"{format_size(wanted.least_bytes)} are needed"
        )
    if disk.data and not forced:
        raise NotPossible(
            f"{what} carries data ({printable(', '.join(disk.data))}): not erased",
            f"add --force-erase {wanted.path} if it may be",
        )


def _check_distinct(wanted: Sequence[Wanted], found: Sequence[Scratch]) -> None:
    seen: dict[tuple[int, int], str] = {}
    for one, disk in strict_zip(wanted, found):
        # two partitions of a disk may be used
        for dev in {disk.dev} | ({disk.disk} if disk.disk == disk.dev else set()):
            if dev in seen:
                raise UsageError(f"{seen[dev]} and {one.path} are one disk", "name each disk once")
        seen[disk.dev] = one.path
    for one, disk in strict_zip(wanted, found):
        if disk.disk != disk.dev and disk.disk in seen:
            raise UsageError(f"{one.path} is on {seen[disk.disk]}", "name each disk once")


def _listed(wanted: Sequence[Wanted], found: Sequence[Scratch]) -> list[str]:
    rows = [
        [
            one.path,
            "" if disk.device == one.path else f"({disk.device})",
            format_size(disk.size_bytes),
            printable(disk.model) or "-",
            printable(", ".join(disk.data)) or "blank",
        ]
        for one, disk in strict_zip(wanted, found)
    ]
    return [
        "zfstune: all data on these disks will be destroyed:",
        *aligned(rows, "<<><<", "  ", "  "),
    ]


def _ask(names: Sequence[str], source: TextIO) -> None:
    print("type the names to continue: ", end="", file=sys.stderr, flush=True)
    given = source.readline().split()
    if sorted(given) != sorted(names):
        raise UsageError("nothing was erased: these are not the names of the disks")


def blank(host: Host, disks: Sequence[Scratch]) -> list[str]:
    """Overwrites both ends of the disks with zeros; returns a sentence for each disk where that
    failed."""
    left = []
    for disk in disks:
        try:
            host.erase(disk)
        except Exception as error:
            why = getattr(error, "strerror", None) or error
            left.append(f"test data is left on {disk.path} ({why})")
    return left


def tell(left: Sequence[str]) -> None:
    """Prints each sentence on stderr."""
    for line in left:
        say(line)
