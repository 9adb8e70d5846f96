"""`zfstune bench --matrix`: the rows of a report, one after the other, on scratch disks."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import sys
from collections.abc import Sequence

from zfstrace.host import Host
from zfstune.bench import programs, scratch
from zfstune.bench.matrix import pools, text
from zfstune.bench.matrix import rows as bench_rows
from zfstune.bench.matrix.result import MatrixResult
from zfstune.bench.matrix.rows import Matrix, ReportRow
from zfstune.bench.matrix.runner import MatrixBench
from zfstune.bench.scratch import DISK_BYTES, SLOG_BYTES, Wanted
from zfstune.errors import DONE, NEGATIVE, NotPossible, UsageError
from zfstune.host import open_host
from zfstune.preflight import require_tracing
from zfstune.term.log import say
from zfstune.term.signals import Stop
from zfstune.term.table import style_of

_PROGRAMS = ("zpool", "zfs", "wipefs")
_EXT4 = ("mkfs.ext4", "mount", "umount")


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError before anything is written."""
    matrix = _matrix(args)
    if not args.disk:
        raise UsageError("--disk is missing", "name the disks that may be erased")
    rows = _rows(matrix, args)
    host = open_host()
    _require(host, rows)
    load = programs.find_load()
    for line in pools.leftovers(host):
        say(line)
    wanted = [Wanted("--disk", path, DISK_BYTES) for path in args.disk]
    wanted += [Wanted("--slog", args.slog, SLOG_BYTES)] if args.slog else []
    found = scratch.confirm(host, wanted, args.force_erase, yes=args.yes)
    bench = MatrixBench(args, matrix, host, load, found[: len(args.disk)], *found[len(args.disk) :])
    with Stop(sys.stdout) as stop:
        done = bench.run(rows, stop)
    _show(done, args)
    return DONE if done.whole else NEGATIVE


def _matrix(args: argparse.Namespace) -> Matrix:
    if args.matrix not in bench_rows.MATRICES:
        raise UsageError(
            f"--matrix: no matrix {args.matrix!r}", f"choose {', '.join(bench_rows.MATRICES)}"
        )
    return bench_rows.load_matrix(args.matrix)


def _rows(matrix: Matrix, args: argparse.Namespace) -> list[ReportRow]:
    """The rows that are wanted and can be measured on these disks."""
    ids = [row.id for row in matrix.rows]
    for name in args.rows or ():
        if name not in ids:
            near = difflib.get_close_matches(name, ids, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(ids)}"
            raise UsageError(f"--rows: no row {name!r}", hint)
    rows = [row for row in matrix.rows if row.id in (args.rows or ids)]
    without = [row for row in rows if args.slog or "slog" not in row.on]
    if not without:
        raise UsageError("--slog is missing: all of these rows need a log device")
    if len(without) < len(rows):
        say(f"without --slog, {len(rows) - len(without)} of {len(rows)} rows are skipped")
    return without


def _require(host: Host, rows: Sequence[ReportRow]) -> None:
    """Raises NotPossible without ZFS, root, or a program that a row needs."""
    require_tracing(host.checks(), "zfs")
    if os.geteuid() != 0:
        raise NotPossible("only root can erase disks", "run as root")
    wanted = [*_PROGRAMS]
    if any(row.kind in ("ext4", "zvol") for row in rows):
        wanted += _EXT4
    if any(row.kind == "raw" for row in rows):
        wanted.append("fio")
    for name in wanted:
        if not shutil.which(name):
            raise NotPossible(
                f"{name} is not installed: some rows need it",
                "install it, or choose other rows with --rows",
            )


def _show(found: MatrixResult, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(found.to_json()))
    else:
        print("\n".join(text.view(found, style_of(sys.stdout))))
    if args.html is not None:
        from zfstune.bench.matrix import html

        html.save(found, args.html)
        say(f"page: {args.html}")
