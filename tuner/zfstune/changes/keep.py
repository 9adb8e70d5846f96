"""`zfstune keep`: writes the values in force to the file that the next load of the module, or the
next boot, reads."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from zfstrace.host import Host
from zfstrace.params import Kept
from zfstrace.printable import printable
from zfstune.changes import formats
from zfstune.changes.journal import Journal
from zfstune.changes.state_dir import Places, places
from zfstune.errors import DONE, NEGATIVE, NotPossible, UsageError
from zfstune.host import open_host
from zfstune.term.log import say
from zfstune.tunables import catalogue, guard
from zfstune.tunables.guard import Violation
from zfstune.tunables.planner import boot_order


def run(args: argparse.Namespace) -> int:
    """The command; status 1 if there is nothing to keep. Raises guard.Refused."""
    if args.format and args.remove:
        raise UsageError(
            "--format writes nothing that --remove could undo", "leave out one of them"
        )
    host = open_host()
    boot, names = host.parameters().boot(), [catalogue.canonical(name) for name in args.names]
    if args.remove:
        values, drop = {}, names or list(boot.values())
        _require(names, boot.values(), "not kept")
    else:
        found = in_force(host, places())
        there = coupled(found, guard.state(host.parameters())) | found
        _require(names, there, "not set by zfstune")
        values, drop = {name: there[name] for name in names or found}, []
    if not values and not drop:
        say("nothing is kept" if args.remove else "nothing to keep: no parameter is changed")
        return DONE if args.remove else NEGATIVE
    _NextLoad(host).judge(values, drop)
    if args.format:
        return _format(host, args.format, values, as_json=args.json)
    kept = boot.preview(values, drop) if args.print else boot.update(values, drop)
    if args.json:
        print(json.dumps(to_json(kept)))
    else:
        _tell(kept, only_print=args.print)
    return DONE


def _format(host: Host, name: str, values: Mapping[str, int], *, as_json: bool) -> int:
    """Prints the values in a form of formats.FORMATS; status 1 if it can have none of them."""
    ordered = {n: values[n] for n in boot_order(host, values)}
    lines, notes = formats.printed(name, ordered)
    if as_json:
        found = {"schema": 1, "type": "keep", "format": name, "lines": lines, "notes": notes}
        print(json.dumps(found))
    else:
        print("".join(f"{line}\n" for line in lines), end="", flush=True)
        for note in notes:
            say(note)
    return DONE if lines else NEGATIVE


def in_force(host: Host, where: Places) -> dict[str, int]:
    """The values that zfstune has set and that are still in force. Raises NotPossible without
    privilege, while a session is running, which has not decided yet, and if a part of the journal
    cannot be read."""
    params = host.parameters()
    here = params.identity()
    journal = Journal(where, write=False, here=here)
    history = journal.history
    if history.open_layer:
        raise NotPossible(
            f"cannot keep anything: `{history.open_layer.command}` has not ended", "wait for it"
        )
    if journal.unknown:
        raise NotPossible(f"cannot keep anything: {journal.unknown}", journal.unknown.hint)
    if any(layer.identity != here for layer in history.in_force):
        return {}
    found = {}
    for name in sorted(history.written & history.base.keys()):
        value = params.read(name)
        if (
            value is not None
            and value in history.expected[name]
            and value != history.base[name].value
        ):
            found[name] = value
    return found


def coupled(found: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """The present values of all parameters that a hard rule couples with these, whoever has set
    them: they must be kept together."""
    rules = (rule for rule in catalogue.rules() if rule.hard and found.keys() & set(rule.names))
    return {name: now[name] for rule in rules for name in rule.names if name in now}


class _NextLoad:
    """The values after the next load of the module, as far as the defaults of the others are known
    (guard.at_load): limits of the ARC are judged only if both are given."""

    def __init__(self, host: Host) -> None:
        self._host, self._version = host, host.version()
        self._facts = replace(guard.facts(host), arc_c_min=0, arc_c_max=0)
        self._boot = host.parameters().boot()

    def _state(self, values: Mapping[str, int], drop: Collection[str]) -> dict[str, int]:
        given = self._boot.preview(values, drop).given
        return guard.at_load(given, self._version, self._facts)

    def _broken(self, values: Mapping[str, int], drop: Collection[str]) -> list[Violation]:
        return [v for v in guard.check(self._state(values, drop), self._facts) if v.hard]

    def judge(self, values: Mapping[str, int], drop: Collection[str]) -> None:
        """Raises guard.Refused if these changes break a hard rule."""
        before, then = self._state({}, ()), self._state(values, drop)
        ours = {n for n, value in then.items() if value != before.get(n) or value == values.get(n)}
        for violation in self._broken(values, drop):
            names = [name for name in violation.names if name in ours]
            if names:
                what = f"cannot {'remove' if drop else 'keep'} {names[0]}"
                why = guard.broken(violation, then, self._facts)
                ways = " or ".join(self._ways(violation, values, drop))
                change = f"change {' or '.join(violation.names)} where that is set"
                raise guard.Refused(f"{what}: at the next boot {why}", ways or change, [violation])

    def _ways(
        self, violation: Violation, values: Mapping[str, int], drop: Collection[str]
    ) -> Iterator[str]:
        """What else to name to avoid this violation."""
        now = guard.state(self._host.parameters())
        for name in (name for name in violation.names if name in now):
            if drop:
                more, fewer, way = {**values}, {*drop, name}, f"also remove {name}"
            else:
                more, fewer, way = {**values, name: now[name]}, {*drop}, f"also keep {name}"
            if violation.rule not in {one.rule for one in self._broken(more, fewer)}:
                yield way


def _require(names: list[str], there: dict[str, int], what: str) -> None:
    for name in names:
        if name not in there:
            raise UsageError(f"{name} is {what}", "see `zfstune status`")


def _tell(kept: Kept, *, only_print: bool) -> None:
    for one in (kept, *kept.more):
        if only_print:
            lines = [f"# {one.path}", *one.lines]
        else:
            lines = [f"{one.path}: {line}" for line in one.lines or ("(no settings left)",)]
            lines += [f"previous file saved as {one.backup}"] if one.backup else []
        # lines of the previous file may contain anything
        print("\n".join(printable(line.expandtabs()) for line in lines))
    sys.stdout.flush()
    for note in kept.notes:
        say(note)
    if not only_print:
        what = "these values take effect at the next boot"
        if not kept.lines:
            what = f"the next boot sets {', '.join(sorted(kept.given)) or 'nothing'}"
        say(f"{what}; nothing has changed now")


def to_json(kept: Kept) -> dict[str, object]:
    """A ``keep`` object of the schema."""
    return {
        "schema": 1,
        "type": "keep",
        "path": kept.path,
        "lines": list(kept.lines),
        "backup": kept.backup,
        "notes": list(kept.notes),
        **({"more": [to_json(one) for one in kept.more]} if kept.more else {}),
    }
