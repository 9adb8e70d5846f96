"""The command line of `zfstune record`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

from zfstune.changes.paths import INCIDENTS
from zfstune.term.argtypes import names, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VIEWS = ("light", "fsync", "txg", "throttle", "device", "arc")
DEFAULT_VIEWS = ("light", "txg", "throttle", "arc")
# Unless views are asked for, where the system does not have one: a D script has all of its probes
# or none
INSTEAD = {"light": "fsync"}
TRIGGER_HELP = "write an incident file when this is true, like 'fsync.p99>200ms for 30s'"

_RECORD = """\
A flight recorder keeps the last six hours of all views in memory, 8 MiB at most, with the
slowest operations, changes of parameters, and diagnoses. It is part of `zfstune
exporter`, or runs by itself. An incident file has all of it; any zfstune can read it.

examples:
  zfstune record run --trigger 'fsync.p99>200ms for 30s'
  zfstune record dump                      all of it, into /run/zfstune-exporter
  zfstune record dump --last 30m -o night.jsonl.gz
  zfstune record status
  zfstune diagnose --from night.jsonl.gz   why fsyncs were slow, on any host
"""

_RUN = """\
Runs until a signal ends it, and then keeps its record for the next start. Without ZFS or a
pool it waits. SIGUSR1 makes it write an incident file, and so do triggers, at most once an
hour. With the default of --budget, diagnoses take 1 % of one CPU.

A trigger is METRIC>VALUE or METRIC<VALUE, with `for T` if it has to last; each pool is
judged by itself:
{metrics}

examples:
  zfstune record run
  zfstune record run --views light,txg --trigger 'commit.p99>50ms for 1m'
  zfstune record run --trigger 'txg.sync>10s' --trigger 'throttle.time>200%'

exit status:
  0  a signal ended it
  2  usage error, including a trigger that can never fire
  3  not possible here (no privilege, no BTF, the directory is on ZFS, another recorder)
"""

_DUMP = """\
Asks the running recorder. Without -o it writes incident-HOST-TIME.jsonl.gz into its own
directory, where the newest five stay.

examples:
  zfstune record dump
  zfstune record dump -o incident.jsonl.gz
  zfstune record dump --last 30m -o - > last.jsonl.gz
  zfstune record dump --at 03:05 -o night.jsonl.gz      half an hour around 03:05 UTC
  zfstune record dump --at "$(date -Iminutes -d 03:05)" the same of the host's own clock
  zfstune record dump --anonymise -o ticket.jsonl.gz

exit status:
  0  written; 2  usage error; 3  no recorder runs, or it could not write
"""

_STATUS = """\
examples:
  zfstune record status
  zfstune record status --json

exit status:
  0  a recorder runs; 2  usage error; 3  none runs
"""

_ANONYMISE = """\
The same name gets the same word throughout a file, and another word in the next file: each
has a key of its own, which is kept nowhere.

examples:
  zfstune record anonymise incident.jsonl.gz -o ticket.jsonl.gz

exit status:
  0  written; 2  usage error, including a file that is no incident
"""

# In the order of triggers.METRICS; a test compares them.
METRICS = """\
  fsync.p50 .p99 .p999 .max, fsync.rate, fsync.unfinished, fsync.errors, commit.p50 .p99
  .p999 .max, commit.rate, log.p99, flush.p99, txg.sync, txg.open, throttle.waits,
  throttle.time, throttle.max, device.log.p99, device.flush.p99, arc.hit, arc.waits, lost"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `record` with its subcommands."""
    parser = commands.add_parser(
        "record",
        help="a flight recorder: what happened before anybody looked",
        description="Keeps the last hours in memory, and writes them when asked.",
        epilog=_RECORD,
    )
    what = parser.add_subparsers(metavar="COMMAND", dest="what", required=True)
    _add_run(what)
    _add_dump(what)
    status = what.add_parser(
        "status",
        help="what the running recorder has",
        description="Asks the running recorder what it has.",
        epilog=_STATUS,
    )
    status.add_argument("--json", action="store_true", help="one JSON object")
    anonymise = what.add_parser(
        "anonymise",
        help="an incident file without names",
        description="Writes an incident file without names of pools, datasets, programs, hosts.",
        epilog=_ANONYMISE,
    )
    anonymise.add_argument("file", metavar="FILE", help="the incident file, or -")
    _add_output(anonymise, required=True)
    for one in (status, anonymise):
        one.set_defaults(run="record.command")
    _add_directory(status)


def _add_run(commands: argparse._SubParsersAction[Any]) -> None:
    run = commands.add_parser(
        "run",
        help="record, without metrics and without a port",
        description="Records until a signal ends it.",
        epilog=_RUN.format(metrics=METRICS),
    )
    run.add_argument(
        "--views",
        metavar="VIEWS",
        type=views(VIEWS),
        help=f"a list of {', '.join(VIEWS)}; default {','.join(DEFAULT_VIEWS)}",
    )
    run.add_argument(
        "--budget",
        metavar="SHARE",
        type=budget,
        default=0.01,
        help="share of one CPU for diagnoses (1%%); default 1%%",
    )
    run.add_argument("--trigger", metavar="EXPR", action="append", default=[], help=TRIGGER_HELP)
    run.add_argument("--duration", metavar="T", type=span, help="end after T (10m)")
    run.add_argument(
        "--no-fentry", action="store_true", help="use kprobes even where fentry is possible"
    )
    _add_directory(run)
    run.set_defaults(run="record.command")


def _add_dump(commands: argparse._SubParsersAction[Any]) -> None:
    dump = commands.add_parser(
        "dump",
        help="write an incident file now",
        description="Makes the running recorder write what it has.",
        epilog=_DUMP,
    )
    _add_output(dump, required=False)
    dump.add_argument(
        "--last", metavar="T", type=span, help="only the last T (30m); with --at: T around it"
    )
    dump.add_argument(
        "--at", metavar="TIME", help="around this moment, UTC (03:05, 2026-11-27T03:05Z)"
    )
    dump.add_argument("--anonymise", action="store_true", help="without names; needs -o")
    _add_directory(dump)
    dump.set_defaults(run="record.command")


def _add_output(parser: argparse.ArgumentParser, *, required: bool) -> None:
    default = "" if required else "; default: in the recorder's directory"
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=required,
        help=f"the file to write, or -{default}",
    )


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dump-dir",
        metavar="DIR",
        default=INCIDENTS,
        help=f"the recorder's directory; default {INCIDENTS}",
    )


def views(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """The type of --views: names of these, without duplicates."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(names(text))
        for name in found:
            if name not in known:
                import difflib

                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
                raise argparse.ArgumentTypeError(f"there is no view {name!r}\n{hint}")
        return found

    return parse


def budget(text: str) -> float:
    """A share of one CPU, more than 0 and at most 1, from a percentage: ``1%``, ``0.5%``."""
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,3})?) ?%", text)
    share = float(found[1]) / 100 if found else 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no share of a CPU\nwrite it like 1% or 0.5%, 100% at most"
        )
    return share
