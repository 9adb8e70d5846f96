"""`zfstune record run`, `dump`, `status` and `anonymise`."""

from __future__ import annotations

import argparse
import functools
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from zfstrace import files
from zfstrace.types import Json
from zfstune.errors import NotPossible, UsageError
from zfstune.record.control import ask
from zfstune.record.dumps import SOCKET
from zfstune.term.log import say
from zfstune.term.units import format_count

_PIECE = 1 << 16


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return {"run": _run, "dump": _dump, "status": _status, "anonymise": _anonymise}[args.what](args)


def _run(args: argparse.Namespace) -> int:
    from zfstune.host import open_host
    from zfstune.record import triggers
    from zfstune.record.args import DEFAULT_VIEWS, INSTEAD
    from zfstune.record.changes import Writes
    from zfstune.record.following import Following
    from zfstune.record.recorder import Recorder, Settings, begun
    from zfstune.record.sources import require, view_named
    from zfstune.record.traced import Attach
    from zfstune.term.signals import Stop
    from zfstune.trace.live import loop

    wanted = [triggers.parse(text) for text in args.trigger]
    views = args.views or DEFAULT_VIEWS
    triggers.require_views(wanted, views)
    host = open_host()
    require(host, views)
    # nothing is written to stdout, so nobody who leaves it ends the recording
    with Stop(io.StringIO()) as stop, ExitStack() as stack:

        def count(number: int, _what: str) -> None:
            recorder.counts["errors"] += number

        attach = Attach(host, stop, no_fentry=args.no_fentry)
        made = functools.partial(view_named, attach=attach)
        following = Following(attach, made, views, {} if args.views else INSTEAD, count)
        stack.callback(following.close)
        writes = Writes(host)
        stack.callback(writes.close)
        recorder = Recorder(
            host,
            following.rows,
            Settings(args.dump_dir, wanted, args.budget),
            open_host=open_host,
            off=following.in_words,
            lost=following.lost,
            writes=writes.poll,
        )
        recorder.open()
        stack.callback(following.survive, "recorder", recorder.close)

        def tick() -> bool:
            following.tick()
            following.survive("recorder", functools.partial(recorder.tick, stop.now()))
            return False

        say(f"{begun(recorder)}; Ctrl-C to end")
        tick()
        loop(stop, args.duration, None, tick)
    return 0


def _dump(args: argparse.Namespace) -> int:
    if args.anonymise and not args.output:
        raise UsageError("--anonymise needs a file to write", "add -o FILE")
    if args.at is not None:
        from zfstune.incident.at import parse

        parse(args.at)
    if args.output:
        _check_output(args.output)
    asked = {"do": "dump", "last_ns": args.last, "at": args.at, "file": bool(args.output)}
    reply = ask(Path(args.dump_dir) / SOCKET, asked)
    if not args.output:
        say(f"{reply.body.get('path')}: {_amount(reply.body)}")
        return 0
    if reply.fd is None:
        raise NotPossible("the recorder gave no file", "look at its log")
    if args.anonymise:
        # names are in no other file: /tmp may be on the pool that hangs
        anonymise("the recorder's file", args.output, reply.fd)
    else:
        with os.fdopen(reply.fd, "rb") as file:
            _write(args.output, _pieces(file))
    if args.output != "-":
        say(f"{args.output}: {_amount(reply.body)}")
    return 0


def _amount(body: Json) -> str:
    records, left_out = body.get("records") or 0, body.get("left_out") or 0
    text = f"{format_count(records)} record{'' if records == 1 else 's'}"
    return f"{text}; no room for {format_count(left_out)} older ones" if left_out else text


def _check_output(output: str) -> None:
    """Raises UsageError."""
    path = Path(output)
    if output == "-":
        if sys.stdout.isatty():
            raise UsageError(
                "an incident file is not for a terminal", "redirect it, or name a file"
            )
    elif path.exists() and not path.is_file():
        raise UsageError(f"{output} is not a regular file", "name another")
    elif not path.parent.is_dir():
        raise UsageError(f"directory {path.parent} does not exist", "create it first")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _write(output: str, pieces: Iterator[bytes]) -> None:
    if output == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    try:
        # names of datasets and programs are in it
        files.write(Path(output), pieces, 0o600)
    except OSError as error:
        why = error.strerror or error
        raise NotPossible(f"cannot write {output}: {why}", "name another file by -o") from None


def _status(args: argparse.Namespace) -> int:
    found = ask(Path(args.dump_dir) / SOCKET, {"do": "status"}).body
    if args.json:
        print(json.dumps(found))
        return 0
    from zfstune.record.text import status

    try:
        lines = status(found)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NotPossible(
            "the recorder that runs is of another version", "restart it, or use --json"
        ) from None
    print("\n".join(lines))
    return 0


def _anonymise(args: argparse.Namespace) -> int:
    _check_output(args.output)
    count = anonymise(args.file, args.output)
    if args.output != "-":
        say(f"{args.output}: {_amount({'records': count})}")
    return 0


def anonymise(source: str, output: str, fd: int | None = None) -> int:
    """Writes an incident file without names; returns how many records it has. fd is the source's
    descriptor, if it is open already. Raises UsageError, NotPossible."""
    from zfstune.incident.anonymise import Anonymiser
    from zfstune.incident.intervals import load
    from zfstune.incident.lines import Input
    from zfstune.incident.reader import HINT, Reader
    from zfstune.incident.writer import write

    names = Anonymiser(judged=_judged)
    with Reader(source, Input(source, HINT, fd)) as reader:
        # all names first: a text in the header may have one that only a later record has as a name
        names.learn(reader.header)
        incident = load(reader, lambda _interval, record: names.learn(record))
    records = (one for interval in incident.intervals for one in interval.records())
    try:
        written = write(
            sys.stdout.fileno() if output == "-" else Path(output),
            names.header(incident.header),
            (made for one in records if (made := names.record(one))),
        )
    except OSError as error:
        why = error.strerror or error
        raise NotPossible(f"cannot write {output}: {why}", "name another file by -o") from None
    for problem in incident.problems:
        say(problem)
    return written.records


def _judged(measurements: Json) -> Json:
    """The texts of a diagnosis from its measurements, which have no names any more."""
    from zfstune.diagnose.judge import judge
    from zfstune.diagnose.quantities import NAMES

    return judge({name: measurements.get(name) for name in NAMES}).to_json()
