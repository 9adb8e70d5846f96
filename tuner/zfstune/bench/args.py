"""The command line of `zfstune bench`."""

from __future__ import annotations

import argparse

from zfstune.term.argtypes import file_size, job_counts, names, span
from zfstune.term.units import SECOND

MATRIX = """\
  zfstune bench --matrix reports-2014 --disk /dev/sdx --slog /dev/sdy
                                              the table of a report, on disks that are ERASED"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_BENCH = f"""\
Repeatedly writes 8 kB and syncs, in a temporary directory below PATH: with pg_test_fsync of
PostgreSQL if it is installed, otherwise with fio. Beside each rate it prints the stages of the
fsyncs, and the rate that the device alone would allow. Ctrl-C prints the finished tests.

tests:
  fdatasync, fsync, o_dsync   one thread, a sync after each 8 kB
  two-fdatasync               a sync after each two writes
  plain                       no sync at all
  committers-N                N threads, each with its own file and fdatasyncs

examples:
  zfstune bench tank/db                       all tests, three seconds each
  zfstune bench /var/lib/postgresql --test fdatasync,fsync --duration 10s
  zfstune bench tank/db --test fdatasync --jobs 1,4,16,64
  zfstune bench tank/db --json | jq -r '[.test, .per_s, .limit_per_s] | @tsv'
  zfstune bench tank/db --html bench.html
  zfstune bench tank/db --raw /dev/sdx        also a disk of the same kind, which is ERASED
{MATRIX}

exit status:
  0  done
  1  a test failed, was interrupted or could not be traced, the trace lost syncs, or something
     could not be removed
  2  usage, including a path or dataset that does not exist
  3  not possible here (no fio, no room, disk carries data or is in use)
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `bench` to the commands."""
    parser = commands.add_parser(
        "bench",
        help="measure the cost of synchronous writes, and where their time goes",
        description="Measures the cost of synchronous writes.",
        epilog=_BENCH,
    )
    parser.add_argument(
        "where", metavar="PATH|DATASET", nargs="?", help="a directory, or a mounted dataset"
    )
    parser.add_argument(
        "--duration",
        metavar="T",
        type=span,
        default=3 * SECOND,
        help="duration of each test (3s, 1m); default 3s",
    )
    parser.add_argument(
        "--test", metavar="NAME,...", type=names, help="only these tests, in this order"
    )
    parser.add_argument(
        "--jobs", metavar="N,...", type=job_counts, help="concurrent committers; default 2,8"
    )
    parser.add_argument(
        "--with",
        dest="load",
        choices=("fio", "pg_test_fsync"),
        help="program to measure with; default pg_test_fsync if installed, fio for committers",
    )
    parser.add_argument(
        "--size", type=file_size, help="size of each thread's file (fio); default 16M"
    )
    parser.add_argument(
        "--raw",
        metavar="DISK",
        help="also measure this disk itself, as the limit; it is ERASED (see --force-erase)",
    )
    parser.add_argument("-v", "--stages", action="store_true", help="print all stages of each test")
    parser.add_argument("--no-trace", action="store_true", help="measure only rates, no stages")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each test")
    parser.add_argument("--html", metavar="FILE", help="write the same as a page")
    add_matrix_options(parser)
    parser.set_defaults(run="bench.command")


def add_matrix_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of --matrix, as a group."""
    group = parser.add_argument_group("measure a report's table on scratch disks, which are erased")
    group.add_argument("--matrix", metavar="NAME", help="the report: reports-2014")
    group.add_argument(
        "--disk",
        metavar="DISK",
        action="append",
        default=[],
        help="a disk for the pools (repeatable); at least 1G",
    )
    group.add_argument("--slog", metavar="DISK", help="the fast device, for logs; at least 512M")
    group.add_argument(
        "--rows", metavar="ID,...", type=names, help="only these rows, by their ids in --json"
    )
    group.add_argument("--yes", action="store_true", help="do not ask before disks are erased")
    group.add_argument(
        "--force-erase",
        metavar="DISK",
        action="append",
        default=[],
        help="erase this disk although it carries data; never if it is in use",
    )
    group.add_argument(
        "--keep-going", action="store_true", help="continue with the next row if one fails"
    )
