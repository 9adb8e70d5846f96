"""The ARC, traced by arcstate-json.d."""

from __future__ import annotations

from collections.abc import Callable

from zfs_freebsd.dtrace.scripted import Scripted, Times
from zfstrace.arc import ArcState
from zfstrace.types import Json


class ScriptedArc(Scripted):
    """Implements zfstrace.host.ArcSession: arcstats and waits for eviction."""

    def __init__(self, stats: Callable[[], dict[str, int]]) -> None:
        self._stats = stats
        self._waits = Times()
        super().__init__("arc", "arcstate-json.d")

    def state(self) -> ArcState:
        blind = any(probe.required and probe.missing for probe in self._probes)
        return ArcState(self._stats(), None if blind else self._waits.hist())

    def _on_row(self, row: Json) -> None:
        if row["type"] == "arc_wait":
            self._waits.add(row["ns"])
