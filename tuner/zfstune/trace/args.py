"""The command lines of `zfstune doctor`, `zfstune trace` and its subcommands."""

from __future__ import annotations

import argparse

from zfstune.term.argtypes import positive, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STATUS = """\
exit status:
  0  success, also if nothing was seen
  2  usage error, including a pool, dataset or process that does not exist
  3  not possible here (no ZFS, no privilege, no BTF, library not built)"""

_DOCTOR = """\
Loads and attaches nothing, except with --cost. Works without privilege as far as possible.

examples:
  zfstune doctor
  sudo zfstune doctor
  sudo zfstune doctor --cost                what tracing costs here, under the present load
  sudo zfstune doctor --cost --duration 30s --json
  zfstune doctor --json | jq '.checks[] | select(.status != "ok")'

exit status:
  0  nothing is missing; 1  something cannot be measured; 2  usage error
  3  tracing is not possible here
"""

_REDRAWN = """\
On a terminal the table is redrawn and counts from the start. Elsewhere it is printed
once at the end or, with --interval, once for each interval, for that interval alone.
Ctrl-C ends the trace and prints the result."""

_ALL = f"""\
Without COMMAND: all available views on one screen, and what stands out; run it first in
an incident. On a terminal the screen covers the last interval, and the whole time follows
at the end. Elsewhere one block is printed at the end or, with --interval, for each
interval.

keys on a terminal: 1-5 only that view, 0 all; p next pool; s sort by next column;
space pause; w write to a file; q quit; ? help

examples:
  zfstune trace                          all pools, every 2 s
  zfstune trace --pool tank --interval 5s
  zfstune trace --duration 30s > incident.txt
  zfstune trace fsync tank               in which stage fsyncs spend their time
  zfstune trace slow --over 50ms         who waits, one line per slow fsync
  zfstune trace txg tank                 one line per transaction group
  zfstune trace throttle                 which writers are delayed, by which limit
  zfstune trace device tank              queue and device times, by vdev
  zfstune trace arc                      the cache, one line per second
  zfstune trace read tank                how long reads take, hits and misses apart
  zfstune trace --from incident-db1-20261127T031500Z.jsonl.gz --at 03:05

{STATUS}
"""

_FSYNC = f"""\
{_REDRAWN}

examples:
  zfstune trace fsync
  zfstune trace fsync tank --duration 30s
  zfstune trace fsync --dataset tank/db --histogram
  zfstune trace fsync --pid $(pidof -s postgres) --interval 5s
  zfstune trace fsync tank --duration 1m --json > fsync.jsonl
  zfstune trace fsync --light --interval 10m --over 1s --json >> /var/log/fsync.jsonl

With --light commits and log blocks are counted exactly; the shares of stages are estimated, from
windows that begin at random, with an interval of 95 %.

{STATUS}
"""

_SLOW = f"""\
TIME is the start. TXG is the state of the pool's transaction groups meanwhile (sync,
quie, open), DIRTY its dirty data in percent of zfs_dirty_data_max, with ! if writers
were delayed, STAGES the largest stages. A timeline has a row for each thread with all
stages of its operations, and rows for the transaction groups of each pool.

examples:
  zfstune trace slow --over 10ms
  zfstune trace slow --over 1s tank --duration 1h
  zfstune trace slow --over 5ms --dataset tank/db --count 20
  zfstune trace slow --over 1ms tank --duration 10s --timeline tank.json
  zfstune trace slow --over 20ms --json | jq -r '[.time, .comm, .total_ns] | @tsv'

{STATUS}
"""

_TXG = f"""\
A txg is open, quiesces, waits, and is synced. TIME is its end in UTC, WROTE what the pool
wrote meanwhile, DELAYED TX how many transactions the throttle delayed and their total
delay, REASON why the txg was closed, ZIL the share of the sync in which it waited for log
blocks; - means not known.

examples:
  zfstune trace txg
  zfstune trace txg tank --count 20
  zfstune trace txg tank --source kstat              without privilege, with less detail
  zfstune trace txg --json | jq 'select(.sync_ns > 5e9)'

{STATUS}
"""

