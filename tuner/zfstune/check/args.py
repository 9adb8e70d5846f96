"""The command line of `zfstune check`."""

from __future__ import annotations

import argparse

from zfstune.term.argtypes import names, span
from zfstune.term.units import SECOND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHECK = """\
A plugin for Icinga, Nagios, Naemon, checkmk and Zabbix. A limit is a value (fsync.p99=20ms),
or a range of the monitoring plugins: arc.hit=80%: is bad below 80 %, @10:20 inside. Without
a limit some metrics are only shown. An idle pool is OK. Metrics of fsyncs, stages, waits and
devices need root; those of txgs, the log and the cache come from kstats and do not.

examples:
  zfstune check tank --warn fsync.p99=20ms --crit fsync.p99=100ms
  zfstune check tank --warn fsync.p99=20ms,throttle.waits=10/s --show fsync.rate
  zfstune check tank --warn txg.sync.p99=10s,txg.dirty=80%,arc.hit=90%:   without root
  zfstune check tank --json
  zfstune check --list                                          all metrics

exit status:
  0  OK; 1  WARNING; 2  CRITICAL
  3  UNKNOWN: a metric could not be measured, or usage
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `check` to the commands."""
    parser = commands.add_parser(
        "check",
        help="one line and a status for a monitoring system",
        description="Measures a pool for some seconds and compares metrics with limits.",
        epilog=_CHECK,
    )
    parser.add_argument("pool", metavar="POOL", nargs="?", help="the pool")
    for name, what in (("warn", "WARNING"), ("crit", "CRITICAL")):
        parser.add_argument(
            f"--{name}",
            metavar="METRIC=RANGE",
            action="append",
            default=[],
            help=f"{what} outside of it; a list, or several times",
        )
    parser.add_argument(
        "--show", metavar="METRICS", type=names, default=[], help="metrics without a limit"
    )
    parser.add_argument(
        "--duration",
        metavar="T",
        type=span,
        default=5 * SECOND,
        help="measure for T (5s, 1m); default 5s",
    )
    parser.add_argument(
        "--timeout",
        metavar="T",
        type=span,
        help="UNKNOWN after T; default: 25s more than the duration",
    )
    parser.add_argument("--list", action="store_true", help="print all metrics and their units")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the line")
    parser.add_argument(
        "--no-fentry", action="store_true", help="use kprobes even where fentry is possible"
    )
    parser.set_defaults(run="check.command")
