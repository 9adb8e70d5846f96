"""One run: starts the machine, passes on the command's output, returns its status."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from . import console, machine
from .errors import GUEST_FAILED, LabError
from .image import Image
from .process import die_with_parent, scratch_dir
from .qemu import Qemu
from .units import format_time

HEADER = struct.Struct(">cI")
_MAX_FRAME = 1 << 20
# Boots of one run. An emulated kernel hangs at boot now and then, with a timer that never fires, or
# trips over its own patches, or QEMU fails an assertion of its own (iotlb_to_section() of 10.0.2,
# with two emulated CPUs) (docs/lab.md); as the command has not begun, it can be booted again.
_EMULATED_BOOTS = 3
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


@dataclass(frozen=True)
class Limits:
    """How long to wait for the guest to be ready, and for the command, in seconds."""

    boot_s: float = 180.0
    command_s: float = 1800.0


class _Interrupted(Exception):
    """A signal that ends the run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(
    qemu: Qemu,
    accelerator: str,
    image: Image,
    options: machine.Options,
    argv: list[str],
    *,
    limits: Limits,
    terminal: bool = False,
    verbose: bool = False,
    console_path: Path | None = None,
) -> int:
    """Runs `argv` in a new guest and returns its exit status. Raises LabError if QEMU does not
    start. An emulated guest that hangs before the command has begun, or whose emulator is at fault
    otherwise, is booted again, and a line on stderr says so.

    125 means that there is none because the guest panicked, hung or took too long; stderr then has
    the reason and the end of the console log.
    """
    command = {"argv": argv, "tty": terminal, "environment": {"ZFSTUNE_LAB": image.flavour}}
    if terminal:
        rows, columns = _window_size()
        command |= {"rows": rows, "columns": columns}
        command["environment"] |= {"TERM": os.environ.get("TERM", "linux")}  # type: ignore[operator]
    boots = 1 if accelerator == "kvm" else _EMULATED_BOOTS
    while True:
        with ExitStack() as files:
            log = _console_file(console_path, files)
            ours, theirs = socket.socketpair()
            files.enter_context(ours)
            files.enter_context(theirs)
            launch = machine.launch(
                qemu, accelerator, image, options, command, theirs.fileno(), log, files
            )
            complaints = files.enter_context(tempfile.TemporaryFile())
            archive = files.enter_context(tempfile.TemporaryFile(dir=scratch_dir()))
            session = _Session(ours, limits, verbose, options.reboots, archive)
            status = _boot_and_run(launch, session, theirs, log, complaints, terminal)
            session.unpack(options.out)
        if status is not None:
            return status
        boots -= 1
        if not boots:
            return GUEST_FAILED
        _say("nothing has run in it, so it is booted again")


def _boot_and_run(
    launch: machine.Launch,
    session: _Session,
    port: socket.socket,
    log: IO[bytes],
    complaints: IO[bytes],
    terminal: bool,
) -> int | None:
    """The exit status of the run; None if the guest hung, or QEMU was at fault, before the command
    began. `port` is the guest's end of the session's connection."""
    process = None
    with _signals_raise():
        try:
            process = _start(launch, complaints)
            port.close()
            status = session.terminal() if terminal else session.output()
        except _Interrupted as interrupted:
            if interrupted.number != signal.SIGALRM:
                return 128 + interrupted.number
            failed = _failed(session.overdue(), _lines(log))
            return failed if session.ready else None
        except BrokenPipeError:  # nobody reads our output any more, as after `| head`
            _discard_output()
            return 128 + signal.SIGPIPE
        finally:
            _ignore_signals()
            if process is not None:
                process.kill()
                process.wait()
    return _stopped(complaints, log, session) if status is None else status


def _start(launch: machine.Launch, complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        launch.command,
        stdin=subprocess.DEVNULL,
        stdout=complaints,
        stderr=complaints,
        pass_fds=launch.descriptors,
        # we handle Ctrl-C; and QEMU must not survive us, however we end
        start_new_session=True,
        preexec_fn=die_with_parent(signal.SIGKILL),
        env={**os.environ, "TMPDIR": scratch_dir()},
    )


