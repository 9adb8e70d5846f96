"""Small things about processes that the standard library leaves out."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn` after which the child gets signal `number` when the lab dies, however."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)

    return set_signal


def ends_with_parent(group: int) -> subprocess.Popen[str]:
    """Watch over process group `group`: it gets SIGTERM when the lab dies without a word.

    The word is the line `done` on the standard input of the returned process.
    """
    script = 'read -r word; [ "$word" = done ] || kill -s TERM -- "-$1"'
    return subprocess.Popen(
        ["sh", "-c", script, "sh", str(group)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def missing_programs(names: Iterable[str]) -> list[str]:
    """Those of `names` that cannot be run; /usr/sbin counts even when PATH leaves it out."""
    return [name for name in names if find_program(name) is None]


def find_program(name: str) -> str | None:
    """The path of program `name`, looked for in PATH and the system directories."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def scratch_dir() -> str:
    """Where large temporary files live: not in /tmp, which is in memory on many systems."""
    return os.environ.get("TMPDIR") or "/var/tmp"
