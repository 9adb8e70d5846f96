"""Diagnoses in a thread of their own, on a fake host, and how the budget spaces them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.fake_host import FakeHost, FakeSession
from support.samples import arc, counts, ios, txg, vdev

from zfstrace.errors import TraceError
from zfstrace.stages import NAMES
from zfstrace.types import Check, SlowEvent
from zfstune.errors import NotPossible
from zfstune.incident.reader import taken
from zfstune.record import observing
from zfstune.record.observing import Observed, Observer, ThreadStop, layout_of, observe
from zfstune.term.units import MS, SECOND

FLUSH = 40 * MS
STATUS = """\
  pool: tank
 state: ONLINE
  scan: none requested
config:

\tNAME        STATE     READ WRITE CKSUM
\ttank        ONLINE       0     0     0
\t  mirror-0  ONLINE       0     0     0
\t    sda     ONLINE       0     0     0

errors: No known data errors
"""


class Now(ThreadStop):
    """Time passes only when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SECOND

    def now(self) -> int:
        return self.clock

    def wait(self, ns: int) -> bool:
        self.clock += ns
        return self.asked


class Costed(FakeSession):
    """A session that can tell what its programs cost."""

    counting = False

    def count_cost(self) -> None:
        self.counting = True

    def end_cost(self) -> None:
        self.counting = False

    def costs(self) -> list[tuple[Any, Any]]:
        assert self.counting and not self.closed
        return [(None, SimpleNamespace(run_ns=7 * MS)), (None, SimpleNamespace(run_ns=5 * MS))]


def host_of(stop: Now) -> FakeHost:
    """tank with a hundred fsyncs whose flushes take 40 ms."""
    times = tuple(FLUSH if name == "flush" else 0 for name in NAMES)
    event = SlowEvent(SECOND, FLUSH, times, 7, 0, 4711, 4712, "fsync", "postgres")
    many = counts(objset=68, stages={"flush": [FLUSH] * 100})
    disk = vdev(1, sync_write=ios([MS] * 100), flush=ios([FLUSH] * 100))
    host = FakeHost()
    host.imported = ["tank"]
    fsync = Costed([[], [many]], on_poll=lambda ms: stop.__setattr__("clock", stop.clock + ms * MS))
    polls = iter([[], [event] * 100])
    polled = fsync.poll

    def poll(timeout_ms: int) -> list[Any]:
        polled(timeout_ms)
        return next(polls, [])

    fsync.poll = poll  # type: ignore[method-assign]
    host.sessions = {
        "fsync": fsync,
        "txg": FakeSession(events=[txg(5)]),
        "throttle": TraceError("no probe"),
        "device": Costed([[], [disk]]),
        "arc": FakeSession([arc(1), arc(2)]),
    }
    return host


@pytest.fixture(autouse=True)
def _status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zfstrace.processes.output", lambda *_: STATUS)


def test_a_diagnosis_is_that_of_zfstune_diagnose(capsys: pytest.CaptureFixture[str]) -> None:
    stop = Now()
    host = host_of(stop)
    found = observe(host, stop, "the clock")
    assert found.error == ""
    (one,) = found.records
    assert (one["pool"], one["verdict"], one["causes"][0]["id"]) == ("tank", "causes", "slow_flush")
    assert 10 * SECOND <= one["duration_ns"] < 13 * SECOND
    assert one["reason"] == "the clock"
    assert one["lost"] == 0
    assert one["missing_views"] == {"throttle": "no probe"}
    # a reader of incident files takes it
    assert taken(one)["causes"][0]["evidence"]
    assert found.layouts["tank"][1:] == [
        "        tank        ONLINE       0     0     0",
        "          mirror-0  ONLINE       0     0     0",
        "            sda     ONLINE       0     0     0",
    ]
    # fentry beside the recorder's own would cost it returns
    assert getattr(host.options, "no_fentry", None) is True
    assert getattr(host.options, "table_mib", None) == 32
    for session in host.sessions.values():
        if isinstance(session, FakeSession):
            assert session.closed
    assert capsys.readouterr() == ("", "")


