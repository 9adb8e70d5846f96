"""What the exporter says about itself: versions, CPU time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import Metric

from zfstrace.host import Host
from zfstune import __version__
from zfstune.exporter.bounded import label
from zfstune.exporter.families import Counters, info, one
from zfstune.term.units import SECOND

_STATM = Path("/proc/self/statm")


def families(host: Host) -> Iterator[Metric]:
    from zfstrace.bpf.binding import ABI

    versions = (__version__, label(host.version()), label(os.uname().release), str(ABI))
    yield info("zfstune_build_info", [versions])
    cpu = Counters("zfstune_exporter_cpu_seconds_total", SECOND)
    cpu.add(time.process_time_ns())
    yield cpu.family()
    yield one("zfstune_exporter_resident_bytes", resident())


def resident() -> int | None:
    """The resident memory of this process; None where the system has no file that says so."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return None
