"""A recorder whose seconds pass when a test says so, on a fake host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.fake_host import FakeHost, FakeWatch
from support.recording import FakeClock, light_row

from zfstrace.params import Change
from zfstrace.types import Json
from zfstune.changes.state_dir import Places
from zfstune.incident.intervals import Incident, load
from zfstune.incident.reader import Reader
from zfstune.record.changes import Writes
from zfstune.record.observing import Observed
from zfstune.record.recorder import Recorder, Settings
from zfstune.record.triggers import parse
from zfstune.term.units import SECOND

Rows = Mapping[str, Sequence[Json]]
_NOWHERE = Path("/nonexistent")


class Host(FakeHost):
    """A host whose parameters another process may write."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: list[Change] = []

    def parameters(self) -> Any:
        found = super().parameters()
        setattr(found, "watch", lambda _names, _ours=(): _Watch(self))  # noqa: B010
        return found


class _Watch(FakeWatch):
    def __init__(self, host: Host) -> None:
        self._host = host

    def poll(self) -> list[Change]:
        found, self._host.changed = self._host.changed, []
        return found


class Observer:
    """Diagnoses that take as long as a test wants."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refuse = False
        self.result: Observed | None = None
        self.running = False
        self.layouts: dict[str, list[str]] = {"tank": ["  tank  ONLINE", "    sda  ONLINE"]}

    def ask(self, _now: int, why: str) -> bool:
        if self.refuse or self.running:
            return False
        self.asked.append(why)
        self.running = True
        return True

    def end(self, *records: Json, error: str = "") -> None:
        self.result = Observed(list(records), error=error)

    def poll(self, _now: int) -> Observed | None:
        found, self.result = self.result, None
        self.running = self.running and found is None
        return found

    def close(self) -> None:
        self.running = False

    def status(self, _now: int) -> Json:
        return {}


class Driven:
    """A recorder whose seconds pass when a test says so."""

    def __init__(self, directory: Path, *triggers: str, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.host = Host()
        self.rows: Callable[[], Rows] = lambda: {"light": [light_row()]}
        self.lost: dict[str, int] = {}
        self.off: dict[str, str] = {}
        self.recorder = Recorder(
            self.host,
            lambda: self.rows(),
            Settings(str(directory), [parse(text) for text in triggers]),
            off=lambda: self.off,
            lost=lambda: self.lost,
            writes=Writes(self.host, Places(_NOWHERE, _NOWHERE)).poll,
            clock=self.clock,
        )

    def observed(self) -> Observer:
        found = Observer()
        self.recorder._observer = found  # type: ignore[assignment]
        return found

    def start(self) -> None:
        self.recorder.open()
        self.tick()

    def tick(self) -> None:
        self.recorder.tick(self.clock.steady())

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.clock.now += SECOND
            self.tick()

    def p99(self, pool: str, value: int) -> None:
        self.rows = lambda: {"light": [light_row(pool, value)]}

    @property
    def files(self) -> list[str]:
        return self.recorder.dumps.names()

    def read(self, name: str = "") -> Incident:
        return incident(self.recorder.dumps.path / (name or self.files[0]))


def incident(path: Path) -> Incident:
    with Reader(str(path)) as reader:
        found = load(reader)
    assert not found.problems
    return found


def all_of(found: Incident, *types: str) -> list[Json]:
    return [one for interval in found.intervals for one in interval.records(*types)]
