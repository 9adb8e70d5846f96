"""`zfstune flame convert`: stacks from one format to another."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from zfstrace import flame
from zfstrace.flame.human import amount
from zfstrace.stacks import Stacks
from zfstune.errors import UsageError
from zfstune.flame.args import DURATION
from zfstune.term.log import say


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    check_alone(args)
    flame.check_output(args.output)
    stacks = read(args.input, args)
    if args.title is not None:
        stacks = replace(stacks, title=args.title)
    flame.write(stacks, args.output, inverted=args.inverted)
    if args.output != "-":
        seen = f"{amount(stacks.total, stacks.unit)} in {len(stacks.counts):,} distinct stacks"
        say(f"{args.output} has {seen}")
    return 0


def read(path: str, args: argparse.Namespace) -> Stacks:
    """The stacks of a file, "-" for standard input; notes on it go to stderr. Raises CommandError
    and TraceError."""
    if path == "-" and sys.stdin.isatty():
        raise UsageError("standard input is a terminal", "pipe stacks into the command")
    source = flame.read(path, unit=args.unit, kind=args.kind)
    for note in source.notes:
        say(note)
    return source.stacks


def check_alone(args: argparse.Namespace) -> None:
    """Raises UsageError if options of a recording precede a command on files."""
    given = (args.mode, args.target, args.pool, args.duration)
    if given != ("off-cpu", "fsync", None, DURATION):
        raise UsageError(
            f"`flame {args.what}` records nothing", f"leave out the options before {args.what}"
        )
