"""What ends a session at once: each says in words what it saw, and all is put back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from zfstrace.host import Host
from zfstrace.zpool.status import scanning
from zfstune.experiment.blocks import BlockMeter
from zfstune.experiment.runner import Abort, Disturbed
from zfstune.term.units import SECOND, format_size, format_time

_MEMORY_SHARE = 32
"""Less than a 32nd of memory available is pressure."""
_SCAN_S = 10.0
_SILENT_S = 30.0
"""Without one fsync for so long the load has gone."""


@dataclass
class Guardrails:
    """An experiment.Watch. longest_ns is the limit of a single fsync, in ns; None is no
    limit. now() is in ns."""

    host: Host
    pool: str
    now: Callable[[], int]
    longest_ns: int | None
    _reclaims: int | None = None
    _heard: tuple[int, int] = (0, -1)
    _load_seen: bool = False
    _scan_ns: int = 0
    checks: list[Callable[[], None]] = field(default_factory=list)

    def __call__(self, meter: BlockMeter | None, measuring: bool) -> None:
        for check in self.checks:
            check()
        self._pool()
        self._memory()
        if meter is not None:
            self._load(meter)
        if not measuring:
            self._scan()

    def _scan(self) -> None:
        """Only between blocks: zpool(8) takes some CPU time."""
        if self.now() - self._scan_ns < _SCAN_S * SECOND:
            return
        self._scan_ns = self.now()
        what = scanning(self.pool)
        if what:
            raise Disturbed(
                f"a {what} runs on {self.pool}, what is measured now is the {what}'s, "
                "try again when it is over"
            )

    def _pool(self) -> None:
        state = self.host.pool_state(self.pool)
        if state != "ONLINE":
            raise Abort(
                f"pool {self.pool} is {state or 'gone'}, not ONLINE, all parameters are put back, "
                "look at `zpool status`"
            )

    def _memory(self) -> None:
        stats = self.host.kstat("arcstats")
        reclaims = stats.get("memory_throttle_count", 0)
        before, self._reclaims = self._reclaims, reclaims
        free = stats.get("memory_available_bytes")
        total = self.host.memory_bytes()
        if before is not None and reclaims > before:
            raise Abort("ZFS holds writers back because memory is short, all is put back")
        if free is not None and total and free < -total // _MEMORY_SHARE:
            raise Abort(
                f"memory is short, ZFS is to give back {format_size(-free)}, all is put back"
            )

    def _load(self, meter: BlockMeter) -> None:
        count = meter.so_far()
        since, heard = self._heard
        # a load that was never there is refused by its first block
        self._load_seen |= count > 0
        if count != heard:
            self._heard = (self.now(), count)
        elif self._load_seen and self.now() - since > _SILENT_S * SECOND:
            raise Abort(
                f"no fsync on {self.pool} for {_SILENT_S:.0f} s, the load has gone, all is put back"
            )
        longest = meter.longest_ns()
        if self.longest_ns is not None and longest > self.longest_ns:
            raise Abort(
                f"an fsync took {format_time(longest)}, more than --max-latency "
                f"{format_time(self.longest_ns)}, all is put back"
            )
