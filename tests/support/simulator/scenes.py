"""Machines and loads for comparisons of searches: a disk, a load, and what the machine costs.

`SEEN` are those that the search was written with, `UNSEEN` those that it was not: they were added
after it, and nothing was changed because of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from support.simulator.device import MIB, Device
from support.simulator.write_path import Costs, Workload, WritePath

QUIET = Device(stalls_per_s=0.1)
# a processor that is not emulated, and memory enough
FAST = Costs(
    fsync_s=0.0002,
    issue_bytes_per_s=1500 * MIB,
    request_s=0.00008,
    cache_bytes=1e9,
    spread=0.5,
    write_s=0.00005,
    pass_s=0.0005,
)


@dataclass(frozen=True)
class Scene:
    """burst: the bulk writer writes so many bytes as fast as it can, and pauses for that many
    seconds."""

    device: Device = QUIET
    load: Workload = field(default_factory=Workload)
    costs: Costs = field(default_factory=Costs)
    burst: tuple[int, float] | None = None

    def path(self, seed: int, parameters: Mapping[str, int] | None = None) -> WritePath:
        if self.burst is None:
            return WritePath(self.load, self.device, self.costs, parameters, seed)
        return Bursty(self.burst, self.load, self.device, self.costs, parameters, seed)


class Bursty(WritePath):
    """See Scene.burst."""

    def __init__(
        self,
        burst: tuple[int, float],
        workload: Workload,
        device: Device,
        costs: Costs,
        parameters: Mapping[str, int] | None,
        seed: int,
    ) -> None:
        self._burst, self._in_burst = burst, 0
        super().__init__(workload, device, costs, parameters, seed)

    def _bulk_dirty(self, _: object) -> None:
        size = self._load.bulk_bytes
        self.written += size
        self._in_burst += size
        self._dirtied(size)
        wait = size / self._load.bulk_bytes_per_s
        if self._in_burst >= self._burst[0]:
            self._in_burst, wait = 0, self._burst[1]
        self._at(self.now + wait, self._bulk_write, None)


def _disk(mib_per_s: int, requests_per_s: int, **more: float) -> Device:
    stalls = {"burst_s": 0.0, "stalls_per_s": 0.1} | more
    return Device(bytes_per_s=mib_per_s * MIB, requests_per_s=requests_per_s, **stalls)


SEEN: dict[str, Scene] = {
    "hdd": Scene(),
    "hdd-busy": Scene(Device(stalls_per_s=0.5)),
    "ssd": Scene(
        _disk(
            200,
            8000,
            raw_bytes_per_s=1e9,
            write_s=0.0003,
            flush_s=0.0008,
            spread=0.6,
            stalls_per_s=0.05,
            stall_s=0.05,
        ),
        Workload(bulk_bytes_per_s=500 * MIB, log_writers=2),
        FAST,
    ),
    "paced": Scene(load=Workload(bulk_bytes_per_s=16 * MIB, think_s=0.02)),
    "many-log": Scene(
        _disk(60, 1500, write_s=0.002, flush_s=0.004),
        Workload(bulk_bytes_per_s=12 * MIB, log_writers=16, think_s=0.01),
        FAST,
    ),
    "net-trap": Scene(
        _disk(
            120,
            3000,
            burst_s=0.1,
            raw_bytes_per_s=1e9,
            write_s=0.015,
            flush_s=0.0005,
            spread=0.4,
            stalls_per_s=0.05,
        ),
        Workload(bulk_bytes_per_s=400 * MIB),
        FAST,
    ),
    "arc-tight": Scene(costs=replace(Costs(), cache_bytes=60e6)),
    "bursty": Scene(
        _disk(60, 1500),
        Workload(bulk_bytes_per_s=400 * MIB, think_s=0.005),
        FAST,
        (300 * MIB, 20.0),
    ),
}

UNSEEN: dict[str, Scene] = {
    "nvme": Scene(
        _disk(
            1200,
            60000,
            raw_bytes_per_s=2e9,
            write_s=0.00005,
            flush_s=0.00002,
            spread=0.3,
            stalls_per_s=0.02,
            stall_s=0.01,
        ),
        Workload(bulk_bytes_per_s=1500 * MIB, log_writers=4, think_s=0.02),
        replace(FAST, issue_bytes_per_s=4000 * MIB),
    ),
    "usb": Scene(
        _disk(18, 120, write_s=0.006, flush_s=0.02, stalls_per_s=0.2, stall_s=0.3),
        Workload(bulk_bytes_per_s=60 * MIB, log_writers=3, think_s=0.05),
        FAST,
    ),
    "cloud": Scene(
        _disk(
            250,
            3000,
            burst_s=1.0,
            raw_bytes_per_s=1e9,
            write_s=0.0015,
            flush_s=0.0015,
            spread=0.8,
            stalls_per_s=0.1,
            stall_s=0.2,
        ),
        Workload(bulk_bytes_per_s=200 * MIB, log_writers=8, think_s=0.005),
        FAST,
    ),
    "backup": Scene(
        _disk(120, 250, write_s=0.004, flush_s=0.008),
        Workload(bulk_bytes_per_s=300 * MIB, log_writers=2, think_s=0.01),
        FAST,
        (120 * MIB, 7.0),
    ),
    "log-only": Scene(
        _disk(60, 600, write_s=0.003, flush_s=0.005),
        Workload(bulk_bytes=0, log_writers=6, think_s=0.002),
        FAST,
    ),
}
