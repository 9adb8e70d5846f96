"""A process that outlives its cgroup, and that the OOM killer spares."""

from __future__ import annotations

import contextlib
from pathlib import Path


def protect_from_oom() -> None:
    """The caller. Raises OSError without privilege."""
    Path("/proc/self/oom_score_adj").write_text("-1000")


def leave_cgroup() -> None:
    """What freezes or ends the rest of the caller's cgroup does not reach it then: it goes to the
    root, of version 2, of 2 beside 1, and of the freezer of 1, as far as they are there."""
    for root in ("", "unified/", "freezer/"):
        with (
            contextlib.suppress(OSError),
            Path(f"/sys/fs/cgroup/{root}cgroup.procs").open("r+") as f,
        ):
            f.write("0")  # the writer itself