def test_it_diagnoses_where_the_kernel_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """CAP_BPF and CAP_PERFMON suffice for the traces, not for their cost."""

    def refuse(_: Costed) -> None:
        raise TraceError("it is for CAP_SYS_ADMIN only")

    monkeypatch.setattr(Costed, "count_cost", refuse)
    monkeypatch.setattr(Costed, "costs", lambda _: [(None, SimpleNamespace(run_ns=0))])
    stop = Now()
    found = observe(host_of(stop), stop, "the clock")
    assert found.records[0]["missing_views"] == {"throttle": "no probe"}


def test_programs_of_all_sessions_that_can_tell_are_counted() -> None:
    stop = Now()
    with_programs = observe(host_of(stop), stop, "x").cpu_ns
    assert with_programs >= 2 * 12 * MS


def test_it_ends_when_it_is_asked_to() -> None:
    stop = Now()
    stop.ask()
    found = observe(host_of(stop), stop, "x")
    assert found.error == ""
    assert found.records[0]["duration_ns"] < SECOND


def test_a_suspended_pool_is_judged_and_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("attached")

    host = host_of(Now())
    host.state = "SUSPENDED"
    monkeypatch.setattr(host, "open_fsync_trace", never)
    monkeypatch.setattr("zfstrace.processes.output", never)
    found = observe(host, Now(), "x")
    assert [cause["id"] for cause in found.records[0]["causes"]] == ["suspended"]
    assert (found.error, found.layouts) == ("", {})


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (
            lambda host: host.check_list.append(
                Check("privileges", "privilege", "none", "blocking", "no BPF", "run as root")
            ),
            "cannot trace: privileges none: no BPF; run as root",
        ),
        (lambda host: host.sessions.update(fsync=TraceError("no", "look")), "no; look"),
        (lambda host: setattr(host, "pools", None), "TypeError: 'NoneType' object is not callable"),
    ],
)
def test_what_goes_wrong_is_said(spoil: Callable[[FakeHost], None], error: str) -> None:
    stop = Now()
    host = host_of(stop)
    spoil(host)
    assert observe(host, stop, "x").error == error


def test_the_lines_on_vdevs_are_those_of_config() -> None:
    assert layout_of(STATUS)[0].split() == ["NAME", "STATE", "READ", "WRITE", "CKSUM"]
    assert len(layout_of(STATUS)) == 4
    assert layout_of("") == layout_of("cannot open 'tank'") == []


