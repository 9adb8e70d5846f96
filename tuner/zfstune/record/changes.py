"""Writes of module parameters while the recorder runs: by whom, from which value to which."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from zfstrace.clock import iso_now
from zfstrace.host import Host
from zfstrace.params import Change, Watch
from zfstrace.types import SCHEMA, Json
from zfstune.changes import paths
from zfstune.changes.records import History, decode
from zfstune.tunables import catalogue

OURS, OTHER = "zfstune", "other"
_LARGEST = 4 << 20


class ParameterChanges:
    """Watches the parameters of the catalogue, across reloads of the module. Waits for nothing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._module = ""
        self._watch: Watch | None = None
        self._values: dict[str, int | None] = {}

    def poll(self) -> list[Json]:
        """`parameter_change` objects, oldest first."""
        parameters = self._host.parameters()
        module = parameters.identity()
        if module != self._module:
            self._begin(module)
            return []
        if not self._watch:
            return []
        found = []
        for change in self._watch.poll():
            old, new = self._values.get(change.name), parameters.read(change.name)
            if new == old:
                continue
            self._values[change.name] = new
            found.append(
                {
                    "schema": SCHEMA,
                    "type": "parameter_change",
                    "time": iso_now(),
                    "name": change.name,
                    "old": old,
                    "new": new,
                    "by": by(change, new),
                }
            )
        return found

    def _begin(self, module: str) -> None:
        """With another module all values are new."""
        self.close()
        self._module = module
        parameters = self._host.parameters()
        names = [name for name in parameters.names() if name in catalogue.load()]
        if module and names:
            # watched first, so that no write is missed in between
            self._watch = parameters.watch(names)
            self._values = {name: parameters.read(name) for name in names}

    def close(self) -> None:
        """Ends the watch. May be called again."""
        if self._watch:
            self._watch.close()
        self._watch = None


def by(change: Change, value: int | None) -> str | None:
    """OURS for a write by zfstune, OTHER for any other, None if that cannot be known. The journal
    in memory tells; the one on disk could be on a pool that hangs."""
    if change.comm and change.comm.startswith("zfstune"):
        return OURS
    history = History()
    try:
        with contextlib.suppress(FileNotFoundError):
            for record in decode(_journal())[0]:
                history.add(record)
    except OSError:
        return None
    ours = change.name in history.expected and value in history.ours(change.name)
    return OURS if ours else OTHER


def _journal() -> bytes:
    path = Path(paths.run_directory()) / paths.FILE
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(_LARGEST)
