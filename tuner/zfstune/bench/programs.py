"""The choice between fio and pg_test_fsync."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zfstune.bench.load import NOTHING, SIZE, Load, Rate, Test, Unable, Watcher
from zfstune.errors import NotPossible
from zfstune.term.signals import Stop


def find_load(wanted: str | None = None, size: int = SIZE) -> Load:
    """pg_test_fsync, with fio for the tests that it lacks, or else fio; wanted is "fio" or
    "pg_test_fsync". Raises NotPossible when it is not installed."""
    from zfstune.bench import fio as bench_fio
    from zfstune.bench import pg_test_fsync

    fio = bench_fio.find(size)
    pg = None if wanted == "fio" else pg_test_fsync.find()
    if wanted == "pg_test_fsync" and not pg:
        raise NotPossible(
            "cannot measure with pg_test_fsync: it is not installed (it comes with PostgreSQL's "
            "server)",
            "use --with fio",
        )
    if wanted == "fio" and not fio:
        raise NotPossible("cannot measure with fio: it is not installed", "install the package fio")
    if pg:
        return Both(pg, fio) if fio else pg
    if fio:
        return fio
    raise NotPossible(
        "cannot measure: neither fio nor pg_test_fsync is installed", "install the package fio"
    )


@dataclass(frozen=True)
class Both:
    """Implements zfstune.bench.load.Load: the second runs the tests that the first lacks."""

    first: Load
    second: Load

    @property
    def name(self) -> str:
        return self.first.name

    def lacks(self, test: Test) -> str:
        return self.first.lacks(test) and self.second.lacks(test)

    def run(
        self, test: Test, where: Path, seconds: float, stop: Stop, watch: Watcher = NOTHING
    ) -> Rate | None:
        if not self.first.lacks(test):
            try:
                return self.first.run(test, where, seconds, stop, watch)
            except Unable:
                pass
        return self.second.run(test, where, seconds, stop, watch)


def raw(device: Path, seconds: float, stop: Stop) -> Rate | None:
    """8 kB and fdatasync on a block device, by fio and past the cache. DESTROYS its data. None
    when interrupted. Raises BenchFailed, NotPossible."""
    from zfstune.bench import fio as bench_fio

    fio = bench_fio.find()
    if not fio:
        raise NotPossible("cannot measure the device itself without fio", "install the package fio")
    return fio.raw(device, seconds, stop)