_THROTTLE = f"""\
{_REDRAWN}

examples:
  zfstune trace throttle
  zfstune trace throttle tank --duration 30s
  zfstune trace throttle --pid $(pidof -s postgres) --interval 5s
  zfstune trace throttle --duration 1m --json > throttle.jsonl

{STATUS}
"""

_DEVICE = f"""\
{_REDRAWN}

examples:
  zfstune trace device
  zfstune trace device tank --duration 30s
  zfstune trace device tank --interval 10s > device.log
  zfstune trace device tank --duration 1m --json | jq 'select(.class == "flush")'

{STATUS}
"""

_ARC = f"""\
HIT is the share of demand reads that were hits; IOHIT/S found their block on its way from
the disk. WAITS and WAITED count threads that had to wait for room and their total time,
THROTTLE writers delayed because memory is short; GROW is whether the cache can grow.

examples:
  zfstune trace arc
  zfstune trace arc --interval 10s --count 6
  zfstune trace arc --source kstat                   without privilege, without WAITS
  zfstune trace arc --json | jq -r '[.time, .size, .hit_ratio] | @tsv'

{STATUS}
"""

_READ = f"""\
A hit is a read that did not wait for an I/O, a miss one that did; SHARE is of the reads. Times
are those of whole calls: a write includes its wait for the write throttle and, with O_SYNC,
for the log. Not counted: mmap(2), volumes, and calls that moved no data.

{_REDRAWN}

examples:
  zfstune trace read
  zfstune trace read tank --duration 30s
  zfstune trace read --dataset tank/db --interval 5s
  zfstune trace read --pid $(pidof -s postgres)
  zfstune trace read tank --source kstat --duration 10s   without privilege, without times
  zfstune trace read --duration 1m --json | jq 'select(.hit_ratio < 0.9)'

{STATUS}
"""


_AGAIN = "trace.from_file"


