"""Signs that a host is in production; tuning belongs on staging."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from zfstrace import processes

_NAME = re.compile(r"(?:^|[-_.\d])(prod|prd|production|live)(?:$|[-_.\d])", re.IGNORECASE)
_DAYS = 30
_DATABASES = ("postgres", "mysqld", "mariadbd", "mongod", "oracle", "redis-server")
_CLUSTER = (
    "etc/corosync/corosync.conf",
    "etc/keepalived/keepalived.conf",
    # FreeBSD
    "etc/hast.conf",
    "usr/local/etc/corosync/corosync.conf",
    "usr/local/etc/keepalived/keepalived.conf",
)
_DAY_S = 86400.0
_ROOT = Path("/")
# FreeBSD takes everything after a = for the column's heading
PS = ("ps", "-ax", "-o", "pid=", "-o", "etimes=", "-o", "comm=")
_PS_S = 5


def signs(hostname: str | None = None, root: Path = _ROOT) -> list[str]:
    """Why the host looks like production; empty if it does not."""
    name = hostname if hostname is not None else socket.gethostname()
    found = [sign for sign in (_by_name(name), *(look(root) for look in _LOOKS)) if sign]
    return found


def _by_name(name: str) -> str:
    match = _NAME.search(name)
    return f"its name, {name}, contains {match[1]!r}" if match else ""


def _uptime_s(root: Path) -> float:
    try:
        return float((root / "proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        # without /proc; this clock begins at boot
        return time.monotonic() if root == _ROOT else 0.0


def _by_uptime(root: Path) -> str:
    days = _uptime_s(root) / _DAY_S
    return f"it has been up for {days:.0f} days" if days >= _DAYS else ""


def _by_database(root: Path) -> str:
    """A database that has run for a day is in use."""
    for pid, comm, run_s in _processes(root):
        if comm in _DATABASES and run_s >= _DAY_S:
            days = round(run_s / _DAY_S)
            return f"{comm} (process {pid}) has been running for {days} day{'s' * (days > 1)}"
    return ""


def _processes(root: Path) -> Iterator[tuple[str, str, float]]:
    """(process, name, seconds that it has run); from ps(1) without /proc."""
    up_s, seen = _uptime_s(root), False
    for pid in _numbers(root / "proc"):
        try:
            # any user can give a process a name that is not UTF-8
            text = (root / "proc" / pid / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        seen = True
        comm, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) >= 20 and fields[19].isdecimal():
            # starttime, in ticks of 1/100 s
            yield pid, comm, up_s - int(fields[19]) / 100
    if not seen and root == _ROOT:
        yield from parse_ps(processes.output(PS, _PS_S))


def _numbers(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir() if path.name.isdigit())
    except OSError:
        return []


def parse_ps(text: str) -> Iterator[tuple[str, str, float]]:
    """(process, name, seconds) from the output of PS, on Linux and FreeBSD."""
    for line in text.split("\n"):
        words = line.split(None, 2)
        if len(words) == 3 and words[1].isdigit():
            yield words[0], words[2].strip(), float(words[1])


def _by_cluster(root: Path) -> str:
    for name in _CLUSTER:
        if (root / name).exists():
            return f"it is part of a cluster (/{name})"
    return ""


_LOOKS: tuple[Callable[[Path], str], ...] = (_by_uptime, _by_database, _by_cluster)
