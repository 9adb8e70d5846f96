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
Writes 8 kB and syncs, again and again, in a directory of its own below PATH, and removes that:
by pg_test_fsync of PostgreSQL where that is installed, by fio otherwise. Beside each rate stand
the stages of the fsyncs, and the rate that the device alone would allow. Ctrl-C prints what was
measured until then.

tests:
  fdatasync, fsync, o_dsync   one thread, a sync after each 8 kB
  two-fdatasync               a sync after each two writes
  plain                       no sync at all
  committers-N                N threads, a file and an fdatasync of its own for each

examples:
  zfstune bench tank/db                       all tests, three seconds each
  zfstune bench /var/lib/postgresql --test fdatasync,fsync --duration 10s
  zfstune bench tank/db --test fdatasync --jobs 1,4,16,64
  zfstune bench tank/db --json | jq -r '[.test, .per_s, .limit_per_s] | @tsv'
  zfstune bench tank/db --html bench.html
  zfstune bench tank/db --raw /dev/sdx        beside it a disk of the same kind, which is ERASED
{MATRIX}

exit status:
  0  done
  1  a test failed, was interrupted, could not be traced, the trace has lost syncs, or something
     could not be removed
  2  usage, also a path or dataset that is not there
  3  not possible here (no fio, no room, disk carries data or is in use)
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `bench` to the commands."""
    parser = commands.add_parser(
        "bench",
        help="what a synchronous write costs here, and where its time goes",
        description="Measures what synchronous writes cost.",
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
        help="how long each test takes (3s, 1m); default 3s",
    )
    parser.add_argument(
        "--test", metavar="NAME,...", type=names, help="only these tests, in this order"
    )
    parser.add_argument(
        "--jobs", metavar="N,...", type=job_counts, help="so many committers at once; default 2,8"
    )
    parser.add_argument(
        "--with",
        dest="load",
        choices=("fio", "pg_test_fsync"),
        help="what measures; default pg_test_fsync where it is, committers by fio",
    )
    parser.add_argument(
        "--size", type=file_size, help="of the file of each thread (fio); default 16M"
    )
    parser.add_argument(
        "--raw",
        metavar="DISK",
        help="measure this disk itself, too, as the limit; it is ERASED (see --force-erase)",
    )
    parser.add_argument(
        "-v", "--stages", action="store_true", help="all stages of each test, not the largest only"
    )
    parser.add_argument("--no-trace", action="store_true", help="only rates, no stages")
    parser.add_argument("--json", action="store_true", help="a JSON line for each test")
    parser.add_argument("--html", metavar="FILE", help="the same as a page")
    add_matrix_options(parser)
    parser.set_defaults(run="bench.command")


def add_matrix_options(parser: argparse.ArgumentParser) -> None:
    """Adds those of --matrix, in a group of their own."""
    group = parser.add_argument_group("measure a report's table on scratch disks, which are erased")
    group.add_argument("--matrix", metavar="NAME", help="the report: reports-2014")
    group.add_argument(
        "--disk",
        metavar="DISK",
        action="append",
        default=[],
        help="a disk of the pools (repeat it for more); 1G at least",
    )
    group.add_argument("--slog", metavar="DISK", help="the quick device for logs; 512M at least")
    group.add_argument(
        "--rows", metavar="ID,...", type=names, help="only these rows, by their ids in --json"
    )
    group.add_argument("--yes", action="store_true", help="erase the disks without a question")
    group.add_argument(
        "--force-erase",
        metavar="DISK",
        action="append",
        default=[],
        help="erase this disk although it carries data; not if it is in use",
    )
    group.add_argument(
        "--keep-going", action="store_true", help="go on with the next row when one fails"
    )