class _Session:
    """The frames of one run; see guest/agent.py for their format."""

    def __init__(
        self,
        connection: socket.socket,
        limits: Limits,
        verbose: bool,
        reboots: int,
        archive: IO[bytes],
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._verbose = verbose
        self._reboots = reboots
        self._archive = archive
        self._started = time.monotonic()
        self.ready = False
        signal.setitimer(signal.ITIMER_REAL, limits.boot_s)

    def output(self) -> int | None:
        """Passes on the command's output; returns its status, or None if the guest died."""
        for kind, content in self._frames():
            if kind == b"X":
                return int(content)
            self._handle(kind, content)
        return None

    def terminal(self) -> int | None:
        """Like `output`, with our terminal connected to the guest's."""
        with _raw_terminal(), self._window_changes():
            for kind, content in self._frames(keyboard=True):
                if kind == b"X":
                    return int(content)
                self._handle(kind, content)
        return None

    def overdue(self) -> str:
        """Which limit has been exceeded."""
        if not self.ready:
            return f"the guest was not ready after {format_time(self._limits.boot_s)}"
        return f"timeout: the command took longer than {format_time(self._limits.command_s)}"

    def unpack(self, out: Path | None) -> None:
        """Unpacks what came as an archive of /out, if anything, into directory `out`."""
        if out is not None and self._archive.tell():
            self._archive.seek(0)
            tar = ["tar", "-C", str(out), "--no-same-owner", "-xf", "-"]
            if subprocess.run(tar, stdin=self._archive, check=False).returncode:
                raise LabError(f"--out {out}: not all files of /out could be written")

    def _handle(self, kind: bytes, content: bytes) -> None:
        if kind == b"O":
            _write(1, content)
        elif kind == b"E":
            _write(2, content)
        elif kind == b"A":
            self._archive.write(content)
        elif kind == b"R":
            if not self.ready:
                self.ready = True
                signal.setitimer(signal.ITIMER_REAL, self._limits.command_s)
            else:
                self._reboots -= 1
                if self._reboots < 0:
                    what = "the guest rebooted more often than --reboots says"
                    raise LabError(what, status=GUEST_FAILED)
            if self._verbose:
                took = time.monotonic() - self._started
                uptime = json.loads(content)["uptime_s"]
                _say(f"guest ready after {took:.1f}s ({uptime:.1f}s by its own clock)")

    def _frames(self, keyboard: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Frames from the guest until it ends; sends it keyboard input if `keyboard`."""
        received = bytearray()
        sources: list[int | socket.socket] = [self._connection, *([0] if keyboard else [])]
        while True:
            for source in select.select(sources, [], [])[0]:
                if source == 0:
                    typed = os.read(0, 4096)
                    if typed:
                        self._send(b"I", typed)
                    else:
                        sources.remove(0)
                    continue
                try:
                    data = self._connection.recv(1 << 18)
                except ConnectionResetError:
                    return
                if not data:
                    return
                received += data
                while len(received) >= HEADER.size:
                    kind, length = HEADER.unpack_from(received)
                    if length > _MAX_FRAME:
                        what = f"the guest sent a malformed frame of {length} bytes"
                        raise LabError(what, status=GUEST_FAILED)
                    end = HEADER.size + length
                    if len(received) < end:
                        break
                    content = bytes(received[HEADER.size : end])
                    del received[:end]
                    yield kind, content

    def _send(self, kind: bytes, content: bytes) -> None:
        self._connection.sendall(HEADER.pack(kind, len(content)) + content)

    @contextlib.contextmanager
    def _window_changes(self) -> Iterator[None]:
        def changed(number: int, frame: FrameType | None) -> None:
            self._send(b"W", struct.pack(">HH", *_window_size()))

        before = signal.signal(signal.SIGWINCH, changed)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)


def _stopped(complaints: IO[bytes], log: IO[bytes], session: _Session) -> int | None:
    """Prints why QEMU ended before the command; None if that had not begun, and QEMU is at fault.
    Raises LabError if it did not start."""
    complaints.seek(0)
    said = complaints.read().decode(errors="replace").strip().splitlines()
    crashed = any("Assertion" in line for line in said)
    log.seek(0)
    if said and not crashed and not log.read(1):
        reason = said[0].removeprefix("qemu-system-x86_64: ")
        raise LabError(f"QEMU did not start: {reason}")
    for line in said[:5]:
        _say(f"QEMU says: {line}")
    when = "during the command" if session.ready else "before it was ready"
    lines = _lines(log)
    failed = _failed(f"the guest stopped {when}", lines)
    at_fault = crashed or console.own_breakpoint(lines)
    return None if at_fault and not session.ready else failed


def _lines(log: IO[bytes]) -> list[str]:
    log.seek(0)
    return console.clean(log.read())


def _failed(reason: str, lines: list[str]) -> int:
    """Prints why there is no status, and the end of the console log."""
    found = console.diagnose(lines)
    _say(f"{found} ({reason})" if found else reason)
    if lines:
        _say("end of the guest's console:")
        for line in console.tail(lines):
            print(f"  | {line}", file=sys.stderr)
    return GUEST_FAILED


def _console_file(path: Path | None, files: ExitStack) -> IO[bytes]:
    if path is None:
        return files.enter_context(tempfile.TemporaryFile())
    try:
        return files.enter_context(path.open("w+b"))
    except OSError as error:
        raise LabError(f"--console {path}: {error.strerror}") from None


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Turns signals that end a run into exceptions, which also interrupt a blocked write."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise _Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    """Protects the cleanup at the end of a run from a second Ctrl-C."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Passes every key to the guest, including Ctrl-C."""
    if not os.isatty(0):
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _window_size() -> tuple[int, int]:
    try:
        packed = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return 24, 80
    rows, columns = struct.unpack("HHHH", packed)[:2]
    return (rows, columns) if rows and columns else (24, 80)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _discard_output() -> None:
    """Keeps Python from complaining at exit about a stdout that nobody reads."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)
