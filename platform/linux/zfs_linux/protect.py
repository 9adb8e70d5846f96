"""Lets a process outlive its cgroup and exempts it from the OOM killer."""

from __future__ import annotations

import contextlib
from pathlib import Path


def protect_from_oom() -> None:
    """Exempts the caller from the OOM killer. Raises OSError without privilege."""
    Path("/proc/self/oom_score_adj").write_text("-1000")


def leave_cgroup() -> None:
    """Moves the caller to the root cgroup, so that it is not frozen or killed with its own one: of
    version 2, of 2 beside 1, and of the freezer of 1, as far as they exist."""
    for root in ("", "unified/", "freezer/"):
        with (
            contextlib.suppress(OSError),
            Path(f"/sys/fs/cgroup/{root}cgroup.procs").open("r+") as f,
        ):
            f.write("0")  # the writer itself
