"""`zfstune diagnose`: why fsyncs are slow."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TextIO

from zfstrace.clock import iso_now
from zfstrace.types import SCHEMA, WRITES_BLOCKED, Json, TraceOptions
from zfstune.diagnose.judge import Diagnosis, judge
from zfstune.diagnose.observe import Watched, watching
from zfstune.diagnose.quantities import NAMES, Value, in_need, measure
from zfstune.diagnose.text import end, view
from zfstune.errors import UsageError
from zfstune.host import open_host
from zfstune.preflight import prepare
from zfstune.term import log
from zfstune.term.signals import Stop
from zfstune.term.table import style_of
from zfstune.trace.live import Run

# Measurements are counters and times of the kernel: 64 bits.
_MOST = (1 << 64) - 1
_GIVE = "give the output of `zfstune diagnose --json`"


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    if args.source is not None:
        found = read(args.source)
        named = [one for one in found if args.pool in (None, one["pool"])]
        if not named:
            pools = ", ".join(sorted({str(one["pool"]) for one in found}))
            raise UsageError(f"no pool {args.pool!r} in {args.source}", f"choose from {pools}")
        return show([judge(one) for one in named], None, sys.stdout, as_json=args.json)
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
    """Prints diagnoses and returns their worst status. watched is None for those of a file."""
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


def read(source: str) -> list[dict[str, Value]]:
    """The measurements of each pool in the output of --json, from a file or "-". Raises
    UsageError."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}", "name a file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{source} is not text", _GIVE) from None
    found = [_measurements(line, source) for line in text.split("\n") if line.strip()]
    if not found:
        raise UsageError(f"{source} is empty", _GIVE)
    return found


def _measurements(line: str, source: str) -> dict[str, Value]:
    """Unknown names are left out, missing ones are None."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or entry.get("type") != "diagnosis":
        raise UsageError(f"{source} has a line that is no diagnosis", _GIVE)
    given = entry.get("measurements")
    if entry.get("schema") != SCHEMA or not isinstance(given, dict):
        raise UsageError(f"{source} is not of schema {SCHEMA}", "use the zfstune that wrote it")
    found: dict[str, Value] = {name: given.get(name) for name in NAMES}
    for name, value in found.items():
        kind = str if NAMES[name].unit == "text" else int
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise UsageError(f"{source}: {name} is not of type {kind.__name__}", _GIVE)
        if isinstance(value, int) and abs(value) > _MOST:
            raise UsageError(f"{source}: {name} has more than 64 bits", _GIVE)
    return found
