"""`zfstune flame diff`: what changed between two recordings."""

from __future__ import annotations

import argparse

from zfstrace import flame
from zfstrace.flame import diff
from zfstrace.flame.human import amount
from zfstune.errors import UsageError
from zfstune.flame.convert import check_alone, read
from zfstune.term.log import say


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    check_alone(args)
    form = flame.check_output(args.output, formats=("svg", "folded"))
    if args.before == args.after == "-":
        raise UsageError("BEFORE and AFTER are both standard input", "give a file for one")
    before, after = read(args.before, args), read(args.after, args)
    diff.check(before, after)
    if form == "folded":
        flame.save(args.output, diff.folded(before, after))
    else:
        title = args.title
        if title is None:
            title = f"Difference: {before.title or args.before} to {after.title or args.after}"
        flame.save(args.output, diff.render(before, after, title, inverted=args.inverted))
    if args.output != "-":
        totals = [amount(side.total, side.unit) for side in (before, after)]
        say(f"{args.output} compares {totals[0]} before with {totals[1]} after")
    return 0
