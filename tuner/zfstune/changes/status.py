"""`zfstune status`: which parameters are changed, since when, by which command."""

from __future__ import annotations

import argparse
import json
import sys

from zfstrace.host import Host
from zfstrace.printable import printable
from zfstrace.types import Json
from zfstune.changes.journal import Journal
from zfstune.changes.lock import Holder, holder
from zfstune.changes.records import History
from zfstune.changes.state_dir import Places, places
from zfstune.errors import DONE, NEGATIVE
from zfstune.host import open_host
from zfstune.term.table import aligned, style_of
from zfstune.tunables import catalogue, values


def run(args: argparse.Namespace) -> int:
    """The command; status 1 if values of a killed session may be in force, or a part of the journal
    cannot be read."""
    where = places()
    found = collect(open_host(), where)
    if args.json:
        print(json.dumps(found))
    else:
        paint = style_of(sys.stdout).paint
        for line in map(printable, words(found)):
            print(paint(line, "bold") if line.startswith("PARAMETER") else line)
    return NEGATIVE if found["state"] in ("killed", "unreadable") else DONE


def collect(host: Host, where: Places) -> Json:
    """A ``status`` object of the schema: state is "unchanged", "changed", "session" (one is
    running), "killed" (one left its values), "gone" (a reload of the module reset them) or
    "unreadable" (not all changes can be known; "unknown" says why). Raises NotPossible without
    privilege."""
    running = holder(where)
    journal = Journal(where, write=False, here=host.parameters().identity())
    history = journal.history
    # a journal that is being written may end in half a line
    unknown = None if running else journal.unknown
    notes = [] if running else list(journal.notes)
    notes += [
        f"{path} is a journal that was put aside" + ("" if unknown else "; it can be removed")
        for path in journal.kept
    ]
    return {
        "schema": 1,
        "type": "status",
        "state": "unreadable" if unknown else _state(host, history, running),
        "session": _holder(running),
        "layers": [
            {
                "kind": layer.kind,
                "pid": layer.pid,
                "command": layer.command,
                "time": layer.time,
                "end": layer.end,
            }
            for layer in history.in_force
        ],
        "parameters": _parameters(host, history),
        "remains": _remains(host, history, journal.last),
        "overrides": _overrides(history),
        "boot": host.parameters().boot().values(),
        "last": _last(journal.last),
        "notes": notes,
        "unknown": unknown.in_one_line() if unknown else "",
    }


def _state(host: Host, history: History, running: Holder | None) -> str:
    if not history.in_force:
        return "session" if running else "unchanged"
    here = host.parameters().identity()
    if any(layer.identity != here for layer in history.in_force):
        return "gone"
    if running:
        return "session"
    return "killed" if history.open_layer else "changed"


def _holder(running: Holder | None) -> Json | None:
    if running is None:
        return None
    return {"pid": running.pid, "command": running.command, "time": running.started}


def _parameters(host: Host, history: History) -> list[Json]:
    """The parameters that this program has changed, and their present values."""
    read = host.parameters().read
    rows = []
    for name in sorted(history.written & history.base.keys()):
        value, before = read(name), history.base[name].value
        ours = value in history.expected[name]
        if value != before or not ours:
            rows.append({"name": name, "value": value, "before": before, "ours": ours})
    return rows


def _remains(host: Host, history: History, last: History | None) -> list[str]:
    """What remains, or will remain, after the values are restored."""
    layers = history.in_force or (last.layers if last else [])
    here = host.parameters().identity()
    return catalogue.remains(
        name for layer in layers if layer.identity == here for name in layer.originals
    )


def _overrides(history: History) -> list[Json]:
    return [
        {"name": o.name, "value": o.value, "pid": o.pid, "comm": o.comm, "time": o.time}
        for layer in history.in_force
        for o in layer.overrides
    ]


def _last(history: History | None) -> Json | None:
    """How the last changes ended."""
    if history is None:
        return None
    layer = history.layers[-1]
    return {"kind": layer.kind, "command": layer.command, "time": layer.time, "end": layer.end}


def words(found: Json) -> list[str]:
    """The lines that a person sees, from the object of collect()."""
    lines = [f"zfstune: {note}" for note in found["notes"]]
    lines += _headline(found)
    rows = [
        [row["name"], _shown(row, "value"), _shown(row, "before"), _remark(row)]
        for row in found["parameters"]
    ]
    if rows and found["state"] != "gone":
        lines += aligned([["PARAMETER", "NOW", "BEFORE", ""], *rows], "<>><")
    for override in found["overrides"]:
        who = "another process" if override["pid"] is None else f"process {override['pid']}"
        comm = f" ({override['comm']})" if override["comm"] else ""
        lines.append(
            f"{override['name']} was set to {override['value']} by {who}{comm} at "
            f"{override['time']} and is left as it is"
        )
    back = "" if found["state"] == "unchanged" else "also after `zfstune revert`, "
    lines += [f"{back}{text}" for text in found["remains"]]
    for name, value in found["boot"].items():
        lines.append(f"at the next load of the module: {name}={value} (`zfstune keep`)")
    if found["unknown"]:
        lines.append(f"what zfstune has changed is not known: {found['unknown']}")
    if found["state"] == "changed":
        lines.append("undo: `zfstune revert`; keep over a reboot: `zfstune keep`")
    return lines


def _headline(found: Json) -> list[str]:
    running, layers = found["session"], found["layers"]
    if found["state"] == "session":
        return [
            f"`{running['command']}` is running: process {running['pid']} since {running['time']}"
        ]
    if found["state"] == "killed":
        layer = layers[-1]
        return [
            f"`{layer['command']}` (process {layer['pid']}, since {layer['time']}) was killed; "
            "its values may be in force: run `zfstune recover`"
        ]
    if found["state"] == "unreadable":
        return []
    if found["state"] == "gone":
        return ["the zfs module was reloaded, which reset the values that were set"]
    if found["state"] == "changed":
        return [f"set by `{one['command']}` at {one['time']}" for one in layers]
    lines = ["no parameter is changed by zfstune"]
    last = found["last"]
    if last:
        lines.append(f"last: `{last['command']}` at {last['time']}, {_END[last['end'] or '']}")
    return lines


_END = {
    "": "killed",
    "applied": "its values stayed",
    "restored": "its values were restored",
    "gone": "a reload of the module reset its values",
}


def _shown(row: Json, key: str) -> str:
    if row[key] is None:
        return "-"
    parameter = catalogue.load().get(row["name"])
    return values.show(row[key], parameter.unit if parameter else "count")


def _remark(row: Json) -> str:
    return "" if row["ours"] else "set by another process"
