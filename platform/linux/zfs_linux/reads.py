"""Reads on Linux: by libzfstrace, or counted by kstats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from zfs_linux import kstat
from zfstrace.bpf.read import ReadTrace
from zfstrace.kstat.reads import FIELDS, Objset
from zfstrace.read import ReadState
from zfstrace.types import TraceOptions


def arcstats(kstats: Path) -> dict[str, int]:
    """The numbers of the kstat of the cache."""
    values = kstat.parse_named(kstat.read(kstats / "arcstats"))
    return {name: value for name, value in values.items() if isinstance(value, int)}


def objsets(kstats: Path, pool: str | None) -> Iterator[Objset]:
    """What the kstats of the datasets in use have counted."""
    for name in [pool] if pool else kstat.pools(kstats):
        for number, path in kstat.objsets(kstats, name).items():
            text = kstat.read(path)
            reads, read, writes, written = (kstat.count(text, field) for field in FIELDS)
            # None: it was unmounted a moment ago
            if reads is None or read is None or writes is None or written is None:
                continue
            yield name, number, (reads, read, writes, written)


class TracedReads(ReadTrace):
    """Implements zfstrace.host.ReadSession by BPF."""

    def __init__(
        self,
        kstats: Path,
        options: TraceOptions,
        objset: int,
        dev: tuple[int, int],
        max_datasets: int,
    ) -> None:
        self._kstats = kstats
        super().__init__(
            pool=options.pool,
            objset=objset,
            dev=dev,
            pid=options.pid or 0,
            max_datasets=max_datasets,
            no_fentry=options.no_fentry,
            table_mib=options.table_mib,
        )

    def tick(self) -> None:
        """Lets the library tidy up. Raises TraceError."""
        self.tidy()

    def state(self) -> ReadState:
        return ReadState(self.datasets(), arcstats(self._kstats))
