"""The command line of `zfstune diagnose`."""

from __future__ import annotations

import argparse

from zfstune.term.argtypes import span
from zfstune.term.units import SECOND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DIAGNOSE = """\
Watches with all traces at once, changes nothing, and then names the causes of slow fsyncs:
the evidence, the share of the p99 (of the time of the slowest hundredth) and of the time of
all fsyncs, the certainty, and what to do next. Ctrl-C ends the observation and judges it.

examples:
  zfstune diagnose                            all pools, 20 s
  zfstune diagnose tank --duration 1m
  zfstune diagnose tank --json > tank.jsonl   with all measurements
  zfstune diagnose --from tank.jsonl          judge them again, on any host, without root
  zfstune diagnose --from incident-db1-20261127T031500Z.jsonl.gz --at 03:05

exit status:
  0  nothing is wrong, too few fsyncs to judge, or all under sync=disabled
  1  a cause was found, or fsyncs are slow for an unknown reason
  2  usage error, including a pool that does not exist and a file that is no diagnosis
  3  not possible here (no ZFS, no privilege, no BTF, library not built)
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `diagnose` to the commands."""
    parser = commands.add_parser(
        "diagnose",
        help="why fsyncs are slow: causes, evidence, what to do",
        description="Finds out why fsyncs are slow.",
        epilog=_DIAGNOSE,
    )
    parser.add_argument("pool", metavar="POOL", nargs="?", help="only this pool")
    parser.add_argument(
        "--duration",
        metavar="T",
        type=span,
        default=20 * SECOND,
        help="watch for T (20s, 1m); default 20s",
    )
    parser.add_argument(
        "--from",
        metavar="FILE",
        dest="source",
        help="judge the output of --json, or an incident of `zfstune record`; - is stdin",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="with --from: the moment, UTC (03:05, 2026-11-27T03:05Z); default the worst",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each pool")
    parser.add_argument(
        "--no-fentry", action="store_true", help="use kprobes even where fentry is possible"
    )
    parser.set_defaults(run="diagnose.command")
