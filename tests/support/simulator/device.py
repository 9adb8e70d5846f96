"""A disk: a bucket that leaks at its bandwidth and one at its request rate, as QEMU throttles."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Device:
    """bytes_per_s, requests_per_s: of writes. burst_s: that many seconds of either pass at once
    after a pause (QEMU: 0.1; a real disk: 0). raw_bytes_per_s: of what passes. write_s, flush_s:
    medians of the latency beyond; spread: sigma of their logarithm. stalls_per_s, stall_s: how
    often the host does something else, and for how long on average. The defaults are the lab's
    disk on an idle machine.
    """

    bytes_per_s: float = 30 * MIB
    requests_per_s: float = 600
    burst_s: float = 0.1
    raw_bytes_per_s: float = 400e6
    write_s: float = 0.002
    flush_s: float = 0.003
    spread: float = 0.5
    stalls_per_s: float = 0.5
    stall_s: float = 0.1


# On a machine with three times as much to do as it can: when the recording was made.
BUSY_HOST = Device(stalls_per_s=1.5, stall_s=0.12)


class Disk:
    """Computes when a request is done; writes pass the buckets in order, flushes bypass them."""

    def __init__(self, device: Device, chance: random.Random) -> None:
        self._device, self._chance = device, chance
        self._bytes = self._requests = 0.0
        self._at = self._passed = 0.0
        self._next_stall = self._stall_gap()
        self._log_write = math.log(device.write_s)
        self._log_flush = math.log(device.flush_s)

    def write(self, now: float, size: int) -> float:
        device = self._device
        if now > self._next_stall:
            self._passed = max(self._passed, now) + self._chance.expovariate(1 / device.stall_s)
            self._next_stall = now + self._stall_gap()
        at = max(now, self._passed)
        self._leak(at)
        over = max(
            (self._bytes - device.bytes_per_s * device.burst_s) / device.bytes_per_s,
            (self._requests - device.requests_per_s * device.burst_s) / device.requests_per_s,
        )
        if over > 0:
            at += over
            self._leak(at)
        self._bytes += size
        self._requests += 1
        self._passed = at
        if device.burst_s == 0:
            # what passes is on the medium, not in a cache before it
            at += max(size / device.bytes_per_s, 1 / device.requests_per_s)
        wait = self._chance.lognormvariate(self._log_write, device.spread)
        return at + size / device.raw_bytes_per_s + wait

    def flush(self, now: float) -> float:
        return now + self._chance.lognormvariate(self._log_flush, self._device.spread)

    def _leak(self, now: float) -> None:
        span = now - self._at
        self._bytes = max(0.0, self._bytes - span * self._device.bytes_per_s)
        self._requests = max(0.0, self._requests - span * self._device.requests_per_s)
        self._at = now

    def _stall_gap(self) -> float:
        rate = self._device.stalls_per_s
        return self._chance.expovariate(rate) if rate > 0 else math.inf
