"""`zfstune revert`: restores all parameters that zfstune has changed."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys

from zfstrace.host import Host
from zfstrace.printable import printable
from zfstune.changes import recovery
from zfstune.changes.apply import Applier, RestoreReport
from zfstune.changes.journal import Journal
from zfstune.changes.state_dir import Places, places
from zfstune.errors import DONE, NEGATIVE
from zfstune.host import open_host
from zfstune.term.log import say
from zfstune.term.signals import deferred_signals
from zfstune.tunables import catalogue


def run(args: argparse.Namespace) -> int:
    """The command; status 1 if something could not be restored."""
    host, where = open_host(), places()
    if args.print:
        for line in commands(host, where):
            print(printable(line))
        return DONE
    report = revert(host, where)
    if args.json:
        print(json.dumps(to_json(report)))
    else:
        for line in recovery.describe(report, host) or ["nothing to restore"]:
            print(printable(line))
    boot = host.parameters().boot().values()
    if boot:
        sys.stdout.flush()
        say(f"the next boot sets {', '.join(sorted(boot))} again; see `zfstune keep --remove`")
    return DONE if report.complete else NEGATIVE


def revert(host: Host, where: Places) -> RestoreReport:
    """Restores everything. Raises NotPossible."""
    here = host.parameters().identity()
    journal = Journal(where, write=False, here=here)
    if not journal.records and not journal.unknown:
        return RestoreReport()
    lock = recovery.take_lock(where, "zfstune revert")
    said: list[str] = []
    try:
        with deferred_signals():
            left = recovery.restore_left(host, where, said.append)
            journal = Journal(where, write=True, here=here)
            with contextlib.closing(journal):
                if (left and not left.complete and not journal.unknown) or not journal.records:
                    return left or recovery.with_unknown(RestoreReport(), journal)
                report = Applier(host, journal, catalogue.load(), said.append).revert()
                if not journal.history.in_force:
                    journal.put_aside()
                return recovery.with_unknown(report, journal)
    finally:
        lock.release()
        for text in said:
            say(text)


def commands(host: Host, where: Places) -> list[str]:
    """What revert would do, as commands for a root shell without this program."""
    here = host.parameters().identity()
    journal = Journal(where, write=False, here=here)
    lines = []
    if journal.unknown:
        lines = [f"# what zfstune has changed is not known: {journal.unknown.in_one_line()}"]
    if any(layer.identity != here for layer in journal.history.in_force):
        return [*lines, "# nothing to restore: the zfs module was reloaded"]
    applier = Applier(host, journal, catalogue.load(), say)
    writes, kept, gone = applier.planned(journal.history.base)
    lines += [f"# {override} and is left as it is" for override in kept]
    lines += [f"# {name} does not exist any more" for name in gone]
    for write in writes:
        if write.quiet:
            lines.append("sleep 1  # until the write throttle delays no writer")
        lines.append(applier.params.shell(write.name, write.value))
    return lines or ["# nothing to restore"]


def to_json(report: RestoreReport) -> dict[str, object]:
    """A ``revert`` object of the schema."""
    return {
        "schema": 1,
        "type": "revert",
        "restored": [
            {"name": r.name, "before": r.before, "value": r.value} for r in report.restored
        ],
        "kept": [
            {"name": o.name, "value": o.value, "pid": o.pid, "comm": o.comm} for o in report.kept
        ],
        "gone": list(report.gone),
        "failed": [{"name": name, "reason": reason} for name, reason in report.failed],
        "remains": catalogue.remains(r.name for r in report.restored),
    }
