"""The journal: which parameters were changed, from which values and by whom, written before
the change.

There are two copies of one file, in the run and in the state directory (copies.py). Each
line is a checksum and a JSON object; the checksum covers the line and the checksum before it, so
that nothing can be changed, left out or put in between. What counts is the longest intact
beginning of either copy; two files with different ids are no copies of each other, and the one of
the present boot counts. Every write of a parameter is announced in both before it is done, so that
any one of them is enough.

The copy of the run directory is in memory and is written first. To restore it is enough: the
state's is brought up to date when the parameters are back.

Layers: `params set` makes manual ones, which end "applied" at once. A tune session is a
layer on top of them; one that was left open by a crash is undone to the state at its
beginning. What ended "applied" stays until it is reverted, to the values from before the first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from zfstrace.clock import iso_second
from zfstune.changes.copies import DAMAGED, FOREIGN, LAST, Content, Copy
from zfstune.changes.records import (
    RESTORED,
    VERSION,
    History,
    Layer,
    Original,
    Override,
    Record,
    encode,
)
from zfstune.changes.state_dir import Places
from zfstune.errors import NotPossible

# A session waits so long for the disk, and ends then. Seconds.
_WRITE_S = 10.0
# A look at the state's copy, where there is another one, and where there is none.
_LOOK_S, _LOOK_ALONE_S = 1.0, 5.0
# What is written after the parameters are back.
_SETTLE_S = 2.0

LOST = (
    "a part of the journal cannot be read (it is kept as journal.damaged), compare with `zfstune "
    "params list --changed`, then run `zfstune recover --forget`"
)
_UNREAD = "look at it, then run `zfstune recover --forget`"


class Journal:
    """Reads both copies; with write=True, which wants the lock, what counts is written again where
    a copy is not so. here is the identity of boot and module, where it is known.

    Raises NotPossible when neither directory can be used."""

    def __init__(self, where: Places, *, write: bool, here: str = "") -> None:
        # where a record cannot be written, go on all the same: for a restore
        self.tolerant = False
        self._write, self._here, self._asked = write, here, where.state
        self._run = Copy(where.run, limited=False)
        self._run.look(0)
        # a journal knows where its other copy is
        header = self._run.content.history.header
        self._state = Copy(Path(header.get("state", where.state)), limited=True)
        self._state.look(_LOOK_S if header else _LOOK_ALONE_S)
        self._copies = (self._run, self._state)
        self._take(self._choose())
        self._unknown = self._why_unknown()
        # what a person must know of its state
        self.notes = [note for copy in self._copies if (note := self._note(copy))]
        if write and not self._refused:
            self._repair()

    # --- what is there

    @property
    def layer(self) -> Layer:
        """The one that is written to."""
        return self.history.layers[-1]

    @property
    def unknown(self) -> str:
        """Why not all that was changed can be known, and what to do; "" when it can."""
        lost = self.history.lost
        return LOST if lost is not None and lost in ("", self._here or lost) else self._unknown

    @property
    def last(self) -> History | None:
        """Of the journal that was put aside last."""
        found = [Content(copy.found.last).history for copy in self._copies if copy.found.last]
        return next((history for history in reversed(found) if history.layers), None)

    @property
    def kept(self) -> list[Path]:
        """What was put aside for a look at it."""
        return [copy.directory / name for copy in self._copies for name in copy.found.kept]

    @property
    def _refused(self) -> bool:
        """Whether what counts is of a later version, which nothing may touch."""
        return self._run.refused or (self._state.refused and not self._run.content.records)

    def _take(self, content: Content) -> None:
        """This is what counts: what each copy lacks of it, and whether that has to be kept."""
        self.records, self._last = list(content.records), content.last
        self._lines, self.history = list(content.lines), content.history
        for copy in self._copies:
            copy.compare(content)

    def _choose(self) -> Content:
        run, state = self._run.content, self._state.content
        if run.id and state.id and run.id != state.id:
            # two journals; the run directory's is of this boot, unless that outlives one
            here = self._here
            return state if here and state.is_of(here) and not run.is_of(here) else run
        best = state if len(state.records) > len(run.records) else run
        for copy in self._copies:
            # it was put aside, and the other one could not be, or came back
            last = Content(copy.found.last or None)
            if copy.found.data is None and best.id and last.id == best.id:
                over = not last.history.in_force and len(last.records) >= len(best.records)
                return last if over else best
        return best

    def _why_unknown(self) -> str:
        """Raises NotPossible when nothing can be used."""
        if self._refused:
            copy = self._run if self._run.refused else self._state
            return f"{copy.failed}: install that one again, or run its `zfstune revert`"
        if any(self._explains(copy.content) for copy in self._copies):
            return ""
        if any(copy.content.damaged for copy in self._copies):
            return LOST
        failed = [copy for copy in self._copies if copy.failed]
        if not failed or self.records:
            return ""
        if not failed[0].found.there:
            if self._run.found.last:
                return ""  # nothing has begun in this boot since that was put aside
            raise NotPossible(failed[0].failed)
        return f"{failed[0].failed}, {_UNREAD}"

    def _explains(self, content: Content) -> bool:
        """Whether it is intact, and all of what counts; of a file without a beginning it is not
        known whether that was a copy of it, so it must be of the present."""
        if not content.whole or content.lines != self._lines:
            return False
        nameless = any(copy.content.damaged and not copy.content.id for copy in self._copies)
        return not nameless or not self._here or content.is_of(self._here)

    def _note(self, copy: Copy) -> str:
        used = ", the other copy is used" if self.records and not self._unknown else ""
        if copy.content.damaged:
            return f"{copy.path} is damaged after record {len(copy.content.records)}{used}"
        if copy.failed:
            return f"{copy.failed}{used}"
        if copy.keep == FOREIGN:
            return f"{copy.path} is another journal{used}"
        return ""

    # --- both copies as they should be

    def _repair(self) -> None:
        """In the run directory; the other one waits until there is time."""
        if self._unknown == LOST and self.history.lost is None:
            if not self.records:
                self._add(self._header())
            self._add({"type": "lost", "identity": self._here})
        if self._lines and self._run.lacks(self._lines):
            self._run.again()
            with contextlib.suppress(NotPossible):
                self._run.update(self._lines, sync=True, limit_s=0)

    def settle(self) -> None:
        """Brings both copies up to date, as far as that goes in some seconds."""
        for copy in self._copies:
            if self._lines and copy.lacks(self._lines):
                copy.again()
                with contextlib.suppress(NotPossible):
                    copy.update(self._lines, sync=True, limit_s=_SETTLE_S)

    def put_aside(self) -> None:
        """Nothing of it is in force any more: it becomes journal.last. As long as one copy cannot
        be, as on a disk that became read-only, the other stays, which says so."""
        if self.unknown:
            return
        self.settle()
        if any(copy.failed for copy in self._copies) or not self.records:
            return
        if self._state.aside(LAST, _SETTLE_S):
            self._run.aside(LAST, 0)
            self._reset()

    def forget(self) -> None:
        """A person has looked at what cannot be read: it is put aside. Raises NotPossible."""
        if self.unknown == LOST:
            self._unknown = ""
            self.tolerant = True
            self._append({"type": "forgotten"})
            self.settle()
            wrong = [copy.failed for copy in self._copies if copy.failed]
            if len(wrong) == len(self._copies):
                raise NotPossible(f"{wrong[0]}, make room")
            return
        for copy in self._copies:
            if (copy.found.error or copy.refused) and not copy.aside(DAMAGED, _LOOK_ALONE_S):
                raise NotPossible(copy.failed)
        self._unknown = ""
        self._reset()

    def _reset(self) -> None:
        self.records, self._lines, self._last, self.history = [], [], "", History()
        for copy in self._copies:
            copy.have, copy.size, copy.keep = 0, None, ""

    # --- records

    def _header(self) -> Record:
        return {
            "type": "journal",
            "version": VERSION,
            "id": os.urandom(8).hex(),
            "state": str(self._state.directory),
        }

    def _add(self, record: Record) -> None:
        record = {"n": len(self.records), **record}
        line, self._last = encode(record, self._last)
        self._lines.append(line)
        self.records.append(record)
        self.history.add(record)

    def _append(self, record: Record, *, sync: bool = True, tolerant: bool = False) -> None:
        """In memory first, then in the run directory, then on disk, which gets what is not synced
        with the next record that is. Raises NotPossible when a copy cannot be written, unless
        tolerant: then the disk's is only written when the other cannot be."""
        line, _digest = encode({"n": len(self.records), **record}, self._last)
        lines = [*self._lines, line]
        try:
            self._run.update(lines, sync=sync, limit_s=0)
            if sync and not (tolerant or self.tolerant):
                self._state.update(lines, sync=True, limit_s=_WRITE_S)
        except NotPossible as error:
            if not (tolerant or self.tolerant):
                self._run.cut(self._lines)
                raise _no_journal(error) from None
            with contextlib.suppress(NotPossible):
                self._state.update(lines, sync=True, limit_s=_LOOK_S)
        self._add(record)

    def begin(
        self, kind: str, identity: str, command: str, originals: Mapping[str, Original]
    ) -> Layer:
        """A new layer, on stable storage in both copies. Raises NotPossible."""
        self._require_both()
        new = not self.records
        if new:
            self._add(self._header())
        record: Record = {"type": "begin", "kind": kind, "identity": identity}
        record |= {"pid": os.getpid(), "command": command, "time": iso_second()}
        count = len(self.history.layers)
        try:
            self._append(record, sync=not originals)
            for at, (name, original) in enumerate(originals.items(), 1):
                self.original(name, original, sync=at == len(originals))
        except NotPossible:
            # nothing has begun
            if new:
                for copy in self._copies:
                    copy.remove(_LOOK_S)
                self._reset()
            elif len(self.history.layers) > count:
                self.tolerant = True
                self.end(self.layer, RESTORED)
                self.tolerant = False
            raise
        return self.layer

    def _require_both(self) -> None:
        if self.unknown:
            raise NotPossible(f"cannot begin, {self.unknown}")
        if self._state.directory != self._asked:
            elsewhere = self._state.directory
            raise NotPossible(
                f"cannot use {self._asked}, parameters were changed with the state directory "
                f"{elsewhere}, set ZFSTUNE_STATE_DIR={elsewhere}"
            )
        for copy in self._copies:
            if copy.failed:
                raise _no_journal(copy.failed)

    def original(self, name: str, original: Original, *, sync: bool = True) -> None:
        """The value of a parameter before the layer's first write of it."""
        fields = {"value": original.value, "effective": original.effective}
        self._append({"type": "original", "name": name, **fields}, sync=sync)

    def intend(self, name: str, old: int, new: int) -> None:
        """To be called before each write. Raises NotPossible: then it must not be done."""
        self._append({"type": "intend", "name": name, "old": old, "new": new})

    def wrote(self, name: str, value: int) -> None:
        """The write was done. Not synced: after a power failure the value is gone, too."""
        self._append({"type": "wrote", "name": name, "value": value}, sync=False)

    def override(self, override: Override) -> None:
        """What is somebody else's is theirs, whether there is room to say so or not."""
        self._append(
            {
                "type": "override",
                "name": override.name,
                "value": override.value,
                "pid": override.pid,
                "comm": override.comm,
                "time": override.time or iso_second(),
                "lost": override.lost,
            },
            tolerant=True,
        )

    def end(self, layer: Layer, how: str) -> None:
        """A layer has ended: how is APPLIED, RESTORED or GONE. Raises NotPossible when there is no
        room to say so, unless tolerant."""
        if layer.end != how:
            self._append({"type": "end", "layer": layer.number, "how": how, "time": iso_second()})

    def close(self) -> None:
        """Writes what a copy still lacks, as far as that goes in some seconds. The journal may be
        used again."""
        if self._write and not self._refused:
            self.settle()


def _no_journal(reason: object) -> NotPossible:
    advice = ", make room or set ZFSTUNE_STATE_DIR" if str(reason).startswith("cannot wr") else ""
    return NotPossible(f"{reason}; nothing can be changed without a journal{advice}")
