"""A fake host with a fake trace session: what a kernel would have counted, made up."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence

from zfstrace.hist import Hist, from_values
from zfstrace.stages import KINDS, NAMES
from zfstrace.types import (
    Check,
    DatasetCounts,
    FsyncOptions,
    Losses,
    Probe,
    SlowEvent,
    Survey,
)
from zfstune.stop import Stop

PROBES = (
    Probe("zil_commit", "zil_commit_flags", "fentry", True, "nothing can be measured", ""),
    Probe("cv_timedwait", "", "missing", False, "`batch_wait` is part of `issue`", "no symbol"),
)


def counts(
    pool: str = "tank",
    objset: int = 54,
    *,
    dev: tuple[int, int] = (0, 0),
    stages: Mapping[str, Sequence[int]] | None = None,
    total: Sequence[int] = (),
    no_zil: int = 0,
    rest: bool = False,
    errors: int = 0,
) -> DatasetCounts:
    """A dataset with these times in ns; without total each operation is the sum of the
    stages' values of the same place."""
    stages = stages or {}
    if not total and stages:
        longest = max(len(values) for values in stages.values())
        total = [sum(v[i] for v in stages.values() if i < len(v)) for i in range(longest)]
    hists = tuple(from_values(stages[n]) if n in stages else Hist() for n in NAMES)
    kinds = (len(total),) + (0,) * (len(KINDS) - 1)
    commits = len(total) - no_zil
    return DatasetCounts(
        pool, objset, dev, rest, commits, errors, no_zil, kinds, from_values(total), hists
    )


class FakeSession:
    """Gives one state per refresh, then the last one again; events once."""

    def __init__(
        self,
        states: Sequence[Sequence[DatasetCounts]] = ((),),
        events: Sequence[SlowEvent] = (),
        losses: Losses | None = None,
        on_poll: Callable[[int], None] = lambda _ms: None,
    ) -> None:
        self._states = list(states)
        self._events = list(events)
        self._losses = losses or Losses()
        self._on_poll = on_poll
        self._now: Sequence[DatasetCounts] = ()
        self.closed = False

    def refresh(self) -> None:
        if self._states:
            self._now = self._states.pop(0)

    def datasets(self) -> list[DatasetCounts]:
        return list(self._now)

    def losses(self) -> Losses:
        return self._losses

    def probes(self) -> tuple[Probe, ...]:
        return PROBES

    def poll(self, timeout_ms: int) -> list[SlowEvent]:
        self._on_poll(timeout_ms)
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        self.closed = True


class FakeHost:
    """Two pools, tank with three datasets and idle; checks as given."""

    def __init__(
        self, session: FakeSession | None = None, checks: Sequence[Check] = (), survey: bool = True
    ) -> None:
        self.session = session or FakeSession()
        self.options: FsyncOptions | None = None
        self._checks = list(checks)
        self._survey = survey
        self.names = {
            ("tank", 54): "tank",
            ("tank", 68): "tank/db",
            ("tank", 70): "tank/home",
        }
        self.devices = {(0, 50): "tank/nosync"}
        self.processes = {1, 4711}

    def checks(self) -> list[Check]:
        return list(self._checks)

    def survey(self) -> Survey:
        return Survey(PROBES if self._survey else (), "btf")

    def pools(self) -> list[str]:
        return ["idle", "tank"]

    def dataset_names(self) -> list[str]:
        return sorted([*self.names.values(), *self.devices.values(), "idle"])

    def learn_names(self) -> None:
        pass

    def dataset_name(self, pool: str, objset: int, dev: tuple[int, int]) -> str | None:
        return self.names.get((pool, objset)) or self.devices.get(dev)

    def process_error(self, pid: int) -> str | None:
        return None if pid in self.processes else f"there is no process {pid}"

    def txg_state(self, pool: str, start_ns: int, end_ns: int) -> str | None:
        return "syncing"

    def open_fsync_trace(self, options: FsyncOptions) -> FakeSession:
        self.options = options
        return self.session


class FakeStop(Stop):
    """A clock that moves only when somebody waits."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.clock = 1_000_000_000

    def now(self) -> int:
        return self.clock

    def wait(self, ns: int) -> bool:
        self.clock += ns
        return self.asked or self.reader_gone
