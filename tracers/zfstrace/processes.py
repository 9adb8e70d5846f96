"""Runs programs, without standard input and with a time limit.

Each leads its own session and process group, so that Ctrl-C reaches only us and a program can be
ended with everything that it has started. A process that hangs in the kernel cannot be killed, so
nothing waits for it either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

# How many bytes at the end of a program's output are searched for its last line.
_MOST_SAID = 2000
# So many may hang in the kernel, as zpool(8) does behind a pool that does not answer, before no
# other is started.
MOST_LEFT = 8
# Those that were killed and have not ended
_left: list[subprocess.Popen[bytes]] = []


class Done(NamedTuple):
    """How a program ended, by its exit status or, negative, a signal; and its output."""

    status: int
    out: str
    err: str


def start(
    argv: Sequence[str], stdout: IO[bytes] | int, stderr: IO[bytes] | int, **more: Any
) -> subprocess.Popen[bytes]:
    """Starts a program; more is for Popen. Raises OSError when it cannot be run."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        **more,
    )


def run(argv: Sequence[str], limit_s: float, env: Mapping[str, str] | None = None) -> Done:
    """Runs a program. Raises TimeoutError when it takes longer than limit_s, or too many that took
    longer are still there; another OSError when it cannot be run."""
    _left[:] = [one for one in _left if one.poll() is None]
    if len(_left) >= MOST_LEFT:
        raise TimeoutError(errno.ETIMEDOUT, f"{argv[0]} is not run: {len(_left)} processes hang")
    process = start(argv, subprocess.PIPE, subprocess.PIPE, env=env)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, f"{argv[0]} takes over {limit_s:g} s") from None
    finally:
        if process.returncode is None:
            signal_all(process, signal.SIGKILL)
            _left.append(process)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
    return Done(process.returncode, *(text.decode(errors="replace") for text in (out, err)))


def output(argv: Sequence[str], limit_s: float) -> str:
    """What a program prints; "" when it fails, does not exist or takes longer than limit_s."""
    try:
        done = run(argv, limit_s)
    except OSError:
        return ""
    return done.out if done.status == 0 else ""


def exists(pid: int) -> bool:
    """Whether there is such a process, of whatever user."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def signal_all(process: subprocess.Popen[bytes], number: int) -> None:
    """Sends a signal to a program and all that it has started, if any still run."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ends a program and all that it has started: by SIGTERM, after grace_s by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_all(process, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)


def how_ended(status: int) -> str:
    """``status 1`` or ``signal 9``."""
    return f"signal {-status}" if status < 0 else f"status {status}"


def last_line(file: IO[bytes]) -> str:
    """The last line in a file that a program writes, at most 200 characters; "" without one."""
    # no seek(): the program may share the file's offset
    fd = file.fileno()
    size = os.fstat(fd).st_size
    text = os.pread(fd, _MOST_SAID, max(0, size - _MOST_SAID)).replace(b"\0", b"")
    lines = text.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]
