"""The command line of `zfstune tune`."""

from __future__ import annotations

import argparse

from zfstune.term.argtypes import positive, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# of a study
NAME = "zfstune"

_TUNE = """\
A session alternately measures blocks of time under the current values (A) and under others (B),
and accepts others only if fresh blocks prove that they are better. Every change is recorded in a
journal first: it is undone if the session fails, is stopped or killed, and `zfstune revert`
undoes the changes of a successful session.

LIMIT is METRIC>=CHANGE or METRIC<=CHANGE against the baseline, as in write.throughput>=-5%;
fsync.p50<=-10% demands a gain. It replaces the default for its METRIC, and none drops all of them.
METRIC is fsync.p50, fsync.p99, fsync.p999, fsync.mean, write.throughput, write.p99 (of write(2),
its waits included), read.p99, read.mean or arc.miss (the share of demand reads that miss the
cache). Optuna is needed only for --sampler tpe, and for --storage with a URL; SQLite, a package of
its own on FreeBSD, to continue a session.

examples:
  zfstune tune tank --observe --dry-run                       what it would do
  zfstune tune tank --workload 'pgbench -T 600 bench' --as postgres --budget 30m
  zfstune tune tank --observe --staging --budget 1h --limit 'fsync.p50<=+10%'
  zfstune tune tank --observe --parameters zfs_dirty_data_max,zfs_txg_timeout
  zfstune tune tank --observe --resume zfstune-tank           continue a stopped session
  zfstune tune tank --observe --arc --dry-run                 a larger cache, for reads

exit status:
  0  better values are in force
  1  nothing better was found, it was stopped, or the answer was no: nothing is changed;
     also if something could not be restored, which the error says
  2  usage; 3  not possible here; 4  it failed, and all parameters are restored
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `tune` to the commands."""
    parser = commands.add_parser(
        "tune",
        help="search for better parameters under a load, and prove them",
        description="Searches for module parameters under which fsyncs are faster, and proves it.",
        epilog=_TUNE,
    )
    parser.set_defaults(run="tune.command")
    parser.add_argument("pool", metavar="POOL", nargs="?", help="the pool; default: the only one")
    load = parser.add_mutually_exclusive_group()
    load.add_argument(
        "--workload", metavar="CMD", help="run CMD as the load, and restart it when it ends"
    )
    load.add_argument("--observe", action="store_true", help="use the existing load")
    parser.add_argument("--as", dest="user", metavar="USER", help="run the workload as USER")
    parser.add_argument("--shell", action="store_true", help="run the workload with /bin/sh -c")
    parser.add_argument(
        "--budget",
        type=span,
        metavar="T",
        help="time for the whole session (default 1h; with --arc 2h30m)",
    )
    parser.add_argument(
        "--objective",
        metavar="METRIC",
        help="metric to improve; METRIC=WEIGHT,... for several (default fsync.p99; with --arc "
        "read.mean)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        metavar="LIMIT",
        help="bound on the change of a metric, instead of the default for it (repeatable; none: "
        "drop the defaults, which are write.throughput>=-5%% and fsync.mean<=+10%%, and "
        "read.p99<=+20%% of a load that reads; with --arc -10%%, +20%% and +20%%)",
    )
    parser.add_argument("--parameters", metavar="NAME,...", help="change only these")
    parser.add_argument("--arc", action="store_true", help="tune zfs_arc_max instead, for reads")
    parser.add_argument(
        "--block",
        type=span,
        metavar="T",
        help="length of a block (default 10s; with --arc of a side, 10m)",
    )
    parser.add_argument(
        "--max-latency",
        type=span,
        metavar="T",
        help="end at once if an fsync takes longer (default 1m)",
    )
    parser.add_argument(
        "--sampler",
        choices=("local", "tpe", "random", "grid"),
        help="how the search draws values after the model's (default tpe, without optuna local)",
    )
    parser.add_argument(
        "--storage",
        metavar="FILE|URL",
        help="where the study is, URL: a database that hosts share (default a file in --out)",
    )
    parser.add_argument(
        "--study",
        metavar="NAME",
        default=NAME,
        help=f"name of the study in the storage (default {NAME})",
    )
    parser.add_argument("--seed", type=positive, metavar="N", help="seed of all random draws")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--out", metavar="DIR", help="directory of report and data (default zfstune-POOL)"
    )
    where.add_argument("--resume", metavar="DIR", help="continue the search of the session in DIR")
    parser.add_argument("--no-flame", action="store_true", help="record no flame graphs")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--staging",
        action="store_true",
        help="continue although the host looks like production",
    )
    parser.add_argument("--json", action="store_true", help="print the session as one JSON object")
