"""zfstune on Linux with the traces of FreeBSD: D scripts, in their Linux variant, in place of
libzfstrace. Names, kstats and parameters are Linux's. Takes the arguments of zfstune."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
os.environ["ZFSTUNE_DTRACE_DIR"] = str(ROOT / "tracers/dtrace/linux")
sys.path[:0] = [str(ROOT / part) for part in ("tracers", "tuner", "platform/linux")]
sys.path += [str(ROOT / "platform/freebsd"), str(ROOT / "tests")]

from support.freebsd import linux_probes  # noqa: E402

import zfs_linux.host  # noqa: E402
from zfs_freebsd.dtrace import (  # noqa: E402
    arc,
    device,
    fsync,
    probes,
    process,
    throttle,
    txg,
)
from zfs_freebsd.dtrace.stacks import ScriptedStacks  # noqa: E402
from zfs_linux.traces import ProcTxgs  # noqa: E402
from zfstrace.host import (  # noqa: E402
    ArcSession,
    DeviceSession,
    FsyncSession,
    StackSession,
    ThrottleSession,
    TxgSession,
)
from zfstrace.recording import StackOptions  # noqa: E402
from zfstrace.types import Check, FsyncOptions, TraceOptions  # noqa: E402


class DtraceHost(zfs_linux.host.LinuxHost):
    """A Linux host with the traces of zfs_freebsd, as FreeBSDHost has them."""

    def checks(self) -> list[Check]:
        return [check for check in super().checks() if check.kind != "library"]

    def open_fsync_trace(self, options: FsyncOptions) -> FsyncSession:
        objset = self._locate(options.dataset)[0] if options.dataset else 0
        return self._follow(fsync.ScriptedFsyncs(options, objset, self.parameter))

    def open_throttle_trace(self, options: TraceOptions) -> ThrottleSession:
        return self._follow(throttle.ScriptedThrottle(options.pool, options.pid, self.parameter))

    def open_device_trace(self, options: TraceOptions) -> DeviceSession:
        return self._follow(device.ScriptedDevices(options.pool))

    def open_txg_trace(self, options: TraceOptions) -> TxgSession:
        timeout = Path("/sys/module/zfs/parameters/zfs_txg_timeout")
        return self._follow(
            txg.ScriptedTxgs(options.pool, ProcTxgs(Path("/proc/spl/kstat/zfs"), timeout))
        )

    def open_arc_trace(self, options: TraceOptions) -> ArcSession:
        return self._follow(arc.ScriptedArc(lambda: self.kstat("arcstats")))

    def open_stack_trace(self, options: StackOptions) -> StackSession:
        return ScriptedStacks(options)


probes.NEEDS = linux_probes.needs()
process.OPTIONS = linux_probes.OPTIONS
zfs_linux.host.LinuxHost = DtraceHost  # type: ignore[misc]

from zfstune.cli import main  # noqa: E402  (it opens the host above)

if __name__ == "__main__":
    sys.exit(main())
