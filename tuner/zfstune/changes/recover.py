"""`zfstune recover`: restores what a killed session has left."""

from __future__ import annotations

import argparse

from zfstune.changes.recovery import forget, restore_now
from zfstune.errors import DONE, NEGATIVE


def run(args: argparse.Namespace) -> int:
    """The command; status 1 if something could not be restored."""
    from zfstune.changes.lock import Busy
    from zfstune.changes.state_dir import places
    from zfstune.host import open_host
    from zfstune.term.log import say

    where = places()
    try:
        if args.forget:
            return DONE if forget(open_host(), where, say) else NEGATIVE
        report = restore_now(open_host(), where, "zfstune recover", say, -1 if args.wait else 0)
    except Busy as error:
        say(f"nothing to do: {error}")
        return DONE
    if report is None:
        say("nothing to restore")
        return DONE
    return DONE if report.complete else NEGATIVE
