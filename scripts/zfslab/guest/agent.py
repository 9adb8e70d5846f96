#!/usr/bin/env python3
"""Runs the command in the guest, as process 1 on Linux, and carries its output to the host.

Standard output, standard error and the exit status are sent as frames over one virtio serial port,
so that they arrive in order, complete, and without kernel messages in between. A frame is a letter,
a 32-bit length (big endian) and the content:

  to the host   R ready (JSON)   O standard output   E standard error   X exit status (text)
                A a part of the archive of /out (tar), where the host does not see /out itself
  to the guest  I terminal input   W window size (two 16-bit numbers: rows, columns)
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path
from typing import Any, NoReturn

HEADER = struct.Struct(">cI")
CHUNK = 1 << 16
DIRECTORY = Path(__file__).parent
BOOTS = Path("/var/zfslab-boots")
LINUX = sys.platform == "linux"
# The last two are Python's; FreeBSD's rc(8) ignores the others before SIGCHLD.
_AS_AT_LOGIN = (
    signal.SIGHUP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGCHLD,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)


def main() -> NoReturn:
    """Runs the command of command.json, reports its status, and waits to be switched off."""
    command = json.loads((DIRECTORY / "command.json").read_text())
    wakeup, wakeup_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    port = open_port("zfslab")
    command["environment"]["ZFSTUNE_LAB_BOOT"] = count_boot()
    ready = {"uptime_s": uptime_s(), "time_s": time.time()}
    send(port, b"R", json.dumps(ready).encode())
    if command["tty"]:
        status = run_on_terminal(port, wakeup, command)
    else:
        status = run_with_pipes(port, wakeup, command)
    if LINUX:
        flush_out()
    else:
        send_out(port)
    send(port, b"X", str(status).encode())
    while True:
        signal.pause()


def open_port(name: str) -> int:
    """A descriptor of the virtio serial port called `name`."""
    for _ in range(200):
        for file in Path("/sys/class/virtio-ports").glob("*/name"):
            if file.read_text().strip() == name:
                return os.open(f"/dev/{file.parent.name}", os.O_RDWR | os.O_CLOEXEC)
        if Path(f"/dev/vtcon/{name}").exists():  # FreeBSD: a terminal
            port = os.open(f"/dev/vtcon/{name}", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
            tty.setraw(port)
            return port
        time.sleep(0.05)
    raise SystemExit(f"zfslab: no virtio port {name}")


def uptime_s() -> float:
    """Seconds since the boot."""
    clock = "CLOCK_BOOTTIME" if LINUX else "CLOCK_UPTIME"
    return time.clock_gettime(getattr(time, clock))


def count_boot() -> str:
    """Which boot of the run this is: "1", then "2" and so on, as the command may reboot."""
    boots = int(BOOTS.read_text()) + 1 if BOOTS.exists() else 1
    BOOTS.write_text(str(boots))
    return str(boots)


def send(port: int, kind: bytes, content: bytes) -> None:
    """Writes one frame; blocks while the host is slow, which also slows down the command."""
    data = HEADER.pack(kind, len(content)) + content
    while data:
        data = data[os.write(port, data) :]


def spawn(command: dict[str, Any], stdin: int, stdout: int, stderr: int) -> int:
    """Starts the command in its own session; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for number in _AS_AT_LOGIN:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for source, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, target)
        if command["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.environ.update(command["environment"])
        os.execvp(command["argv"][0], command["argv"])
    except OSError as error:
        os.write(2, f"lab: error: {command['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    finally:
        os._exit(126)


def run_with_pipes(port: int, wakeup: int, command: dict[str, Any]) -> int:
    """Runs the command without a terminal; returns its status as a shell would."""
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
    pid = spawn(command, null, pipes[0][1], pipes[1][1])
    kinds = {}
    for (reader, writer), kind in zip(pipes, (b"O", b"E"), strict=True):
        os.close(writer)
        os.set_blocking(reader, False)
        kinds[reader] = kind
    poll = select.poll()
    for descriptor in (wakeup, *kinds):
        poll.register(descriptor, select.POLLIN)
    status = None
    while status is None:
        for descriptor, _ in poll.poll():
            if descriptor == wakeup:
                drain(wakeup)
                status = reap(pid)
            elif not forward(port, descriptor, kinds[descriptor]):
                poll.unregister(descriptor)
    # The command's output is in the pipes by now. Processes that it left behind may hold them open,
    # or write to them, forever, so wait neither for the end of file nor for an empty pipe.
    for descriptor, kind in kinds.items():
        for _ in range(0, waiting(descriptor), CHUNK):
            forward(port, descriptor, kind)
    return status


def run_on_terminal(port: int, wakeup: int, command: dict[str, Any]) -> int:
    """Runs the command on a new terminal, connected to the one on the host."""
    master, slave = os.openpty()
    resize(master, command["rows"], command["columns"])
    pid = spawn(command, slave, slave, slave)
    os.close(slave)
    os.set_blocking(master, False)
    poll = select.poll()
    for descriptor in (wakeup, master, port):
        poll.register(descriptor, select.POLLIN)
    status = None
    received = b""
    while status is None:
        for descriptor, _ in poll.poll():
            if descriptor == wakeup:
                drain(wakeup)
                status = reap(pid)
            elif descriptor == master:
                if not forward(port, master, b"O"):
                    poll.unregister(master)
            else:
                received = handle(received + os.read(port, 4096), master)
    while forward(port, master, b"O"):
        pass
    return status


def handle(received: bytes, master: int) -> bytes:
    """Handles the complete frames in `received`; returns the rest."""
    while len(received) >= HEADER.size:
        kind, length = HEADER.unpack_from(received)
        end = HEADER.size + length
        if len(received) < end:
            break
        content, received = received[HEADER.size : end], received[end:]
        if kind == b"I":
            os.write(master, content)
        elif kind == b"W":
            resize(master, *struct.unpack(">HH", content))
    return received


def resize(terminal: int, rows: int, columns: int) -> None:
    """Sets the window size of `terminal`, of which the kernel informs the programs on it."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def forward(port: int, descriptor: int, kind: bytes) -> bool:
    """Sends what can be read now; returns whether there was anything."""
    try:
        content = os.read(descriptor, CHUNK)
    except BlockingIOError:
        return False
    except OSError:  # EIO: no program has the terminal open any more
        return False
    if content:
        send(port, kind, content)
    return bool(content)


def waiting(descriptor: int) -> int:
    """How many bytes can be read now."""
    count: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    return count


def drain(descriptor: int) -> None:
    """Empties a pipe that only wakes us up."""
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def reap(wanted: int) -> int | None:
    """Reaps all ended processes (we are process 1); returns the status of `wanted` if it is one of
    them, else None."""
    status = None
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == wanted:
            code = os.waitstatus_to_exitcode(raw)
            status = code if code >= 0 else 128 - code


def send_out(port: int) -> None:
    """Sends /out as an archive."""
    archive = subprocess.Popen(["tar", "-C", "/out", "-cf", "-", "."], stdout=subprocess.PIPE)
    assert archive.stdout is not None
    while part := archive.stdout.read(1 << 16):
        send(port, b"A", part)
    archive.wait()


def flush_out() -> None:
    """Syncs /out, and nothing else, as pools on slow disks may take long."""
    descriptor = os.open("/out", os.O_RDONLY)
    ctypes.CDLL(None).syncfs(descriptor)
    os.close(descriptor)


if __name__ == "__main__":
    main()
