"""Programs that are run: none reads what is typed, none is waited for without a limit.

Each leads a session and a process group of its own, so a Ctrl-C is for us, and with it ends all
that it has started. What hangs in the kernel cannot be ended, so its end is not waited for either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

# As much of what a program has said last is looked at.
_MOST_SAID = 2000


class Done(NamedTuple):
    """How a program ended, by its status or, negative, by a signal; and what it has printed."""

    status: int
    out: str
    err: str


def start(
    argv: Sequence[str], stdout: IO[bytes] | int, stderr: IO[bytes] | int, **more: Any
) -> subprocess.Popen[bytes]:
    """A program that runs; more is for Popen. Raises OSError when it cannot be run."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        **more,
    )


def run(argv: Sequence[str], limit_s: float, env: Mapping[str, str] | None = None) -> Done:
    """Runs a program to its end. Raises TimeoutError when it takes longer, and another OSError when
    it cannot be run."""
    process = start(argv, subprocess.PIPE, subprocess.PIPE, env=env)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, f"{argv[0]} does not end") from None
    finally:
        if process.returncode is None:
            signal_all(process, signal.SIGKILL)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
    return Done(process.returncode, *(text.decode(errors="replace") for text in (out, err)))


def output(argv: Sequence[str], limit_s: float) -> str:
    """What a program prints; "" when it fails, is not there or takes longer."""
    try:
        done = run(argv, limit_s)
    except OSError:
        return ""
    return done.out if done.status == 0 else ""


def signal_all(process: subprocess.Popen[bytes], number: int) -> None:
    """Sends a signal to a program and all that it has started, as far as they are there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ends a program and all that it has started: by SIGTERM, and what is left after grace_s by
    SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_all(process, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)


def how_ended(status: int) -> str:
    """``status 1`` or ``signal 9``."""
    return f"signal {-status}" if status < 0 else f"status {status}"


def last_line(file: IO[bytes]) -> str:
    """The last line in a file that a program writes, at most 200 characters; "" without one."""
    # not by seek(): a program that shares the file writes where it is
    fd = file.fileno()
    size = os.fstat(fd).st_size
    text = os.pread(fd, _MOST_SAID, max(0, size - _MOST_SAID)).replace(b"\0", b"")
    lines = text.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]
