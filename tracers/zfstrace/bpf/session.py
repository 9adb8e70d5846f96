"""A running tracer of libzfstrace: its counts, events, losses and probes."""

from __future__ import annotations

import ctypes
import errno
from types import TracebackType
from typing import TypeVar

from zfstrace import errors
from zfstrace.bpf.binding import _EVENT_FN, CCost, _error, _Losses, _Opts, _probes, load, text
from zfstrace.types import Losses, Probe

_Self = TypeVar("_Self", bound="Session")
Entry = TypeVar("Entry", bound=ctypes.Structure)


class Session:
    """A tracer of libzfstrace, attached from the constructor to close().

    name is the tracer's; pool, objset and dev limit it to one pool or dataset, pid to one process;
    max_slots is the number of datasets (processes, vdevs ...) that have their own entry; the others
    are those of struct zfstrace_opts. Raises TraceError.
    """

    def __init__(
        self,
        name: str,
        *,
        pool: str | None = None,
        objset: int = 0,
        dev: tuple[int, int] = (0, 0),
        pid: int = 0,
        slow_ns: int = 0,
        max_slots: int = 0,
        no_fentry: bool = False,
        mode: int = 0,
        table_mib: int = 0,
    ) -> None:
        self._lib = load()
        opts = _Opts(
            size=ctypes.sizeof(_Opts),
            pid=pid,
            max_entries=max_slots,
            slow_ns=slow_ns,
            mode=mode,
            pool=pool.encode() if pool else None,
            objset=objset,
            dev_major=dev[0],
            dev_minor=dev[1],
            no_fentry=no_fentry,
            table_mib=table_mib,
        )
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        self._events: list[bytes] = []
        self._probes: tuple[Probe, ...] = ()
        # must live as long as the session: the library calls it
        self._collect = _EVENT_FN(self._on_event)
        code = self._lib.zfstrace_start(
            name.encode(), ctypes.byref(opts), ctypes.byref(self._handle)
        )
        if code < 0:
            message = text(self._lib.zfstrace_error(self._handle)) if self._handle else ""
            self.close()
            raise _error(code, message)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Detaches. May be called again."""
        if self._handle:
            self._lib.zfstrace_close(self._handle)
        self._handle = None

    def _check(self, code: int) -> int:
        if code < 0 and code != -errno.EINTR:
            raise _error(code, text(self._lib.zfstrace_error(self._handle)))
        return code

    def refresh(self) -> None:
        """Merges the kernel's counters. Raises TraceError."""
        # a signal may interrupt it, but half-merged counters must not be printed
        code = -errno.EINTR
        while code == -errno.EINTR:
            code = self._check(self._lib.zfstrace_refresh(self._handle))
        # probes may be attached in another way now: only tidy() is told
        self._probes = ()

    def tidy(self) -> None:
        """Lets a trace run for weeks: call it every few seconds, it costs next to nothing. Does
        nothing when the trace is closed. Raises TraceError."""
        if self._handle and self._check(self._lib.zfstrace_tidy(self._handle)) > 0:
            self._probes = ()

    def pause(self, *, now: bool = False) -> int:
        """Lets no operation begin any more; detaches as soon as none is under way or, with now, at
        once. Call it again until it returns 0, which is how many are under way. Raises
        TraceError."""
        return self._check(self._lib.zfstrace_pause(self._handle, now)) if self._handle else 0

    def resume(self) -> None:
        """Goes on after a pause. Raises TraceError."""
        self._check(self._lib.zfstrace_resume(self._handle))

    def losses(self) -> Losses:
        """As of the last refresh()."""
        losses = _Losses()
        self._lib.zfstrace_losses(self._handle, ctypes.byref(losses))
        return Losses(
            losses.start,
            losses.missed,
            losses.event,
            losses.log_block,
            losses.overflow,
            losses.unfinished,
            losses.skipped,
            losses.cut,
        )

    def probes(self) -> tuple[Probe, ...]:
        """All probes, missing ones included; () when the trace is closed."""
        if self._handle and not self._probes:
            self._probes = _probes(self._lib, self._handle)
        return self._probes if self._handle else ()

    def count_cost(self) -> None:
        """Lets the kernel count the runs of all BPF programs of the host, until end_cost() or
        close(). Raises TraceError."""
        self._check(self._lib.zfstrace_count_cost(self._handle))

    def end_cost(self) -> None:
        """Ends that. May be called again, also when the trace is closed."""
        if self._handle:
            self._lib.zfstrace_end_cost(self._handle)

    def costs(self) -> list[tuple[Probe, CCost]]:
        """The attached probes with what the kernel has counted of their programs. Raises
        TraceError."""
        found = []
        for i, probe in enumerate(self.probes()):
            if not probe.missing:
                cost = CCost()
                self._check(self._lib.zfstrace_cost(self._handle, i, ctypes.byref(cost)))
                found.append((probe, cost))
        return found

    def events(self, timeout_ms: int) -> list[bytes]:
        """Waits up to timeout_ms for events; may return none, also because of a signal. Raises
        TraceError."""
        code = self._lib.zfstrace_events(self._handle, timeout_ms, self._collect, None)
        events, self._events = self._events, []
        if not events:
            self._check(code)
        return events

    def _on_event(self, event: int, size: int, _context: int) -> None:
        self._events.append(ctypes.string_at(event, size))

    def table(self, name: str, entry: type[Entry]) -> ctypes.Array[Entry]:
        """A table that the kernel writes to, memory-mapped until close(). Raises LibraryMissing
        when its entries do not have the size of entry."""
        entries, size = ctypes.c_uint(), ctypes.c_size_t()
        at = self._lib.zfstrace_table(
            self._handle, name.encode(), ctypes.byref(entries), ctypes.byref(size)
        )
        if not at or size.value != ctypes.sizeof(entry):
            raise errors.LibraryMissing(
                f"cannot trace: libzfstrace.so has another layout of table {name}",
                "rebuild it with `make`",
            )
        return (entry * entries.value).from_address(at)
