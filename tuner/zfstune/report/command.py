"""`zfstune report`: the page of a finished session."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from zfstrace.types import SCHEMA, Json
from zfstune.errors import UsageError
from zfstune.report import render
from zfstune.report.target import require_writable
from zfstune.term.log import say

_MOST_BYTES = 256 << 20
_GIVE = "name the directory of a session of `zfstune tune`, or its session.json"


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    if args.file is not None:
        if args.session is not None:
            raise UsageError("a session and an incident are two reports", "leave out one of them")
        from zfstune.report import incident

        return incident.run(args)
    if args.at is not None:
        raise UsageError("--at is a moment in an incident", "name its file with --from")
    if args.session is None:
        raise UsageError("DIR|FILE is missing", f"{_GIVE}, or an incident with --from")
    path = Path(args.session)
    if path.is_dir():
        path /= "session.json"
    session = read(path)
    target = args.output or str(path.parent / render.NAME)
    if target != "-":
        require_writable(Path(target))
    render.save(session, path.parent, target)
    if target != "-":
        say(f"report: {target}")
    return 0


def read(path: Path) -> Json:
    """A session from its file. Raises UsageError."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is too large for a session", _GIVE)
        found = json.loads(path.read_bytes())
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"cannot read {path}: {why}", _GIVE) from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is not JSON", _GIVE) from None
    if not isinstance(found, dict) or found.get("type") != "tune_session" or "schema" not in found:
        raise UsageError(f"{path} is not a session", _GIVE)
    if found["schema"] != SCHEMA:
        raise UsageError(
            f"{path} has schema {found['schema']!r}: this zfstune reads only {SCHEMA}",
            "use the zfstune that wrote it",
        )
    if not {"state", "baseline", "blocks"} <= found.keys():
        raise UsageError(f"{path} is not a complete session", _GIVE)
    return found
