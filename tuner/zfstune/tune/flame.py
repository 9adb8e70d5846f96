"""Off-CPU stacks of fsyncs before and after a change, for the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from zfstrace import flame
from zfstrace.host import Host
from zfstrace.recording import StackOptions
from zfstune.term.units import SECOND


def seconds_of(budget_ns: int) -> int:
    """How long a recording takes in a session with this budget: a sixtieth of it, 5 s to 10 s."""
    return min(10, max(5, budget_ns // (60 * SECOND)))


def record(host: Host, pool: str, path: Path, seconds: int, second: Callable[[], None]) -> None:
    """Records where threads in an fsync on the pool wait, as folded text in path. second() waits
    for a second. Raises what that raises, TraceError, flame.FlameError."""
    session = host.open_stack_trace(StackOptions("off-cpu", "fsync", None, pool))
    try:
        for _ in range(seconds):
            host.tick()
            second()
        stacks = session.finish().stacks
    finally:
        session.close()
    flame.write(replace(stacks, title=path.stem), str(path), mode=0o600)
