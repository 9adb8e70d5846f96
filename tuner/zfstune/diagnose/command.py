"""`zfstune diagnose`: why fsyncs are slow."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TextIO

from zfstrace.clock import iso_now
from zfstrace.types import WRITES_BLOCKED, Json, TraceOptions
from zfstune.diagnose.judge import Diagnosis, judge
from zfstune.diagnose.observe import Watched, watching
from zfstune.diagnose.quantities import in_need, measure
from zfstune.diagnose.text import end, view
from zfstune.errors import UsageError
from zfstune.host import open_host
from zfstune.preflight import prepare
from zfstune.term import log
from zfstune.term.signals import Stop
from zfstune.term.table import style_of
from zfstune.trace.live import Run


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    if args.source is not None:
        from zfstune.diagnose import from_file

        return from_file.run(args)
    if args.at is not None:
        raise UsageError("--at is a moment in a file", "name the file with --from")
    options = TraceOptions(args.pool, None, args.no_fentry)
    host = open_host()
    prepare(host, options, question="diagnose")
    with Stop(sys.stdout) as stop:
        return diagnose(Run(args, options, host, sys.stdout, stop))


def diagnose(run: Run[TraceOptions]) -> int:
    """Watches, judges and prints; returns the status of the command."""
    for pool in [run.options.pool] if run.options.pool else run.host.pools():
        state = run.host.pool_state(pool)
        if state not in ("ONLINE", ""):
            log.say(f"pool {pool} is {state}; see `zpool status {pool}`")
        if state in WRITES_BLOCKED and run.options.pool:
            # no fsync ends there, and a thread that tries to write may spin in the kernel, which
            # keeps BPF programs from being detached
            found = [judge(in_need(pool, state, iso_now(), run.host.version()))]
            return show(found, None, run.out, as_json=run.args.json)
    with watching(run) as watched:
        # print before the traces are detached, which may take long
        if run.stop.reader_gone:
            return 0
        found = [judge(measure(seen)) for seen in watched.pools]
        return show(found, watched, run.out, as_json=run.args.json)


def show(found: list[Diagnosis], watched: Watched | None, out: TextIO, *, as_json: bool) -> int:
    """Prints diagnoses and returns their worst status. watched is None if nothing was traced."""
    style = style_of(out)
    if as_json:
        for one in found:
            print(json.dumps(one.to_json() | _beside(watched)), file=out)
        if watched:
            print("\n".join(end(watched, style_of(sys.stderr))), file=sys.stderr)
    else:
        # pools with findings first
        lines = [view(one, style) for one in sorted(found, key=lambda one: -one.status)]
        if watched:
            lines.append(end(watched, style))
        print("\n\n".join("\n".join(block) for block in lines), file=out)
    out.flush()
    return max((one.status for one in found), default=0)


def _beside(watched: Watched | None) -> Json:
    """The fields of JSON on what could not be measured."""
    if not watched:
        return {}
    return {"lost": sum(watched.lost.values()), "missing_views": watched.missing}