class _From(argparse.Action):
    """A file in place of a live trace, or a moment in it: another module runs the command."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        _option: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        namespace.run = _AGAIN


class _Views(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The views. The default of a view replaces what --from said before its name; an option there
    that the view does not have is an error."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        super().__call__(parser, namespace, values, option)
        if any(getattr(namespace, name, None) is not None for name in ("file", "at")):
            namespace.run = _AGAIN
            return  # it has other rules
        view = values[0]
        taken = {name.partition(" ")[0].lstrip("-") for name in _TRACES[view][3]}
        for name in ("pool", "interval"):
            if name not in taken and getattr(namespace, name, None) is not None:
                parser.error(f"`trace {view}` has no --{name}\nleave it out")


# Each command names the ones it takes; they appear in this order. A second word in a key
# distinguishes variants of an option.
_OPTIONS: dict[str, dict[str, Any]] = {
    "pool": {"metavar": "POOL", "nargs": "?", "help": "only this pool"},
    "--pool": {"metavar": "POOL", "help": "only this pool"},
    "--over": {
        "metavar": "T",
        "type": span,
        "required": True,
        "help": "operations that take T or more (10ms)",
    },
    "--over light": {
        "metavar": "T",
        "type": span,
        "help": "with --light: trace a window when a commit took T or more, too",
    },
    "--dataset": {"metavar": "D", "help": "only this dataset"},
    "--pid": {"metavar": "P", "type": positive, "help": "only this process"},
    "--duration": {
        "metavar": "T",
        "type": span,
        "help": "end after T (10s, 5m); default: at Ctrl-C",
    },
    "--interval": {
        "metavar": "T",
        "type": span,
        "help": "print every T; default on a terminal 2s",
    },
    "--interval line": {"metavar": "T", "type": span, "help": "print a line every T; default 1s"},
    "--count": {"metavar": "N", "type": positive, "help": "end after N lines"},
    "--histogram": {
        "action": "store_true",
        "help": "add the distribution of the total latency",
    },
    "--light": {
        "action": "store_true",
        "help": "for weeks: count commits, and trace all stages only in windows (Linux)",
    },
    "--every": {
        "metavar": "T",
        "type": span,
        "help": "with --light: a window every T; default 1m",
    },
    "--window": {
        "metavar": "T",
        "type": span,
        "help": "with --light: how long it is; default 2s",
    },
    "--timeline": {
        "metavar": "FILE",
        "help": "write a timeline, too: FILE.json for Perfetto, Firefox Profiler",
    },
    "--source": {
        "choices": ("bpf", "kstat"),
        "default": "bpf",
        "help": "kstat: no privilege needed, less detail; default bpf",
    },
    "--from": {
        "metavar": "FILE",
        "dest": "file",
        "action": _From,
        "help": "not live: an incident that `zfstune record` wrote; - is stdin",
    },
    "--at": {
        "metavar": "TIME",
        "action": _From,
        "help": "with --from: the moment, UTC (03:05, 2026-11-27T03:05Z); default the worst",
    },
    "--json": {"action": "store_true", "help": "JSON lines, times in ns"},
    "--no-fentry": {
        "action": "store_true",
        "help": "use kprobes even where fentry is possible",
    },
}

_LIGHT = ("--light", "--every", "--window", "--over light")

# name: (help, description, epilog, options besides _ALWAYS)
_TRACES = {
    "fsync": (
        "in which stage fsyncs spend their time",
        "Measures each stage of every fsync, per pool and dataset.",
        _FSYNC,
        {"pool", "--dataset", "--pid", "--interval", "--histogram", *_LIGHT},
    ),
    "slow": (
        "one line for each slow fsync",
        "Prints one line for each slow fsync as it ends.",
        _SLOW,
        {"pool", "--dataset", "--pid", "--over", "--count", "--timeline"},
    ),
    "txg": (
        "one line for each transaction group",
        "Prints one line for each transaction group (txg) as it ends.",
        _TXG,
        {"pool", "--count", "--source"},
    ),
    "throttle": (
        "which writers are delayed, and by which limit",
        "Measures how often and how long ZFS delays writers, per process and limit.",
        _THROTTLE,
        {"pool", "--pid", "--interval"},
    ),
    "device": (
        "queue and device times, by vdev and class of I/O",
        "Measures the time of I/Os in ZFS's queue and at the device, per vdev and class of I/O.",
        _DEVICE,
        {"pool", "--interval"},
    ),
    "arc": (
        "the cache: size, hits, waits for room",
        "Prints one line on the cache (ARC) for each interval.",
        _ARC,
        {"--interval line", "--count", "--source"},
    ),
    "read": (
        "reads, hits and misses apart, and writes, by dataset",
        "Times the reads of files, hits and misses apart, and the writes, per dataset.",
        _READ,
        {"pool", "--dataset", "--pid", "--interval", "--source"},
    ),
}
_ALWAYS = {"--duration", "--from", "--at", "--json", "--no-fentry"}


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `doctor`, and `trace` with its subcommands."""
    doctor = commands.add_parser(
        "doctor",
        help="what this host can measure, and what is missing",
        description="Reports what this host can measure, what is missing, and what that costs.",
        epilog=_DOCTOR,
    )
    doctor.add_argument("--json", action="store_true", help="one JSON object")
    doctor.add_argument(
        "--cost",
        action="store_true",
        help="attach all tracers for a while, and count what they cost (Linux)",
    )
    doctor.add_argument(
        "--duration",
        metavar="T",
        type=span,
        help="with --cost: count for T (30s); default 5s",
    )
    doctor.set_defaults(run="trace.doctor")
    trace = commands.add_parser(
        "trace",
        help="watch fsyncs, txgs, writers, devices and the cache",
        description="Watches where OpenZFS spends its time.",
        epilog=_ALL,
    )
    _add_options(trace, {"--pool", "--interval"})
    trace.set_defaults(run="trace.overview")
    traces = trace.add_subparsers(metavar="COMMAND", dest="what", action=_Views)
    for name, (what, description, epilog, options) in _TRACES.items():
        parser = traces.add_parser(name, help=what, description=description, epilog=epilog)
        _add_options(parser, options, below=True)
        parser.set_defaults(run=f"trace.{name}")


def _add_options(parser: argparse.ArgumentParser, names: set[str], *, below: bool = False) -> None:
    """below: parser is a subcommand, whose defaults must not reset options before its name."""
    for name, option in _OPTIONS.items():
        if name in names | _ALWAYS:
            flag = name.partition(" ")[0]
            above = below and flag in {"pool", "--interval"} | _ALWAYS
            default = {"default": argparse.SUPPRESS} if above else {}
            parser.add_argument(flag, **(option | default))
