"""Whatever sessions, pools and modules do, no counter goes back, and nothing is counted twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.exported import Exported, Scrape, gone_back
from support.fake_host import FakeHost, FakeSession
from support.samples import ARC, counts, from_values, ios, reads, txg, vdev, waits

from zfstrace.arc import ArcState
from zfstrace.errors import TraceError
from zfstrace.light import CommitCounts
from zfstrace.read import ReadState
from zfstrace.throttle import ThrottleCounts
from zfstrace.types import Losses
from zfstune.exporter.args import VIEWS
from zfstune.exporter.bounded import Names
from zfstune.term.units import MS

POOLS = ("tank", "idle", "late")
COUNTS = {
    "light": "zfstune_zil_commit_duration_seconds_count",
    "fsync": "zfstune_fsync_duration_seconds_count",
    "txg": "zfstune_txgs_total",
    "throttle": "zfstune_throttle_waits_total",
    "arc": "zfstune_arc_eviction_waits_total",
    "device": "zfstune_device_io_duration_seconds_count",
    "read": "zfstune_write_duration_seconds_count",
}


class Slot:
    """An entry of a kernel's table: a dataset, a vdev, or a process."""

    def __init__(self, pool: str, number: int, life: int) -> None:
        self.pool, self.number, self.life = pool, number, life
        self.times: list[int] = []


class Counting(FakeSession):
    """A session of any kind that counts what happens."""

    def __init__(self, host: World, kind: str) -> None:
        super().__init__()
        self._host, self.kind = host, kind
        self.slots: list[Slot] = []
        self.rest = Slot("", 0, 0)
        self.lost = 0

    def happen(self, pool: str, number: int, ns: int) -> None:
        self._host.happened[self.kind] += 1
        if self.kind == "txg":
            self._events.append(txg(1, pool=pool, sync_ns=ns))
            return
        found = [s for s in self.slots if (s.pool, s.number) == (pool, number)]
        if not found:
            self._host.lives += 1
            found = [Slot(pool, number, self._host.lives)]
            self.slots += found
        found[0].times.append(ns)

    def end(self, i: int) -> None:
        """A process has ended, and its waits go into the rest; a slot is another dataset's."""
        if not self.slots:
            return
        slot = self.slots[i % len(self.slots)]
        if self.kind == "throttle":
            self.slots.remove(slot)
            self.rest.times += slot.times
        elif self.kind in ("fsync", "read", "device"):
            slot.number, slot.times = (slot.number + 1) % 4, []

    def learn(self) -> None:
        """The kernel tells more of datasets: without BTF the object set comes with a log block."""
        if self.kind in ("light", "fsync", "read"):
            for i, slot in enumerate(self.slots):
                slot.number = slot.number or 10 + i

    def refresh(self) -> None:
        if self._host.sick:
            raise TraceError("cannot read")

    def losses(self) -> Losses:
        return Losses(start=self.lost, unfinished=self.lost % 3)

    def datasets(self) -> list[Any]:
        return [counts(s.pool, s.number, stages={"flush": s.times}) for s in self.slots]

    def commits(self) -> list[CommitCounts]:
        return [
            CommitCounts(s.pool, s.number, (0, 0), False, *[from_values(s.times)] * 3)
            for s in (self.rest, *self.slots)
        ]

    def windows(self) -> list[Any]:
        return []

    def kept(self) -> list[Any]:
        return []

    def waits(self) -> list[ThrottleCounts]:
        rest = waits("", 0, rest=True, dirty_hard=self.rest.times)
        return [
            rest,
            *(replace(waits(s.pool, dirty_hard=s.times), life=s.life) for s in self.slots),
        ]

    def devices(self) -> list[Any]:
        return [vdev(s.number, s.pool, flush=ios(s.times)) for s in self.slots if s.times]

    def state(self) -> Any:
        if self.kind == "read":
            return ReadState([reads(s.pool, s.number, write=s.times) for s in self.slots], {})
        stats = {name: value * self._host.age for name, value in ARC.items()}
        return ArcState(stats, from_values([ns for s in self.slots for ns in s.times]))


