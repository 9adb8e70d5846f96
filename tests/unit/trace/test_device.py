"""`trace device` without a kernel, and what stands out on devices."""

from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.fake_host import FakeHost, FakeSession, FakeStop, run_of
from support.samples import ios, vdev

from zfstrace import device
from zfstrace.bpf.pools import DeviceTrace, VdevSlot
from zfstrace.device import CLASSES, DeviceCounts
from zfstrace.types import Losses
from zfstune.term.table import Style
from zfstune.term.units import MS, SECOND, US
from zfstune.trace.device import trace, view
from zfstune.trace.signs import of_device


def run(states: list[list[DeviceCounts]], **options: Any) -> str:
    out = io.StringIO()
    session = FakeSession(states)
    trace(run_of(FakeHost(session), out, **({"duration": 10 * SECOND} | options)))
    assert session.closed
    return out.getvalue()


def signs(*vdevs: DeviceCounts) -> dict[str, bool]:
    names = {1: "sda", 2: "sdb", 3: "sdc"}
    rows = device.rows(vdevs, names, "t", 10 * SECOND, Losses())
    return {sign.name: sign.urgent for sign in of_device(rows)}


def test_the_table_has_queue_and_device_times() -> None:
    found = [
        vdev(
            1,
            sync_write=ios([MS] * 1000),
            async_write=ios([2 * MS] * 1000, [MS] * 1000, 128 << 10),
            flush=ios([3 * MS] * 100, size=0),
        )
    ]
    lines = run([found]).splitlines()
    assert max(map(len, lines)) < 100
    assert lines[0] == "tank  10.0 s"
    assert lines[2].split() == ["queue", "device", "active"]
    assert lines[4].split()[:4] == ["sda", "sync_write", "100", "400K/s"]
    assert lines[5].split()[:3] == ["async_write", "100", "12.5M/s"]
    assert lines[6].split()[:5] == ["flush", "10.0", "-", "-", "-"]
    # right-aligned in their columns
    assert len({len(line) for line in lines[3:7]}) == 1
    assert "No vdev and no class stands out" in lines[8]


def test_without_io_it_says_so() -> None:
    assert run([[]], pool="tank").startswith("no I/O seen in 10.0 s on tank\n\nlost 0")


def test_a_vdev_without_a_name_has_its_guid_and_says_so() -> None:
    said = run([[vdev(12345678901234567890, trim=ios([MS])), vdev(1, trim=ios([MS]))]])
    assert "12345678901234567890" in said
    assert "`zpool list -v -g tank`" in " ".join(said.split())
    assert "zpool list" not in run([[vdev(1, trim=ios([MS]))]])


def test_names_are_asked_for_once() -> None:
    host = FakeHost(FakeSession([[vdev(99, trim=ios([MS]))]]))
    asked: list[str] = []

    def names(pool: str) -> dict[int, str]:
        asked.append(pool)
        return {}

    host.vdev_names = names  # type: ignore[method-assign]
    trace(run_of(host, duration=10 * SECOND, interval=SECOND))
    assert asked == ["tank"]


def test_zpool_that_hangs_is_not_waited_for_at_each_pool() -> None:
    stop, asked = FakeStop(), list[str]()
    disks = [vdev(i, f"p{i}", trim=ios([MS])) for i in range(1, 26)]
    host = FakeHost(FakeSession([disks]))

    def hangs(pool: str) -> dict[int, str]:
        asked.append(pool)
        stop.clock += 10 * SECOND
        return {}

    host.vdev_names = hangs  # type: ignore[method-assign]
    trace(run_of(host, stop=stop, duration=10 * SECOND))
    assert asked == ["p1"]


def test_json_has_a_line_for_each_class() -> None:
    line = json.loads(run([[vdev(1, flush=ios([MS] * 4, size=0))]], json=True))
    assert (line["type"], line["vdev"], line["class"]) == ("device", "sda", "flush")
    assert (line["queue"], line["device"]["max"], line["lost"]) == (None, MS, 0)
    assert line["active_mean"] == 2.0


