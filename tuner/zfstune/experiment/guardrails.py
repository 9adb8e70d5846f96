"""The conditions that end a session at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from zfstrace.host import Host
from zfstrace.zpool.status import scanning
from zfstune.experiment.blocks import BlockMeter
from zfstune.experiment.runner import Abort, Disturbed
from zfstune.term.units import SECOND, format_size, format_time

# Memory is short when ZFS is asked to free more than a 32nd of it
_MEMORY_SHARE = 32
_SCAN_S = 10.0
# After this time without an fsync the load has gone
_SILENT_S = 30.0


@dataclass
class Guardrails:
    """A runner.Watch. longest_ns limits a single fsync; None is no limit. now() is in ns."""

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
        """Only between blocks, because zpool(8) takes CPU time."""
        if self.now() - self._scan_ns < _SCAN_S * SECOND:
            return
        self._scan_ns = self.now()
        what = scanning(self.pool)
        if what:
            raise Disturbed(
                f"a {what} is running on {self.pool}: it disturbs the measurement",
                "try again when it is over",
            )

    def _pool(self) -> None:
        state = self.host.pool_state(self.pool)
        if state != "ONLINE":
            raise Abort(
                f"pool {self.pool} is {state or 'gone'}, not ONLINE; all parameters are restored",
                "see `zpool status`",
            )

    def _memory(self) -> None:
        stats = self.host.kstat("arcstats")
        reclaims = stats.get("memory_throttle_count", 0)
        before, self._reclaims = self._reclaims, reclaims
        free = stats.get("memory_available_bytes")
        total = self.host.memory_bytes()
        if before is not None and reclaims > before:
            raise Abort("memory is short: ZFS delays writers; all parameters are restored")
        if free is not None and total and free < -total // _MEMORY_SHARE:
            raise Abort(
                f"memory is short: ZFS must free {format_size(-free)}; all parameters are restored"
            )

    def _load(self, meter: BlockMeter) -> None:
        count = meter.so_far()
        since, heard = self._heard
        # a load that never began fails at its first block
        self._load_seen |= count > 0
        if count != heard:
            self._heard = (self.now(), count)
        elif self._load_seen and self.now() - since > _SILENT_S * SECOND:
            raise Abort(
                f"no fsync on {self.pool} for {_SILENT_S:.0f} s: the load has gone; all parameters "
                "are restored"
            )
        longest = meter.longest_ns()
        if self.longest_ns is not None and longest > self.longest_ns:
            raise Abort(
                f"an fsync took {format_time(longest)}, more than --max-latency "
                f"{format_time(self.longest_ns)}; all parameters are restored"
            )
