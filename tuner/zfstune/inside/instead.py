"""What answers a question where BPF programs or the library do not work: one-file tools and kstats.

A way is offered only if it would work on this host as it is.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zfstrace import packaged
from zfstrace.host import Host
from zfstrace.types import Check, Json
from zfstune.inside import collect
from zfstune.inside.tools import HERE
from zfstune.term.table import wrap

_CHECKOUT = Path(__file__).resolve().parents[3]
# where packages and `make install-tools` put tools; sudo's PATH may lack the latter
_SBIN = ("/usr/local/sbin", "/usr/sbin")
_DIRECTORY = "/root/tools"
TITLE = "this works here all the same, best first:"

# A way is a one-file tool or, with spaces, a command that reads kstats, only those of every version
# of ZFS. {zfstune} runs this copy, {pool} is a pool.
_LOG = "{zfstune} check {pool} --show zil.commits,txg.sync.p99"
_THROTTLE = "{zfstune} check {pool} --show throttle.delays,txg.dirty"
_TXG = "{zfstune} trace txg {pool} --source kstat"
_ARC = "{zfstune} trace arc --source kstat"
_READ = "{zfstune} trace read {pool} --source kstat"
_IOSTAT = "zpool iostat -vl {pool} 1"
_ADVISE = "{zfstune} advise {pool}"
GIVES = {
    "zilcommit.d": "histogram and sum of each stage",
    "zilcommit.bt": "histogram and sum of each stage; log_write, flush and wakeup are one",
    "zildist.py": "histograms by stage, per interval; log_write, flush and wakeup are one",
    "zilslower.d": "one line for each commit of 10 ms or more, with its parts",
    "zilslower.bt": "one line for each commit of 10 ms or more, with its parts",
    "zilslower.py": "one line for each commit of 10 ms or more, with its parts and the pool",
    "zfsflush.d": "times of log writes and of cache flushes",
    "zfsflush.bt": "times of log writes and of cache flushes",
    "txgstate.d": "how long each txg is in each state",
    "txgstate.bt": "how long each txg is in each state",
    "zfsthrottle.d": "which writers are delayed, and how long",
    "zfsthrottle.bt": "which writers are delayed, and how long",
    "arcstate.d": "pressure on the cache, and who waited for room",
    "fsyncstack.d": "stacks in which fsyncs wait, and run; `zfstune flame` draws them",
    "fsyncoffcpu.bt": "stacks in which fsyncs wait; `zfstune flame` draws them",
    _LOG: "how many commits, how long txgs sync; no time of any fsync",
    _THROTTLE: "how many transactions were delayed, and the most dirty data; not whose",
    _TXG: "one line per txg: its times, its size",
    _ARC: "size, hits and misses; not who waited",
    _READ: "how many reads and writes of each dataset, and their bytes; no times",
    _IOSTAT: "average waits by vdev and queue; no cache flushes",
    _ADVISE: "bad settings of the pool, whatever its fsyncs do",
}
# What follows the name of a tool: ms
_WORDS = {"zilslower.d": " 10", "zilslower.bt": " 10", "zilslower.py": " 10"}
# The best answer first. The names are those of the traces, and of commands.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "diagnose": (
        *("zilcommit.d", "zilcommit.bt", "zildist.py", "zfsflush.d", "zfsflush.bt"),
        *("zfsthrottle.d", "zfsthrottle.bt", _TXG, _LOG, _ADVISE),
    ),
    "fsync": ("zilcommit.d", "zilcommit.bt", "zildist.py", "zfsflush.d", "zfsflush.bt", _LOG),
    "slow": ("zilslower.d", "zilslower.py", "zilslower.bt", _LOG),
    "txg": (_TXG, "txgstate.d", "txgstate.bt"),
    "throttle": ("zfsthrottle.d", "zfsthrottle.bt", _THROTTLE),
    "device": (_IOSTAT, "zfsflush.d", "zfsflush.bt"),
    "arc": (_ARC, "arcstate.d"),
    "read": (_READ, _ARC),
    "flame": ("fsyncstack.d", "fsyncoffcpu.bt"),
}


@dataclass(frozen=True)
class Way:
    """A command for a shell, and what it gives."""

    command: str
    gives: str

    def to_json(self) -> Json:
        return {"command": self.command, "gives": self.gives}


class Instead:
    """What works on a host whose checks forbid a trace, asked once for all questions."""

    def __init__(self, host: Host, checks: Sequence[Check], pool: str | None = None) -> None:
        blocked = {check.kind for check in checks if check.status == "blocking"}
        self._tools: set[str] = set()
        # what lacks privilege, a container or lockdown forbid is forbidden to every tracer
        if not blocked & {"privilege", "zfs"}:
            self._tools = {tool.name for tool in host.tools() if not tool.why}
        self._pool = pool or next(iter(host.pools()), "")
        self._kstats = "zfs" not in blocked and host.loaded()

    def ways(self, question: str) -> list[Way]:
        """The best first; [] if there is none, or nothing is known for the question."""
        names = [name for name in QUESTIONS.get(question, ()) if self._works(name)]
        return [Way(self._command(name), GIVES[name]) for name in names]

    def _works(self, name: str) -> bool:
        if " " not in name:
            return name in self._tools
        if name.startswith("zpool ") and not shutil.which("zpool"):
            return False
        return self._kstats and bool(self._pool or "{pool}" not in name)

    def _command(self, name: str) -> str:
        if " " in name:
            return name.format(zfstune=_zfstune(), pool=shlex.quote(self._pool))
        found, words = _found(name), _WORDS.get(name, "")
        if found:
            return found + words
        return f"{_zfstune()} tools extract {_DIRECTORY} {name} && {_DIRECTORY}/{name}{words}"


def lines(ways: Sequence[Way], indent: str = "  ") -> Iterator[str]:
    """For people; a command is one line, to be copied."""
    for way in ways:
        yield indent + way.command
        yield from wrap(way.gives, indent + "    ")


def _zfstune() -> str:
    """How this copy was called, for a shell in the same directory."""
    program = sys.argv[0]
    if packaged.archive("zfstune"):
        return f"{_in_path(sys.executable) or 'python3'} {shlex.quote(program)}"
    # another name is that of a program which imports ours
    return _in_path(program) if Path(program).name == "zfstune" else "zfstune"


def _in_path(program: str) -> str:
    """A program for a shell: by its name alone where that finds the same file."""
    name = Path(program).name
    found = shutil.which(name)
    same = found and Path(program).exists() and Path(found).samefile(program)
    return name if same else shlex.quote(program) if program else ""


def _found(name: str) -> str:
    """Where a tool is on this host, in a checkout or installed; "" if it must be copied out."""
    for pattern in collect.PATTERNS[HERE]:
        path = (_CHECKOUT / pattern).with_name(name)
        if path.match(pattern) and path.is_file():
            return shlex.quote(str(path))
    for directory in _SBIN:
        path = Path(directory, name)
        if path.is_file():
            return str(path)
    return ""
