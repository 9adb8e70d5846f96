"""`zfstune report`: the page of a session that is over."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from zfstrace.types import SCHEMA, Json
from zfstune.errors import UsageError
from zfstune.report import render
from zfstune.term.log import say

_MOST_BYTES = 256 << 20


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    path = Path(args.session)
    if path.is_dir():
        path /= "session.json"
    session = read(path)
    target = args.output or str(path.parent / render.NAME)
    if target != "-":
        _check(Path(target))
    render.save(session, path.parent, target)
    if target != "-":
        say(f"the report is {target}")
    return 0


def read(path: Path) -> Json:
    """A session from its file. Raises UsageError."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is too large for a session, look at the name")
        found = json.loads(path.read_bytes())
    except OSError as error:
        why = error.strerror or error
        raise UsageError(
            f"cannot read {path}, {why}: give a session's directory or its session.json"
        ) from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is not JSON, give the session.json of `zfstune tune`") from None
    if not isinstance(found, dict) or found.get("type") != "tune_session" or "schema" not in found:
        raise UsageError(f"{path} is not of a session, give the session.json of `zfstune tune`")
    if found["schema"] != SCHEMA:
        raise UsageError(
            f"{path} has schema {found['schema']!r}, this zfstune reads {SCHEMA}: use the one "
            "that wrote it"
        )
    if not {"state", "baseline", "blocks"} <= found.keys():
        raise UsageError(f"{path} is not a whole session, give the session.json of `zfstune tune`")
    return found


def _check(target: Path) -> None:
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is not a regular file, give another name")
    if not target.parent.is_dir():
        raise UsageError(f"there is no directory {target.parent}, make it first")
