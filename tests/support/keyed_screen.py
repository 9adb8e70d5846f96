"""`zfstune trace` on a fake host, as a program of its own: for tests with a terminal.

    python keyed_screen.py [error]

error: a view fails after a second in a way that nobody expects.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / folder)
    for folder in ("tests", "tracers", "tuner", "platform/linux", "platform/freebsd")
]

from support.fake_host import FakeHost, FakeSession, run_of  # noqa: E402
from support.samples import arc, counts, ios, txg, vdev, waits  # noqa: E402

from zfstune.term.signals import Stop  # noqa: E402
from zfstune.term.units import MS, SECOND  # noqa: E402
from zfstune.trace.overview import trace  # noqa: E402


class Broken(FakeSession):
    """Fails at the third frame."""

    def refresh(self) -> None:
        super().refresh()
        if len(self.states) < 1:
            raise ZeroDivisionError("a bug")


def host() -> FakeHost:
    found = FakeHost()
    names = {("tank", n): f"tank/db{n}" for n in range(9)} | {("idle", 1): "idle/x"}
    found.names = names
    fsyncs = [counts("tank", n, stages={"flush": [MS * (n + 1)] * (10 - n)}) for n in range(9)]
    fsyncs.append(counts("idle", 1, stages={"issue": [MS] * 3}))
    found.sessions = {
        "fsync": FakeSession([[], fsyncs]),
        "txg": FakeSession(events=[txg(n) for n in range(1, 30)] + [txg(7, "idle")], probes=()),
        "throttle": FakeSession([[], [waits(pid=n, dirty_delay=[MS] * n) for n in (1, 2, 3, 4)]]),
        "device": FakeSession([[], [vdev(1, sync_write=ios([MS] * 20))]]),
        "arc": FakeSession([arc(1), arc(2)]),
    }
    if "error" in sys.argv:
        found.sessions["throttle"] = Broken([[], [], []])
    return found


if __name__ == "__main__":
    with Stop(sys.stdout) as stop:
        trace(run_of(host(), sys.stdout, stop, interval=SECOND // 5))  # type: ignore[arg-type]
    print("the end", flush=True)