def test_intervals_are_differences() -> None:
    one, two = [vdev(1, sync_write=ios([MS]))], [vdev(1, sync_write=ios([MS] * 3))]
    text = run([one, two, two], interval=4 * SECOND, json=True)
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["count"] for line in lines] == [1, 2]
    assert lines[1]["size"] == 2 * lines[0]["size"] > 0
    assert [line["active_mean"] for line in lines] == [2.0, 2.0]


def test_vdevs_come_in_any_order() -> None:
    """An entry that a CPU has taken for nothing stays free until another vdev appears."""
    table = (VdevSlot * 4)()
    trace = object.__new__(DeviceTrace)
    trace._vdevs = table
    for i, guid in ((2, 200), (1, 100)):
        earlier = trace.devices()
        table[i].used, table[i].guid = 1, guid
        table[i].classes[1].count = table[i].classes[1].device.bucket[9] = i
    assert [(d.guid, d.rest) for d in trace.devices()] == [(0, True), (100, False), (200, False)]
    new = device.since(trace.devices(), earlier)
    assert [d.classes["sync_write"].count for d in new] == [0, 1, 0]


def test_only_a_vdev_slower_than_its_siblings_stands_out() -> None:
    good, bad = ios([2 * MS] * 50), ios([30 * MS] * 50)
    assert signs(vdev(1, sync_write=good), vdev(2, sync_write=good), vdev(3, sync_write=bad)) == {
        "slow_vdev": True
    }
    assert signs(vdev(1, sync_write=good), vdev(2, sync_write=good)) == {}
    # too few to judge, another class, another pool
    assert signs(vdev(1, sync_write=good), vdev(2, sync_write=ios([30 * MS] * 3))) == {}
    assert signs(vdev(1, sync_write=good), vdev(2, sync_read=bad)) == {}
    assert signs(vdev(1, sync_write=good), vdev(2, "backup", sync_write=bad)) == {}
    # slower, but not noticeably
    fast, less = ios([20 * US] * 50), ios([90 * US] * 50)
    assert signs(vdev(1, sync_write=fast), vdev(2, sync_write=less)) == {}


def test_scrubs_flushes_and_queues_stand_out() -> None:
    work = ios([MS] * 100)
    assert signs(vdev(1, sync_write=work, scrub=ios([MS] * 100))) == {"background": True}
    assert signs(vdev(1, sync_write=work, flush=ios([30 * MS] * 50))) == {"flush": True}
    assert signs(vdev(1, sync_write=work, flush=ios([10 * MS] * 50))) == {"flush": False}
    assert signs(vdev(1, sync_write=ios([MS] * 99, [50 * MS] * 99))) == {"queue": True}
    assert signs(vdev(1, async_write=ios([MS] * 99, [50 * MS] * 99))) == {"queue": False}
    text = run([[vdev(1, sync_write=work, scrub=ios([MS] * 100))]])
    assert "A scrub or resilver is active on tank: 50 % of the time" in text


times = st.lists(st.integers(0, 99 * SECOND), min_size=1, max_size=3)
classes = st.builds(ios, times, size=st.integers(0, 1 << 40))
vdevs = st.builds(
    lambda guid, some: vdev(guid, **some),
    st.integers(1, 3),
    st.dictionaries(st.sampled_from(CLASSES), classes, max_size=11),
)


@given(st.lists(vdevs, max_size=3, unique_by=lambda d: d.guid))
def test_any_table_fits(found: list[DeviceCounts]) -> None:
    names = {1: "ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0123456", 2: "sda", 3: "nvme-eui.0123456789abcd"}
    rows = device.rows(found, names, "t", 10 * SECOND, Losses())
    lines = view(rows, Style(clip=True), 10 * SECOND, "tank")
    assert max(map(len, lines)) < 100
    for row in rows:
        line = json.loads(json.dumps(row.to_json()))
        assert line["class"] in CLASSES
        assert any(row.io_class in text for text in lines)
