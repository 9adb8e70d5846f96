"""Our tracers without a command around them, in the modes whose instructions are counted and whose
CPU time is measured."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tracers"))

from zfstrace.bpf.session import Session
from zfstrace.bpf.stacks import KINDS, TARGETS

VIEWS = ("fsync", "txg", "throttle", "device", "arc")
OFF_CPU = KINDS["off-cpu"] | TARGETS["fsync"]
# The tracers that are attached in each mode, with their own modes
MODES: dict[str, dict[str, int]] = {
    "plain": {},
    "commit": {"commit": 0},
    "fsync": {"fsync": 0},
    "fsync, kprobes": {"fsync": 0},
    "all views": dict.fromkeys(VIEWS, 0),
    "all views, kprobes": dict.fromkeys(VIEWS, 0),
    "read": {"read": 0},
    "off-cpu": {"stacks": OFF_CPU},
}


@contextlib.contextmanager
def attached(name: str) -> Iterator[None]:
    """The tracers of a mode while the body runs."""
    with contextlib.ExitStack() as sessions:
        for tracer, mode in MODES[name].items():
            session = Session(tracer, mode=mode, no_fentry=name.endswith("kprobes"))
            sessions.enter_context(session)
        yield
