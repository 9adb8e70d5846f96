"""The options of `zfstune bench --matrix`."""

from __future__ import annotations

import argparse

from zfstune.term.argtypes import words

MATRIX = """\
  zfstune bench --matrix reports-2014 --disk /dev/sdx --slog /dev/sdy
                                              the table of a report, on disks that are ERASED"""


def add_matrix_options(parser: argparse.ArgumentParser) -> None:
    """Adds them in a group of their own."""
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
        "--rows", metavar="ID,...", type=words, help="only these rows, by their ids in --json"
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
