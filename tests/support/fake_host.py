"""A fake host with fake trace sessions, parameters and a clock."""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Collection, Sequence
from typing import Any

from support.samples import PROBES

from zfstrace.arc import ArcState
from zfstrace.cost import CostCounts
from zfstrace.device import DeviceCounts
from zfstrace.disk import Disk, Scratch
from zfstrace.errors import TraceError, UnknownName
from zfstrace.host import CostSession, StackSession
from zfstrace.kstat.txgs import TxgRow
from zfstrace.light import CommitCounts, Window
from zfstrace.params import BootConfig, Change
from zfstrace.read import ReadState
from zfstrace.recording import StackOptions
from zfstrace.throttle import ThrottleCounts
from zfstrace.txg import Txg, TxgState
from zfstrace.types import (
    WRITES_BLOCKED,
    AnyOptions,
    Check,
    DatasetCounts,
    FsyncOptions,
    LightOptions,
    Losses,
    Probe,
    ProbeSurvey,
    SlowEvent,
    Tool,
    TraceOptions,
)
from zfstune.term.signals import Stop
from zfstune.trace.live import Run, options_of


class FakeSession:
    """Gives one state per refresh, then the last one again; events once.

    Stands for a session of any kind: what a state is depends on that.
    """

    def __init__(
        self,
        states: Sequence[Any] = ((),),
        events: Sequence[SlowEvent | Txg] = (),
        losses: Losses | None = None,
        on_poll: Callable[[int], None] = lambda _ms: None,
        probes: tuple[Probe, ...] | None = None,
    ) -> None:
        self.states = list(states)
        self._events = list(events)
        self._losses = losses or Losses()
        self.on_poll = on_poll
        self._probes = PROBES if probes is None else probes
        self.now: Any = ()
        self.held: int | None = 7
        self.waiting = self.closed = False
        self.why = ""

    def refresh(self) -> None:
        if self.states:
            self.now = self.states.pop(0)
        if isinstance(self.now, Exception):
            raise self.now

    def datasets(self) -> list[DatasetCounts]:
        return list(self.now)

    def commits(self) -> list[CommitCounts]:
        return list(self.now[0])

    def windows(self) -> list[Window]:
        return list(self.now[1])

    def kept(self) -> list[Window]:
        return list(self.now[2]) if self.now else []

    def held_up(self, pool: str, start_ns: int, end_ns: int) -> int | None:
        return self.held

    def waits(self) -> list[ThrottleCounts]:
        return list(self.now)

    def devices(self) -> list[DeviceCounts]:
        return list(self.now)

    def state(self) -> Any:
        assert isinstance(self.now, (ArcState, ReadState))
        return self.now

    def losses(self) -> Losses:
        return self._losses

    def probes(self) -> tuple[Probe, ...]:
        return self._probes

    def poll(self, timeout_ms: int) -> list[Any]:
        self.on_poll(timeout_ms)
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        self.closed = True


class FakeCost:
    """Gives one state per call, then the last one again."""

    def __init__(self, *states: CostCounts) -> None:
        self._states = list(states)
        self.closed = False

    def counts(self) -> CostCounts:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def close(self) -> None:
        self.closed = True


class FakeWatch:
    """A watch that sees no writes."""

    def poll(self) -> list[Change]:
        return []

    def close(self) -> None:
        pass


class FakeParameters:
    """Values in a dict; written lists the writes."""

    def __init__(self, values: dict[str, int], module: str = "boot:1") -> None:
        self.values, self._module = values, module
        self.written: list[tuple[str, int]] = []

    def names(self) -> list[str]:
        return sorted(self.values)

    def read(self, name: str) -> int | None:
        return self.values.get(name)

    def writable(self, name: str) -> bool:
        return name in self.values

    def write(self, name: str, value: int, identity: str | None = None) -> None:
        self.values[name] = value
        self.written.append((name, value))

    def identity(self) -> str:
        return self._module

    def watch(self, names: Sequence[str], ours: Collection[int] = ()) -> FakeWatch:
        return FakeWatch()

    def shell(self, name: str, value: int) -> str:
        return f"echo {value} > {name}"

    def loading(self) -> str:
        return "modprobe zfs"

    def who(self) -> str:
        return "root"

    def boot(self) -> BootConfig:
        raise AssertionError("not of this fake")


