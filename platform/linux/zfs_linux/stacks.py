"""Recordings of stacks on Linux: with names from /proc/kallsyms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from zfs_linux import kallsyms
from zfstrace.bpf.stacks import StackTrace
from zfstrace.errors import NotSupported
from zfstrace.recording import Recording, StackOptions, build


class NamedStacks(StackTrace):
    """Implements zfstrace.host.StackSession."""

    def __init__(
        self,
        options: StackOptions,
        path: Path,
        pool_of: Callable[[tuple[int, int]], str | None],
    ) -> None:
        if kallsyms.hidden(path):
            raise NotSupported(
                "cannot record stacks, the kernel hides the addresses of its functions, run "
                "`sysctl kernel.kptr_restrict=1` and be root or have CAP_SYSLOG"
            )
        self._options, self._path, self._pool_of = options, path, pool_of
        super().__init__(options)

    def finish(self) -> Recording:
        sums, losses = self.read()
        # Only now, and while the tracer's own programs are still there to be known by name:
        # it takes seconds on a slow machine.
        symbols = kallsyms.Symbols(self._path.read_bytes())
        return build(sums, losses, self._options, symbols.name, self._pool_of)
