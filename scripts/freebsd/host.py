"""The FreeBSD host that check.py examines: its facts, zfstune's commands, and processes in
the background."""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tracers", "tuner", "platform/freebsd")]

from zfs_freebsd.dtrace import scripts  # noqa: E402
from zfs_freebsd.kstat import Kstats  # noqa: E402
from zfs_freebsd.sysctl import Sysctl, SysctlError  # noqa: E402

Json = dict[str, Any]

# cannot exist, so that commands do not touch the host's journal
NOWHERE = "/var/empty/zfstune-check"
FSYNCS = 40
COMMAND_S = 60.0  # for a zfstune command
_BEGIN_S = 120.0  # until a D script has enabled its probes
_END_S = 30.0
_GRACE_S = 5.0  # for a process that is given up


class Skipped(Exception):
    """The item cannot be tried here; the message says why."""


class Failed(Exception):
    """The item does not work; the message says why, more has the details."""

    def __init__(self, message: str, more: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.more = tuple(more)


@dataclass(frozen=True)
class Result:
    """The result of an item. verdict is PASS, FAIL or SKIP."""

    item: str
    verdict: str
    said: str
    more: tuple[str, ...] = ()


@dataclass
class Host:
    """The host and the options; tests also set the fields from root on.

    run_s is how long a D script runs, window_s covers two txgs of an idle pool.
    """

    directory: Path | None = None
    write: bool = False
    earlier_boot: str = ""
    only: Sequence[str] = ()
    root: Path = Path("/")
    libc: str | None = None
    command: tuple[str, ...] = (sys.executable, "-B", "-I", str(ROOT / "bin/zfstune"))
    run_s: float = 1.0
    window_s: int = 12
    sysctl: Sysctl = field(init=False)
    kstats: Kstats = field(init=False)

    def __post_init__(self) -> None:
        self.sysctl = Sysctl(self.libc)
        self.kstats = Kstats(self.sysctl)

    def version(self) -> str:
        return self.sysctl.get_text("vfs.zfs.version.module")

    def boot(self) -> str:
        """A digest of the identity of this boot; "" if there is none."""
        for name in ("kern.boot_id", "kern.boottime"):
            with suppress(SysctlError):
                value = self.sysctl.get(name)
                return hashlib.sha256(repr(value).encode()).hexdigest()[:12]
        return ""

    def require_zfs(self) -> None:
        if not self.version():
            raise Skipped("ZFS is not loaded")

    def require_pool(self) -> list[str]:
        self.require_zfs()
        pools = self.kstats.pools()
        if not pools:
            raise Skipped("no pool is imported")
        return pools

    def require_dtrace(self) -> None:
        why, fix = scripts.why_not(self.root)
        if why:
            raise Skipped(f"{why}; {fix}")
        self.require_zfs()

    # --- zfstune's commands

    def environment(self, *, journal: bool) -> dict[str, str]:
        """For a command, with this host's journal or none."""
        if journal:
            return dict(os.environ)
        return os.environ | {"ZFSTUNE_STATE_DIR": NOWHERE, "ZFSTUNE_RUN_DIR": NOWHERE}

    def zfstune(self, *words: str, ok: Sequence[int] = (0,), journal: bool = False) -> str:
        """The standard output of a command. Raises Failed."""
        with started(
            [*self.command, *words], self.environment(journal=journal), errors_apart=True
        ) as process:
            try:
                out, err = process.communicate(timeout=COMMAND_S)
            except subprocess.TimeoutExpired:
                raise Failed(
                    f"`zfstune {' '.join(words)}` took more than {COMMAND_S:g} s"
                ) from None
        what = f"`zfstune {' '.join(words)}`"
        if "Traceback" in err:
            raise Failed(f"{what} ended in a traceback", tail(err, 30))
        if process.returncode not in ok:
            raise Failed(f"{what} ended with status {process.returncode}", tail(err or out))
        return out


# --- processes in the background


@contextmanager
def started(
    argv: Sequence[str], environment: dict[str, str] | None = None, *, errors_apart: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """A process in its own session, so that Ctrl-C reaches only us; ended with the block."""
    process = subprocess.Popen(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if errors_apart else subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_GRACE_S)
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def wait_for(process: subprocess.Popen[str], pattern: str, *, errors: bool) -> str:
    """Its output up to the pattern. Raises Failed if it ends or takes too long."""
    pipe = process.stderr if errors else process.stdout
    assert pipe
    said = b""
    end = time.monotonic() + _BEGIN_S
    while not re.search(pattern, said.decode("utf-8", "replace")):
        left = end - time.monotonic()
        ready, _, _ = select.select([pipe], [], [], max(left, 0))
        # by number: select does not see what the file object has buffered
        data = os.read(pipe.fileno(), 1 << 16) if ready else b""
        if not data:
            what = "did not start in time" if not ready else "exited at once"
            err = ""
            with suppress(subprocess.TimeoutExpired):
                err = process.communicate(timeout=_GRACE_S)[1] or ""
            raise Failed(what, tail(said.decode("utf-8", "replace") + err))
        said += data
    return said.decode("utf-8", "replace")


def stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupts it; returns the rest of its output and errors. Raises Failed."""
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"did not end within {_END_S:g} s after SIGINT") from None
    return out, err or ""


def fsyncs(directory: Path, pause_s: float) -> None:
    """Does FSYNCS fsyncs on a file that it removes after a pause."""
    with tempfile.NamedTemporaryFile(prefix="zfstune-check.", dir=directory) as file:
        for _ in range(FSYNCS):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        time.sleep(pause_s)


def tail(text: str, lines: int = 5) -> list[str]:
    return [line for line in text.splitlines() if line.strip()][-lines:]


def rows(text: str) -> list[Json]:
    """The objects in JSON lines. Raises Failed."""
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        raise Failed("its output is not JSON", tail(text)) from None
