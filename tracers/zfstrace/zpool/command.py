"""What zpool(8) and the like print."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def output(argv: Sequence[str], timeout_s: float) -> str:
    """The command's output; "" when it fails, is not there or takes longer. One that hangs
    in the kernel cannot be ended, so its end is not waited for either."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
        )
    except OSError:
        return ""
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return ""
    return said if process.returncode == 0 else ""