class FakeHost:
    """Two pools, tank with three datasets and idle; checks as given."""

    def __init__(
        self, session: FakeSession | None = None, checks: Sequence[Check] = (), survey: bool = True
    ) -> None:
        self.session = session or FakeSession()
        # instead of session, by the kind of trace: an error is raised at opening; of a list each is
        # for one opening, the last one for all that follow
        self.sessions: dict[str, FakeSession | TraceError | list[FakeSession | TraceError]] = {}
        # raised by tick(), once
        self.fails: Exception | None = None
        self.options: AnyOptions | None = None
        self.values = {"zfs_dirty_data_max": 4 << 30}
        self.kstats: dict[str, dict[str, int]] = {}
        self.txgs: list[TxgRow] = []
        self.state = "ONLINE"
        self.disks: dict[str, Disk] = {}
        self.scratches: dict[str, Scratch] = {}
        self.erased: list[str] = []
        self.logs: int | None = 0
        self.bytes_written: tuple[int, dict[int, int]] = (0, {})
        self.vdevs = {1: "sda", 2: "sdb", 3: "sdc"}
        self.check_list = list(checks)
        self._survey = survey
        self.names = {
            ("tank", 54): "tank",
            ("tank", 68): "tank/db",
            ("tank", 70): "tank/home",
        }
        self.devices = {(0, 50): "tank/nosync"}
        self.processes = {1, 4711}
        self.imported = ["idle", "tank"]
        self.unloaded = False
        self.loaded_as = "boot:1"
        self.stacks: StackSession | None = None
        self.asked: StackOptions | None = None
        self.cost: CostSession | None = None

    def checks(self) -> list[Check]:
        return list(self.check_list)

    def survey(self) -> ProbeSurvey:
        return ProbeSurvey(PROBES if self._survey else (), "btf")

    def tools(self) -> list[Tool]:
        return [
            Tool("txgstate.bt", "bpftrace", ""),
            Tool("zilcommit.bt", "bpftrace", ""),
            Tool("zildist.py", "bcc", "Python's module bcc is not installed"),
        ]

    def loaded(self) -> bool:
        return not self.unloaded

    def pools(self) -> list[str]:
        return list(self.imported)

    def pools_blocking_detach(self) -> list[str]:
        return self.pools() if self.state in WRITES_BLOCKED else []

    def dataset_names(self) -> list[str]:
        return sorted([*self.names.values(), *self.devices.values(), "idle"])

    def tick(self) -> None:
        fails, self.fails = self.fails, None
        if fails:
            raise fails

    def dataset_name(self, pool: str, objset: int, dev: tuple[int, int]) -> str | None:
        return self.names.get((pool, objset)) or self.devices.get(dev)

    def process_error(self, pid: int) -> str | None:
        return None if pid in self.processes else f"there is no process {pid}"

    def txg_state(self, pool: str, start_ns: int, end_ns: int) -> TxgState | None:
        return TxgState("syncing", 77, 1_200_000_000)

    def vdev_names(self, pool: str) -> dict[int, str]:
        return self.vdevs

    def parameter(self, name: str) -> int | None:
        return self.values.get(name)

    def parameters(self) -> FakeParameters:
        return FakeParameters(self.values, self.loaded_as)

    def memory_bytes(self) -> int:
        return 64 << 30

    def version(self) -> str:
        return "2.3.9-1"

    def kstat(self, name: str) -> dict[str, int]:
        return self.kstats.get(name, {})

    def txg_rows(self, pool: str) -> list[TxgRow]:
        return list(self.txgs)

    def written(self, pool: str) -> tuple[int, dict[int, int]]:
        return self.bytes_written

    def data_vdevs(self, pool: str) -> int:
        return 1

    def log_vdevs(self, pool: str) -> int | None:
        return self.logs

    def disk(self, path: str) -> Disk | None:
        return self.disks.get(path)

    def scratch(self, path: str) -> Scratch:
        if path not in self.scratches:
            raise UnknownName(f"{path}: No such file or directory, name a disk")
        return self.scratches[path]

    def erase(self, disk: Scratch) -> None:
        self.erased.append(disk.path)

    def pool_state(self, pool: str) -> str:
        return self.state

    def _open(self, kind: str, options: AnyOptions) -> FakeSession:
        self.options = options
        session = self.sessions.get(kind, self.session)
        if isinstance(session, list):
            session = session.pop(0) if len(session) > 1 else session[0]
        if isinstance(session, TraceError):
            raise session
        return session

    def open_fsync_trace(self, options: FsyncOptions) -> FakeSession:
        return self._open("fsync", options)

    def open_light_trace(self, options: LightOptions) -> FakeSession:
        return self._open("light", options)

    def open_stack_trace(self, options: StackOptions) -> StackSession:
        if self.stacks is None:
            raise TraceError("this host has no stacks")
        self.asked = options
        return self.stacks

    def open_cost_trace(self) -> CostSession:
        if self.cost is None:
            raise TraceError("this host counts no cost")
        return self.cost

    def open_txg_trace(self, options: TraceOptions) -> FakeSession:
        return self._open("txg kstat" if options.kstat else "txg", options)

    def open_throttle_trace(self, options: TraceOptions) -> FakeSession:
        return self._open("throttle", options)

    def open_device_trace(self, options: TraceOptions) -> FakeSession:
        return self._open("device", options)

    def open_arc_trace(self, options: TraceOptions) -> FakeSession:
        return self._open("arc kstat" if options.kstat else "arc", options)

    def open_read_trace(self, options: TraceOptions) -> FakeSession:
        kind = "read kstat" if options.kstat else "read"
        # unless a test has some, nobody reads
        self.sessions.setdefault(kind, FakeSession([ReadState((), {})]))
        return self._open(kind, options)


def args_of(**given: Any) -> argparse.Namespace:
    """The parsed options of a trace."""
    defaults: dict[str, Any] = {
        "pool": None,
        "dataset": None,
        "pid": None,
        "duration": None,
        "interval": None,
        "count": None,
        "json": False,
        "histogram": False,
        "source": "bpf",
        "no_fentry": False,
    }
    return argparse.Namespace(**(defaults | given))


class Terminal(io.StringIO):
    """A terminal of 80 columns and 24 rows."""

    def isatty(self) -> bool:
        return True


def run_of(
    host: FakeHost, out: io.StringIO | None = None, stop: FakeStop | None = None, **given: Any
) -> Run[TraceOptions]:
    """A run of any trace but fsync, with these options."""
    args = args_of(**given)
    return Run(args, options_of(args), host, out or io.StringIO(), stop or FakeStop())


class FakeStop(Stop):
    """A clock that advances only in wait()."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.clock = 1_000_000_000

    def now(self) -> int:
        return self.clock

    def passed(self, ms: int) -> None:
        """Advances the clock, for sessions that wait themselves."""
        self.clock += ms * 1_000_000

    def wait(self, ns: int) -> bool:
        self.clock += ns
        return self.asked or self.reader_gone
