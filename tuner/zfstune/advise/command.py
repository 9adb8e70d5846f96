"""`zfstune advise`: findings about a host's pools, ordered by effect. It changes nothing."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from typing import TextIO

from zfstrace import processes
from zfstrace.host import Host
from zfstune.advise import database, text
from zfstune.advise.args import ALIASES
from zfstune.advise.gather import Asked, Run, gather
from zfstune.advise.judge import judge
from zfstune.errors import DONE, NEGATIVE, UsageError
from zfstune.host import open_host
from zfstune.term.log import say
from zfstune.term.table import style_of

# Then it says what it waits for.
_QUIET_S = 2.0


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError."""
    what = asked(args)
    patience = threading.Timer(_QUIET_S, say, ["reading the properties of all datasets"])
    patience.daemon = True
    patience.start()
    try:
        return advise(open_host(), what, sys.stdout, as_json=args.json)
    finally:
        patience.cancel()


def asked(args: argparse.Namespace) -> Asked:
    """The request on the command line. Raises UsageError, NotPossible."""
    where, load, config = args.where, ALIASES.get(args.load, args.load), args.config
    if where == "" or config == "":
        name = "the name of a pool or dataset" if where == "" else "--config: the name of the file"
        raise UsageError(f"{name} is empty", "leave it out")
    if where is not None and ("@" in where or "#" in where):
        raise UsageError(f"{where!r} is a snapshot or bookmark", "name its dataset")
    if config is None:
        return Asked(where, load or "")
    if load not in (None, "postgresql", "mysql"):
        raise UsageError(
            f"--config: not allowed with --for {load}", "give --for postgresql or --for mysql"
        )
    load = load or database.guess(config)
    return Asked(where, load, database.load(config, load))


def advise(
    host: Host, what: Asked, out: TextIO, *, as_json: bool, run: Run = processes.output
) -> int:
    """Prints the findings; returns status 1 if one is of severity high. Raises CommandError."""
    state = gather(host, what, run)
    verdict = judge(state.subjects, state.version)
    if as_json:
        print(json.dumps(text.to_json(state, what, verdict)), file=out)
    else:
        print("\n".join(text.lines(state, what, verdict, style_of(out))), file=out)
    return NEGATIVE if verdict.high else DONE
