"""`zfstune tune`: a session that searches for better parameters, and proves them."""

from __future__ import annotations

import argparse
import json
import os
import sys

from zfstrace import files
from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstrace.printable import printable
from zfstrace.types import Json, TraceOptions
from zfstune.errors import DONE, NEGATIVE, CommandError, NotPossible, RestoredError
from zfstune.host import open_host
from zfstune.preflight import prepare, require_tracing
from zfstune.term.log import say
from zfstune.term.signals import Stop
from zfstune.term.table import style_of
from zfstune.tune.plan import Setup, refusals, require_consent
from zfstune.tune.request import Request, parse_request, pool_of
from zfstune.tune.session import TuningRun, not_suspended
from zfstune.tune.workload import output_directory

FILE = "session.json"


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    request = parse_request(args)
    host = open_host()
    pool = pool_of(args, host)
    prepare(host, TraceOptions(pool), bpf=not args.dry_run)
    setup = Setup.of(request, host, pool)
    if args.dry_run:
        reasons = [*refusals(args, setup), *_untraceable(host)]
        lines = [*setup.describe(args), *(f"not now: {why.in_one_line()}" for why in reasons)]
        print("\n".join(map(printable, lines)))
        return DONE
    require_consent(args, setup)
    output_directory(request.out)
    with Stop(sys.stderr) as stop, not_suspended():
        session = TuningRun.begin(args, setup, stop).run()
    return finish(args, request, session)


def _untraceable(host: Host) -> list[NotPossible]:
    """Why fsyncs cannot be measured; [] when they can."""
    try:
        require_tracing(host.checks())
    except NotPossible as error:
        return [error]
    return []


def finish(args: argparse.Namespace, request: Request, session: Json) -> int:
    """Prints the result and writes the files. Returns the exit status, which says what is in force
    even if that fails. Raises CommandError."""
    from zfstune.report import render
    from zfstune.term import json as term_json
    from zfstune.tune import text as tune_view

    session = term_json.clean(session)
    try:
        if args.json:
            print(json.dumps(session))
        else:
            print("\n".join(tune_view.table(session, style_of(sys.stdout))))
        sys.stdout.flush()
    except OSError as error:
        # the reader is gone, or its disk is full; Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            say(f"cannot print the result: {error.strerror}")
    path = request.out / FILE
    try:
        text = json.dumps(session, indent=1) + "\n"
        files.write(path, [text.encode()], 0o600, synced=True)
        say(f"report: {render.write(session, request.out)}, data: {path}")
    except (OSError, TraceError) as error:
        say(f"cannot write the report: {error}; use --json to print its data")
    if not session["restored"]:
        raise CommandError(session["note"])
    if session["state"] == "failed":
        raise RestoredError(session["note"])
    return DONE if session["in_force"] else NEGATIVE
