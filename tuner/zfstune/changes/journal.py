"""The journal: which parameters were changed, from which values and by whom, written before the
change.

Two copies of one file are in the run and in the state directory (copies.py). Each line is a
checksum and a JSON object; the checksum covers the line and the previous checksum, so that no line
can be changed, removed or inserted. The longest intact beginning of either copy counts; of two
files with different ids, which are not copies of each other, the one of the present boot counts.
Both announce every write of a parameter before it is done, so that either is enough.

The copy in the run directory is in memory and is written first. A restore needs no other: the
copy in the state directory is updated when the parameters are restored.

Layers: `params set` makes manual layers, which end "applied" at once. A tune session is a layer on
top of them; if a crash leaves it open, it is undone to the state at its beginning. What ended
"applied" stays until `zfstune revert` restores the values from before the first layer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from zfstrace.clock import iso_second
from zfstrace.params import LOADED_ANEW
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

# A session waits this long for the disk before it ends.
_WRITE_S = 10.0
# Limits for reading the state directory's copy: if the other copy exists, and if it does not.
_LOOK_S, _LOOK_ALONE_S = 1.0, 5.0
# For writes after the parameters are restored.
_SETTLE_S = 2.0

LOST = NotPossible(
    "a part of the journal cannot be read (it is kept as journal.damaged)",
    "compare with `zfstune params list --changed`, then run `zfstune recover --forget`",
)
_UNREAD = "look at it, then run `zfstune recover --forget`"


class Journal:
    """Reads both copies; with write=True, which needs the lock, repairs a copy that differs. here
    is the identity of boot and module, "" if not known.

    Raises NotPossible if neither directory can be used."""

    def __init__(self, where: Places, *, write: bool, here: str = "") -> None:
        # for a restore: go on even if a record cannot be written
        self.tolerant = False
        self._write, self._here, self._asked = write, here, where.state
        self._run = Copy(where.run, limited=False)
        self._run.look(0)
        # the header names the directory of the other copy
        header = self._run.content.history.header
        self._state = Copy(Path(header.get("state", where.state)), limited=True)
        self._state.look(_LOOK_S if header else _LOOK_ALONE_S)
        self._copies = (self._run, self._state)
        self._take(self._choose())
        self._unknown = self._why_unknown()
        # what a person must know about its state
        self.notes = [note for copy in self._copies if (note := self._note(copy))]
        if write and not self._refused:
            self._repair()

    # --- what is there

    @property
    def layer(self) -> Layer:
        """The layer to which records are added."""
        return self.history.layers[-1]

    @property
    def unknown(self) -> NotPossible | None:
        """Why not all changes can be known; None if they are."""
        lost = self.history.lost
        return LOST if lost is not None and lost in ("", self._here or lost) else self._unknown

    @property
    def last(self) -> History | None:
        """The previous journal, which was put aside; None if there is none."""
        found = [Content(copy.found.last).history for copy in self._copies if copy.found.last]
        return next((history for history in reversed(found) if history.layers), None)

    @property
    def kept(self) -> list[Path]:
        """The damaged or foreign journals that were put aside."""
        return [copy.directory / name for copy in self._copies for name in copy.found.kept]

    @property
    def _refused(self) -> bool:
        """Whether the journal was written by a later version, and so must not be touched."""
        return self._run.refused or (self._state.refused and not self._run.content.records)

    def _take(self, content: Content) -> None:
        """Makes this the journal, and compares each copy with it."""
        self.records, self._last = list(content.records), content.last
        self._lines, self.history = list(content.lines), content.history
        for copy in self._copies:
            copy.compare(content)

    def _choose(self) -> Content:
        run, state = self._run.content, self._state.content
        if run.id and state.id and run.id != state.id:
            # two journals; the run directory's is of this boot, unless that directory outlives one
            here = self._here
            return state if here and state.is_of(here) and not run.is_of(here) else run
        best = state if len(state.records) > len(run.records) else run
        for copy in self._copies:
            # this copy was put aside, and the other could not be, or came back
            last = Content(copy.found.last or None)
            if copy.found.data is None and best.id and last.id == best.id:
                over = not last.history.in_force and len(last.records) >= len(best.records)
                return last if over else best
        return best

    def _why_unknown(self) -> NotPossible | None:
        """Raises NotPossible if no directory can be used."""
        if self._refused:
            return (self._run if self._run.refused else self._state).failed
        if any(self._explains(copy.content) for copy in self._copies):
            return None
        if any(copy.content.damaged for copy in self._copies):
            return LOST
        failed = [(copy, copy.failed) for copy in self._copies if copy.failed]
        if not failed or self.records:
            return None
        copy, why = failed[0]
        if not copy.found.there:
            if self._run.found.last:
                return None  # nothing has begun in this boot since that was put aside
            raise why
        return NotPossible(str(why), _UNREAD)

    def _explains(self, content: Content) -> bool:
        """Whether it is intact and the whole journal. A damaged copy without an id may be of
        another journal; then this one must belong to the present boot and module."""
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

    # --- both copies

    def _repair(self) -> None:
        """Repairs the copy in the run directory; the other one waits for settle()."""
        if self._unknown is LOST and self.history.lost is None:
            if not self.records:
                self._add(self._header())
            self._add({"type": "lost", "identity": self._here})
        if self._lines and self._run.lacks(self._lines):
            self._run.again()
            with contextlib.suppress(NotPossible):
                self._run.update(self._lines, sync=True, limit_s=0)

    def settle(self) -> None:
        """Updates both copies, as far as possible within a few seconds."""
        for copy in self._copies:
            if self._lines and copy.lacks(self._lines):
                copy.again()
                with contextlib.suppress(NotPossible):
                    copy.update(self._lines, sync=True, limit_s=_SETTLE_S)

    def put_aside(self) -> None:
        """Renames the journal to journal.last: nothing of it is in force. While one copy cannot be
        renamed, as on a disk that became read-only, the other stays."""
        if self.unknown:
            return
        self.settle()
        if any(copy.failed for copy in self._copies) or not self.records:
            return
        if self._state.aside(LAST, _SETTLE_S):
            self._run.aside(LAST, 0)
            self._reset()

    def forget(self) -> None:
        """Puts aside what cannot be read, after a person has looked at it. Raises NotPossible."""
        if self.unknown is LOST:
            self._unknown = None
            self.tolerant = True
            self._append({"type": "forgotten"})
            self.settle()
            wrong = [copy.failed for copy in self._copies if copy.failed]
            if len(wrong) == len(self._copies):
                raise NotPossible(str(wrong[0]), "make room")
            return
        for copy in self._copies:
            if (copy.found.error or copy.refused) and not copy.aside(DAMAGED, _LOOK_ALONE_S):
                raise copy.failed or NotPossible(f"cannot rename {copy.path}")
        self._unknown = None
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
        """Writes a record to the run directory, then to disk, where records without sync come with
        the next one that has it. Raises NotPossible if a copy cannot be written, unless tolerant:
        then the disk is used only if the run directory cannot be written."""
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
        """Begins a layer, on stable storage in both copies. Raises NotPossible."""
        self._require_both()
        if any(layer.identity != identity for layer in self.history.in_force):
            # else a later command takes the new layer, too, for one of the old module
            raise NotPossible(f"cannot begin: {LOADED_ANEW}", "run the command again")
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
            raise NotPossible(f"cannot begin: {self.unknown}", self.unknown.hint)
        if self._state.directory != self._asked:
            elsewhere = self._state.directory
            raise NotPossible(
                f"cannot use {self._asked}: parameters were changed with state directory "
                f"{elsewhere}",
                f"set ZFSTUNE_STATE_DIR={elsewhere}",
            )
        for copy in self._copies:
            if copy.failed:
                raise _no_journal(copy.failed)

    def original(self, name: str, original: Original, *, sync: bool = True) -> None:
        """Records the value of a parameter before the layer's first write."""
        fields = {"value": original.value, "effective": original.effective}
        self._append({"type": "original", "name": name, **fields}, sync=sync)

    def intend(self, name: str, old: int, new: int) -> None:
        """Announces a write, which must not be done if this raises NotPossible."""
        self._append({"type": "intend", "name": name, "old": old, "new": new})

    def wrote(self, name: str, value: int) -> None:
        """Records that a write was done. Not synced: a power failure loses the value, too."""
        self._append({"type": "wrote", "name": name, "value": value}, sync=False)

    def override(self, override: Override) -> None:
        """Records a write by another process. Never fails: the parameter is theirs even if there is
        no room for the record."""
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
        """Ends a layer: how is APPLIED, RESTORED or GONE. Raises NotPossible if there is no room
        for the record, unless tolerant."""
        if layer.end != how:
            self._append({"type": "end", "layer": layer.number, "how": how, "time": iso_second()})

    def close(self) -> None:
        """Writes what a copy still lacks, as far as possible within a few seconds. The journal can
        be used again."""
        if self._write and not self._refused:
            self.settle()


def _no_journal(why: NotPossible) -> NotPossible:
    return NotPossible(f"{why}; nothing can be changed without a journal", why.hint)
