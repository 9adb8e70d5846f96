"""Blocks of load on a database under alternating settings, and what each cost. For databases.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from database_servers import Mariadb, Postgres, sectors_written

from labkit import Json, Tracer, progress, sh

POOL, DISK = "slow", "vdb"
SECTOR = 512


def fsyncs(rows: Sequence[Json], dataset: str | None) -> Json:
    """Of a dataset, or of the pool (None): how many, their kinds and latency, and what was lost."""
    for row in rows:
        if row["pool"] == POOL and row["dataset"] == dataset:
            return {
                "count": row["count"],
                "commits": row["commits"],
                "kinds": {name: n for name, n in row["kinds"].items() if n},
                "p50": row["latency"]["p50"],
                "p99": row["latency"]["p99"],
                "max": row["latency"]["max"],
                "lost": row["lost"],
                "zil": row["zil"],
            }
    return {"count": 0, "commits": 0, "kinds": {}, "p50": None, "p99": None, "max": None, "lost": 0}


def written() -> int:
    """Bytes that the pool's disk has been asked to write."""
    return sectors_written(DISK) * SECTOR


def settled(pg: Postgres | None = None) -> None:
    """Nothing of the block before is still to be written."""
    if pg:
        pg.sql("CHECKPOINT")
    sh(f"zpool sync {POOL}")


@contextmanager
def checkpoints(pg: Postgres, pause_s: float) -> Iterator[None]:
    """One after the other beside the body: their fsyncs of data compete with those of the WAL."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause_s):
            pg.sql("CHECKPOINT")

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def postgres_block(
    pg: Postgres,
    seconds: float,
    clients: int = 8,
    database: str = "postgres",
    options: str = "",
    checkpoint_s: float = 0,
    dataset: str = f"{POOL}/wal",
) -> Json:
    """From one checkpoint to the next, so that all that a transaction has caused to be written
    counts as well. dataset has the WAL."""
    settled(pg)
    disk, lsn = written(), pg.sql("SELECT pg_current_wal_lsn()")
    tracer = Tracer("fsync", POOL)
    if checkpoint_s:
        with checkpoints(pg, checkpoint_s):
            load = pg.bench(seconds, clients, database, options)
    else:
        load = pg.bench(seconds, clients, database, options)
    rows = tracer.rows()
    wal = pg.number(f"SELECT pg_current_wal_lsn() - '{lsn}'::pg_lsn")
    settled(pg)
    done = load["transactions"]
    return {
        **load,
        "fsync": fsyncs(rows, dataset),
        "wal_bytes": wal / done,
        "disk_bytes": (written() - disk) / done,
    }


def mariadb_block(server: Mariadb, seconds: float, database: str = "lab") -> Json:
    """disk_bytes counts what reached the disk until the pool was synced: pages that are dirty in
    the buffer pool then are not in it."""
    settled()
    disk = written()
    tracer = Tracer("fsync", POOL)
    load = server.bench(seconds, database=database)
    rows = tracer.rows()
    settled()
    done = max(1, load["transactions"])
    return {**load, "fsync": fsyncs(rows, None), "disk_bytes": (written() - disk) / done}


def alternate(
    name: str,
    settings: Mapping[str, Callable[[], None]],
    measure: Callable[[str], Json],
    rounds: int = 2,
) -> list[Json]:
    """Blocks in the order A B B A (A B C C B A), rounds times, each after its setting is made."""
    blocks = []
    for _ in range(rounds):
        for setting in (*settings, *reversed(list(settings))):
            settings[setting]()
            begun = time.monotonic()
            block = measure(setting)
            progress(
                f"{name} {setting}: {block['tps']:.1f} tps, {block['disk_bytes'] / 1024:.1f} KiB "
                f"each, {time.monotonic() - begun:.0f} s"
            )
            blocks.append({"setting": setting, **block})
    return blocks
