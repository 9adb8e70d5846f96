"""What the standard library lacks for processes."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn` that makes the child get signal `number` when the lab dies in any way."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)

    return set_signal


def ends_with_parent(group: int) -> subprocess.Popen[str]:
    """Starts a process that sends SIGTERM to process group `group` if the lab dies, that is, if its
    standard input ends without the line `done`. Returns that process."""
    script = 'read -r word; [ "$word" = done ] || kill -s TERM -- "-$1"'
    return subprocess.Popen(
        ["sh", "-c", script, "sh", str(group)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def missing_programs(names: Iterable[str]) -> list[str]:
    """The `names` that are not installed; /usr/sbin counts even if it is not in PATH."""
    return [name for name in names if find_program(name) is None]


def find_program(name: str) -> str | None:
    """The path of program `name`, from PATH and the system directories; None if not found."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def scratch_dir() -> str:
    """The directory for large temporary files: not /tmp, which is in memory on many systems."""
    return os.environ.get("TMPDIR") or "/var/tmp"
