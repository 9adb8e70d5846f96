"""Who writes a file: fanotify(7) names the process of each write.

Works on sysfs, too; needs CAP_SYS_ADMIN.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import struct
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from zfs_linux import kstat
from zfstrace.params import Change

# include/uapi/linux/fanotify.h
_FAN_CLOEXEC, _FAN_NONBLOCK, _FAN_MARK_ADD = 0x1, 0x2, 0x1
_FAN_MODIFY = 0x2  # only writes that succeeded
_EVENT = struct.Struct("=IBBHQii")  # struct fanotify_event_metadata
_AT_FDCWD = -100


class FanotifyWatch:
    """Implements zfstrace.params.Watch: reports writes to paths by any process except those in ours
    (pids). Raises OSError.

    A thread reads each event at once: the name of a short-lived process such as
    `sh -c 'echo 5 > FILE'` is gone a moment later.
    """

    def __init__(self, paths: Sequence[Path], ours: Collection[int]) -> None:
        self._ours = frozenset(ours)
        self._lock = threading.Lock()
        self._changes: list[Change] = []
        self._thread = threading.Thread(target=self._serve, name="fanotify", daemon=True)
        with contextlib.ExitStack() as undo:
            self._group = _open_group(paths)
            undo.callback(os.close, self._group)
            self._end = os.pipe2(os.O_CLOEXEC)
            for end in self._end:
                undo.callback(os.close, end)
            try:
                self._thread.start()
            except RuntimeError as error:  # no room for a thread
                raise OSError(errno.EAGAIN, str(error)) from None
            undo.pop_all()

    def poll(self) -> list[Change]:
        with self._lock:
            changes, self._changes = self._changes, []
        return changes

    def close(self) -> None:
        if self._group < 0:
            return
        os.close(self._end[1])
        self._thread.join()
        os.close(self._end[0])
        os.close(self._group)
        self._group = -1

    def _serve(self) -> None:
        # signals are for the main thread, which may have deferred them
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poll = select.poll()
        poll.register(self._group, select.POLLIN)
        poll.register(self._end[0], select.POLLIN)
        while True:
            ready = {fd for fd, _event in poll.poll()}
            if self._group in ready:
                # each event comes with a descriptor: without a free one it is lost, not the watch
                with contextlib.suppress(OSError):
                    self._take(os.read(self._group, 65536))
            if self._end[0] in ready:
                return

    def _take(self, data: bytes) -> None:
        while len(data) >= _EVENT.size:
            length, _version, _reserved, _size, _mask, fd, pid = _EVENT.unpack_from(data)
            data = data[length:]
            if fd < 0:
                continue
            try:
                if pid not in self._ours:
                    name = Path(f"/proc/self/fd/{fd}").readlink().name
                    # 0 is a process outside of this pid namespace
                    comm = kstat.read(Path(f"/proc/{pid}/comm")).rstrip("\n") if pid else ""
                    with self._lock:
                        self._changes.append(Change(name, pid or None, comm or None))
            finally:
                os.close(fd)


def _open_group(paths: Sequence[Path]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        init, mark = libc.fanotify_init, libc.fanotify_mark
    except AttributeError:
        raise OSError("the C library has no fanotify") from None
    init.argtypes = [ctypes.c_uint, ctypes.c_uint]
    mark.argtypes = [
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_char_p,
    ]
    group: int = init(_FAN_CLOEXEC | _FAN_NONBLOCK, os.O_RDONLY | os.O_CLOEXEC)
    if group < 0:
        raise OSError(ctypes.get_errno(), "fanotify_init")
    for path in paths:
        if mark(group, _FAN_MARK_ADD, _FAN_MODIFY, _AT_FDCWD, os.fsencode(path)):
            error = ctypes.get_errno()
            os.close(group)
            raise OSError(error, f"fanotify_mark {path}")
    return group