class World(FakeHost):
    """A host whose sessions count while they are open, and fail while it is sick."""

    def __init__(self) -> None:
        super().__init__()
        self.imported = ["idle", "tank"]
        self.names = {(pool, n): f"{pool}/{n}" for pool in POOLS for n in range(4)}
        self.vdevs = {n: f"sd{n}" for n in range(4)}
        self.made: list[Counting] = []
        self.happened = dict.fromkeys(VIEWS, 0)
        self.sick, self.lives, self.age, self.loads = False, 0, 1, 1

    def _open(self, kind: str, options: Any) -> Any:
        if self.sick:
            raise TraceError("cannot attach")
        self.made.append(Counting(self, kind))
        return self.made[-1]

    def open_read_trace(self, options: Any) -> Any:
        return self._open("read", options)

    def kstat(self, name: str) -> dict[str, int]:
        return {"zil_commit_count": self.age * 10} if name == "zil" else dict(ARC)

    def open_now(self) -> list[Counting]:
        return [session for session in self.made if not session.closed]

    def do(self, what: str, pool: str, number: int, ns: int) -> None:
        """One event."""
        if what == "operation":
            for session in self.open_now():
                if pool in self.imported:
                    session.happen(pool, number, ns)
        elif what == "end":
            for session in self.open_now():
                session.end(number)
        elif what == "learn":
            for session in self.open_now():
                session.learn()
        elif what == "lose":
            for session in self.open_now():
                session.lost += 1
        elif what == "import":
            self.imported = sorted({*self.imported, pool})
        elif what == "export":
            self.imported = [one for one in self.imported if one != pool]
        elif what == "rename":
            self.names[pool, number] = f"{pool}/renamed{ns % 9}"
        elif what == "reload":
            self.loads += 1
            self.loaded_as, self.age = f"boot:{self.loads}", 1
        elif what == "age":
            self.age += 1
        elif what == "sick":
            self.sick = not self.sick


EVENTS = ("operation",) * 6 + (
    "import",
    "export",
    "rename",
    "learn",
    "reload",
    "age",
    "lose",
    "read",
    "record",
)
ROUGH = ("end", "sick", "wait")


def histories(*what: str) -> st.SearchStrategy[list[tuple[str, str, int, int]]]:
    times = st.integers(min_value=1, max_value=3000 * MS)
    event = st.tuples(
        st.sampled_from(what), st.sampled_from(POOLS), st.integers(min_value=0, max_value=3), times
    )
    return st.lists(event, max_size=40)


def counted(scrape: Scrape) -> dict[str, float]:
    return {view: sum(scrape.of(name).values()) for view, name in COUNTS.items()}


def recorded(it: Exported) -> int:
    """The fsyncs in the rows since the last call."""
    rows = it.collector.rows().get("fsync", ())
    return sum(row["count"] for row in rows if row["type"] == "fsync_summary" and row["dataset"])


def lived(history: list[tuple[str, str, int, int]]) -> tuple[World, Scrape, int]:
    """The host, the last scrape, and how many fsyncs a recorder got; each scrape is compared with
    the one before."""
    host = World()
    it = Exported(host, *VIEWS, names=Names(5))
    last = it.scrape()
    taken = 0
    for what, pool, number, ns in history:
        host.do(what, pool, number, ns)
        if what in ("read", "import", "export", "reload", "sick"):
            now = it.scrape()
            assert not gone_back(last, now), (what, pool)
            last = now
        elif what == "wait":
            it.tick(301)
        elif what == "record":
            taken += recorded(it)
    host.sick = False
    now = it.scrape()
    assert not gone_back(last, now)
    for view, total in counted(now).items():
        assert total <= host.happened[view], view
    taken += recorded(it)
    assert taken <= host.happened["fsync"]
    return host, now, taken


@settings(max_examples=40)
@given(histories(*EVENTS, *ROUGH))
def test_no_counter_ever_goes_back(history: list[tuple[str, str, int, int]]) -> None:
    lived(history)


@settings(max_examples=30)
@given(histories(*EVENTS))
def test_everything_is_counted_once_if_nothing_fails(
    history: list[tuple[str, str, int, int]],
) -> None:
    host, scrape, taken = lived(history)
    assert taken == host.happened["fsync"]
    # a light session is one of many modules, so the fake one goes on with its counts
    assert counted(scrape) == host.happened


def test_a_dataset_of_which_more_becomes_known_is_counted_once() -> None:
    events = ("operation", "read", "learn", "read", "operation", "read")
    host, scrape, taken = lived([(what, "tank", 0, MS) for what in events])
    assert [slot.number for slot in host.made[0].slots] == [10, 0]
    assert counted(scrape) == host.happened
    assert taken == host.happened["fsync"] == 2


def test_the_worlds_sessions_count() -> None:
    """So that the tests above do not compare nothing with nothing."""
    host, scrape, taken = lived([("operation", "tank", 1, MS), ("reload", "tank", 0, 1)] * 3)
    assert host.happened == dict.fromkeys(VIEWS, 3) and counted(scrape) == host.happened
    assert taken == 3
    assert len([session for session in host.made if session.kind == "fsync"]) == 4
    assert len([session for session in host.made if session.kind == "light"]) == 1
