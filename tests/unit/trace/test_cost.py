"""`doctor --cost` on fake hosts."""

from __future__ import annotations

import io
import json

import pytest
from support.fake_host import FakeCost, FakeHost, FakeStop

from zfs_freebsd.host import FreeBSDHost
from zfstrace.bpf.cost import CostTrace
from zfstrace.bpf.session import Session
from zfstrace.cost import CostCounts, ProgramCost
from zfstrace.errors import NoPrivilege, NotSupported, TraceError
from zfstune import cli
from zfstune.errors import UsageError
from zfstune.term.units import SECOND
from zfstune.trace import cost, doctor

BEFORE = CostCounts(
    7,
    0,
    (
        ProgramCost("fsync", "zil_commit", "fentry", 100, 30_000),
        ProgramCost("fsync", "cv_wait", "kprobe", 1000, 50_000),
        ProgramCost("txg", "txg__opened", "fentry", 5, 500),
        ProgramCost("read", "zpl_iter_read", "fentry", 10, 1000),
    ),
    {"arc": "no symbol, so no arc"},
    10,
)
AFTER = CostCounts(
    1007,
    0,
    (
        ProgramCost("fsync", "zil_commit", "fentry", 1100, 330_000),
        ProgramCost("fsync", "cv_wait", "kprobe", 4500, 750_000),
        ProgramCost("txg", "txg__opened", "fentry", 5, 500),
        ProgramCost("read", "zpl_iter_read", "fentry", 50_010, 5_001_000),
    ),
    {"arc": "no symbol, so no arc"},
    50_010,
)


def measured(*states: CostCounts, as_json: bool = False) -> str:
    host, out = FakeHost(), io.StringIO()
    host.cost = session = FakeCost(*states)
    cost.measure(host, out, FakeStop(), 5 * SECOND, as_json=as_json)
    assert session.closed
    return out.getvalue()


def test_json_is_the_difference_of_two_readings() -> None:
    found = json.loads(measured(BEFORE, AFTER, as_json=True))
    assert (found["schema"], found["type"]) == (1, "doctor_cost")
    assert found["duration_ns"] == 5 * SECOND
    assert (found["operations"], found["lost"]) == (1000, 0)
    assert found["run_ns"] == 1_000_000
    assert found["cpu_share"] == pytest.approx(0.0002)
    assert found["per_operation_ns"] == 1000
    assert found["programs"][0] == {
        "tracer": "fsync",
        "probe": "zil_commit",
        "how": "fentry",
        "runs": 1000,
        "run_ns": 300_000,
    }
    assert found["programs"][2]["runs"] == 0
    assert found["reads"] == {"operations": 50_000, "run_ns": 5_000_000, "per_operation_ns": 100}
    assert found["unavailable"] == {"arc": "no symbol, so no arc"}


def test_the_text_orders_programs_by_their_time() -> None:
    text = measured(BEFORE, AFTER)
    lines = [line.split() for line in text.splitlines()]
    assert lines[1] == ["trace", "fsync", "4,500", "4.50", "222", "ns", "1.00", "us", "0.020", "%"]
    assert lines[2] == [
        "cv_wait",
        "kprobe",
        "3,500",
        "3.50",
        "200",
        "ns",
        "700",
        "ns",
        "0.014",
        "%",
    ]
    assert lines[3] == [
        "zil_commit",
        "fentry",
        "1,000",
        "1.00",
        "300",
        "ns",
        "300",
        "ns",
        "0.006",
        "%",
    ]
    assert lines[4] == ["trace", "txg", "0", "0.00", "-", "0", "ns", "0.000", "%"]
    assert "1 programs did not run" in text
    assert "trace arc is not available: no symbol, so no arc" in text
    flat = " ".join(text.split())
    assert "1,000 fsyncs and other ZIL commits in 5.0 s (200/s): `zfstune trace fsync`" in flat
    assert "took 1.00 us for each and 0.020 % of one CPU" in flat
    assert "50,000 reads and writes of files (10,000/s): `zfstune trace read` took 100 ns" in flat
    assert "(1 of 4 programs here)" in flat
    assert max(map(len, text.splitlines())) < 100


def test_an_idle_pool_is_said_in_one_line_and_divides_by_nothing() -> None:
    flat = " ".join(measured(BEFORE).split())
    assert "no fsync and no other ZIL commit was seen in 5.0 s: the pool is idle" in flat
    assert json.loads(measured(BEFORE, as_json=True))["per_operation_ns"] is None


def test_losses_are_shown() -> None:
    lossy = CostCounts(AFTER.operations, 12, AFTER.programs)
    assert "lost 12 fsyncs" in measured(BEFORE, lossy)


def test_duration_alone_is_refused() -> None:
    args = cli.build_parser("doctor").parse_args(["doctor", "--duration", "1s"])
    with pytest.raises(UsageError) as caught:
        doctor.run(args)
    assert caught.value.hint == "write `zfstune doctor --cost`"


def test_freebsd_refuses_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FreeBSDHost.__new__(FreeBSDHost)
    with pytest.raises(NotSupported) as caught:
        host.open_cost_trace()
    assert "FreeBSD does not time" in str(caught.value)
    assert "zfstune bench" in caught.value.hint


def test_without_any_tracer_the_first_error_counts() -> None:
    def refused() -> Session:
        raise NoPrivilege("not privileged", "run as root")

    def lacking() -> Session:
        raise TraceError("no symbol")

    with pytest.raises(NoPrivilege, match="not privileged"):
        CostTrace({"fsync": refused, "arc": lacking})


def test_a_kernel_that_does_not_count_leaves_nothing_attached() -> None:
    closed = []

    class Old(Session):
        def __init__(self) -> None:
            self._handle = None

        def count_cost(self) -> None:
            raise NotSupported("older than Linux 5.8")

        def close(self) -> None:
            closed.append(self)

    with pytest.raises(NotSupported):
        CostTrace({"fsync": Old, "txg": Old})
    assert len(closed) == 2