class Held:
    """Stands for observe(), and waits until a test lets it go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.result = Observed()
        self.threads: list[str] = []
        self.stops: list[Any] = []

    def __call__(self, _host: object, stop: Any, _why: str) -> Observed:
        self.threads.append(threading.current_thread().name)
        self.stops.append(stop)
        self.begun.set()
        assert self.go_on.wait(60)
        return self.result


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    found = Held()
    monkeypatch.setattr(observing, "observe", found)
    return found


def ended(observer: Observer, held: Held, now: int, result: Observed | None = None) -> None:
    """Lets the running diagnosis end at that time."""
    held.result = result or Observed()
    held.go_on.set()
    assert observer._thread
    observer._thread.join(60)
    assert observer.poll(now) is held.result
    held.go_on.clear()


def test_one_at_a_time_in_another_thread(held: Held) -> None:
    observer = Observer(FakeHost, 0.01)
    assert observer.ask(0, "a")
    assert held.begun.wait(60)
    assert observer.running
    assert not observer.ask(SECOND, "b")
    assert observer.poll(SECOND) is None
    ended(observer, held, 2 * SECOND, Observed(layouts={"tank": ["x"]}))
    assert not observer.running
    assert held.threads != [threading.current_thread().name]
    assert observer.layouts == {"tank": ["x"]}
    assert (observer.done, observer.failed) == (1, 0)


@pytest.mark.parametrize(
    ("budget", "cpu_ns", "seconds"),
    [(0.01, 2 * SECOND, 200), (0.05, 2 * SECOND, 40 + 20), (0.01, 0, 60), (1.0, 300 * SECOND, 300)],
)
def test_the_next_waits_until_the_budget_allows_it(
    held: Held, budget: float, cpu_ns: int, seconds: int
) -> None:
    observer = Observer(FakeHost, budget)
    assert observer.ask(0, "first")
    # its cost is mostly what it loads
    ended(observer, held, SECOND, Observed(cpu_ns=SECOND))
    assert observer.ask(SECOND, "a")
    ended(observer, held, 20 * SECOND, Observed(cpu_ns=cpu_ns))
    free = (20 + seconds) * SECOND
    assert not observer.ask(free - 1, "b")
    assert observer.status(free - SECOND)["next_in_ns"] == SECOND
    assert observer.ask(free, "b")
    ended(observer, held, free)
    assert observer.cpu_ns == SECOND + cpu_ns


def test_over_a_day_diagnoses_take_no_more_than_the_budget(held: Held) -> None:
    """Asked every second, each takes three seconds of CPU."""
    observer, now, day = Observer(FakeHost, 0.01), 0, 24 * 3600 * SECOND
    while now < day:
        if observer.ask(now, "x"):
            ended(observer, held, now + 12 * SECOND, Observed(cpu_ns=3 * SECOND))
        now = max(now + SECOND, observer.free_at)
    assert 0.008 < observer.cpu_ns / day <= 0.01


def test_a_failure_waits_for_the_next_too(held: Held) -> None:
    observer = Observer(FakeHost, 0.01)
    observer.ask(0, "a")
    ended(observer, held, 0, Observed(error="no privilege", cpu_ns=SECOND))
    assert (observer.failed, observer.error) == (1, "no privilege")
    assert not observer.ask(99 * SECOND, "b")


def test_while_zpool_hangs_the_last_layouts_stay(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, asked = FakeHost(), list[str]()
    host.imported = [f"p{i}" for i in range(25)]
    now = [100.0]

    def hangs(argv: list[str], limit_s: float) -> str:
        asked.append(argv[-1])
        now[0] += limit_s
        return ""

    monkeypatch.setattr("zfstrace.processes.output", hangs)
    monkeypatch.setattr("zfstrace.zpool.list.time", SimpleNamespace(monotonic=lambda: now[0]))
    found = observing._layouts(host)
    assert (found, asked) == ({}, ["p0"])
    observer = Observer(FakeHost, 1.0)
    for second, layouts in ((0, {"p0": ["y"]}), (3600, found)):
        assert observer.ask(second * SECOND, "x")
        ended(observer, held, second * SECOND, Observed(layouts=layouts))
    assert observer.layouts == {"p0": ["y"]}


def test_the_layouts_of_any_number_of_pools_are_few(held: Held) -> None:
    observer = Observer(FakeHost, 1.0)
    for i in range(300):
        now = i * 3600 * SECOND
        assert observer.ask(now, "x")
        ended(observer, held, now, Observed(layouts={"tank": ["x"], f"pool{i}": ["y"]}))
    assert len(observer.layouts) == 256
    assert "tank" in observer.layouts and "pool299" in observer.layouts


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotPossible("cannot trace", "use Linux"), "cannot trace; use Linux"),
        (MemoryError(), "MemoryError: "),
    ],
)
def test_a_host_that_cannot_be_opened_is_a_failure(error: Exception, said: str) -> None:
    def refuse() -> FakeHost:
        raise error

    observer = Observer(refuse, 0.01)
    observer.ask(0, "a")
    assert observer._thread
    observer._thread.join(60)
    found = observer.poll(0)
    assert found and found.error == said


def test_one_that_takes_too_long_is_asked_to_end(held: Held) -> None:
    observer = Observer(FakeHost, 0.01)
    observer.ask(0, "a")
    assert held.begun.wait(60)
    observer.poll(130 * SECOND)
    assert not held.stops[0].asked
    observer.poll(130 * SECOND + 1)
    assert held.stops[0].asked
    ended(observer, held, 131 * SECOND)


def test_the_end_of_the_process_ends_it(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer(FakeHost, 0.01)
    observer.ask(0, "a")
    assert held.begun.wait(60)
    monkeypatch.setattr(observing, "_END_S", 0.0)
    observer.close()
    assert held.stops[0].asked
    assert observer._thread and observer._thread.daemon
    held.go_on.set()


def test_a_stop_without_signals_ends_a_wait_from_another_thread() -> None:
    stop = ThreadStop()
    assert not stop.wait(1)
    waiting = threading.Thread(target=stop.wait, args=(3600 * SECOND,))
    waiting.start()
    stop.ask()
    waiting.join(60)
    assert not waiting.is_alive()
    assert stop.wait(3600 * SECOND)


def test_a_thread_that_cannot_start_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    observer = Observer(FakeHost, 0.01)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not observer.ask(0, "a")
    assert not observer.running
    assert (observer.failed, observer.error) == (1, "can't start new thread")
    assert not observer.ask(59 * SECOND, "b")
