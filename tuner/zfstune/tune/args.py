"""The command line of `zfstune tune`."""

from __future__ import annotations

import argparse

from zfstune.term.argtypes import positive, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TUNE = """\
A session measures blocks of time under the values that are in force (A) and under others
(B), in turns, and accepts others only when fresh blocks prove that they are better. What it
changes is in a journal first: it is put back if the session fails, is stopped or killed, and
`zfstune revert` undoes what a session that ended well has left in force.

LIMIT is METRIC>=CHANGE or METRIC<=CHANGE against the baseline, as in write.throughput>=-5%;
fsync.p50<=-10% demands a gain. METRIC is fsync.p50, fsync.p99, fsync.p999, fsync.mean or
write.throughput. numpy, scipy and optuna are needed.

examples:
  zfstune tune tank --observe --dry-run                       what it would do
  zfstune tune tank --workload 'pgbench -T 600 bench' --as postgres --budget 30m
  zfstune tune tank --observe --staging --budget 1h --limit 'fsync.p50<=+10%'
  zfstune tune tank --observe --parameters zfs_dirty_data_max,zfs_txg_timeout
  zfstune tune tank --observe --resume zfstune-tank           go on where it was stopped

exit status:
  0  better values are in force
  1  nothing better was found, it was stopped, or the answer was no: nothing is changed;
     also if something could not be put back, which is said then
  2  usage; 3  not possible here; 4  it failed, and all is as it was before
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `tune` to the commands."""
    parser = commands.add_parser(
        "tune",
        help="search better parameters under a load, and prove that they are",
        description="Searches module parameters under which fsyncs are faster, and proves it.",
        epilog=_TUNE,
    )
    parser.set_defaults(run="tune.command")
    parser.add_argument("pool", metavar="POOL", nargs="?", help="the pool; default: the only one")
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--workload", metavar="CMD", help="run CMD as the load, again when it ends")
    load.add_argument("--observe", action="store_true", help="the load is there already")
    parser.add_argument("--as", dest="user", metavar="USER", help="run the workload as USER")
    parser.add_argument("--shell", action="store_true", help="run the workload by /bin/sh -c")
    parser.add_argument("--budget", type=span, metavar="T", help="time for all of it (default 1h)")
    parser.add_argument(
        "--objective",
        default="fsync.p99",
        metavar="METRIC",
        help="what shall get better; METRIC=WEIGHT,... for several (default fsync.p99)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        metavar="LIMIT",
        help="what must not get worse, or must get better (repeatable; "
        "default write.throughput>=-5%% and fsync.mean<=+10%%)",
    )
    parser.add_argument("--parameters", metavar="NAME,...", help="change only these")
    parser.add_argument("--arc", action="store_true", help="change the ARC limits as well")
    parser.add_argument("--block", type=span, metavar="T", help="length of a block (default 10s)")
    parser.add_argument(
        "--max-latency",
        type=span,
        metavar="T",
        help="end at once when an fsync takes longer (default 1m)",
    )
    parser.add_argument(
        "--sampler", choices=("tpe", "random", "grid"), default="tpe", help="default tpe"
    )
    parser.add_argument("--storage", metavar="URL", help="Optuna storage (default a file in --out)")
    parser.add_argument(
        "--study", metavar="NAME", default="zfstune", help="its name in there (default zfstune)"
    )
    parser.add_argument("--seed", type=positive, metavar="N", help="of all that is drawn at random")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="DIR", help="for report and data (default zfstune-POOL)")
    where.add_argument(
        "--resume", metavar="DIR", help="go on with the search of the session in there"
    )
    parser.add_argument("--no-flame", action="store_true", help="record no flame graphs")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--staging", action="store_true", help="also on a host that looks like production"
    )
    parser.add_argument("--json", action="store_true", help="print the session as one JSON object")
