"""Scenario: PostgreSQL and MariaDB on datasets: their fsyncs counted, settings compared one at a
time, clusters set up badly and mended by the words of `zfstune advise`, a session of `zfstune
tune`, and what a crash of the guest takes from them. /share has the packages; SCENE,... runs only
these.

Disks: vdb, whose limits make txgs compete with fsyncs, for the pool; vdc for what must outlive a
crash.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import database_advice
import database_crash
from database_blocks import POOL, alternate, fsyncs, mariadb_block, postgres_block
from database_servers import Mariadb, Postgres, install, pgbench, running

from labkit import OUT, PARAMETERS, Json, Tracer, finish, make_pool, progress, run, sh

SO_FAR = Path("/var/results.json")
SECONDS = 6
# One connection's worth of comfort: nothing in the background but what is measured, and buffers so
# small that pages leave them.
SETTINGS = {
    "shared_buffers": "16MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "max_wal_size": "4GB",
}
SCALE = 5


def create(dataset: str, **properties: str) -> str:
    """A dataset; its mount point."""
    words = " ".join(f"-o {name}={value}" for name, value in properties.items())
    sh(f"zfs create {words} {dataset}")
    return f"/{dataset}"


def zfs_set(name: str, value: str, dataset: str) -> None:
    sh(f"zfs set {name}={value} {dataset}")


def cluster() -> Postgres:
    """Data and WAL on datasets of their own, as they are for the scenes that do not say
    otherwise."""
    create(f"{POOL}/data", recordsize="8K")
    create(f"{POOL}/wal")
    pg = Postgres(f"/{POOL}/data/main", f"/{POOL}/wal/main")
    pg.create(SETTINGS)
    pg.start()
    pg.fill(SCALE)
    return pg


# --- counts


def counts(results: Json, pg: Postgres) -> None:
    """Each fsync that PostgreSQL counts is one of the trace: of the WAL by pg_stat_wal, of data
    files by the checkpointer's rows in pg_stat_io."""
    synced = "SELECT wal_sync FROM pg_stat_wal"
    files = "SELECT sum(fsyncs) FROM pg_stat_io WHERE backend_type = 'checkpointer'"
    pg.sql("CHECKPOINT")
    time.sleep(2)
    before = pg.number(synced), pg.number(files)
    tracer = Tracer("fsync", POOL)
    load = pg.bench(10)
    time.sleep(3)  # the server reports its counts once a second
    after_load = pg.number(synced)
    pg.sql("CHECKPOINT")
    time.sleep(3)
    rows = tracer.rows()
    results["counts"] = {
        "load": load,
        "wal_sync": after_load - before[0],
        "wal_sync_with_checkpoint": pg.number(synced) - before[0],
        "file_fsyncs": pg.number(files) - before[1],
        "wal": fsyncs(rows, f"{POOL}/wal"),
        "data": fsyncs(rows, f"{POOL}/data"),
    }


# --- one setting at a time


def knobs(results: Json, pg: Postgres) -> None:
    found: Json = {}
    results["knobs"] = found
    recordsize(found, pg)
    save(results)

    def by_alter(name: str, *values: str) -> None:
        settings = {value: partial(pg.alter, name, value) for value in values}
        found[name] = alternate(name, settings, lambda _: postgres_block(pg, SECONDS))
        pg.alter(name, values[0])

    def by_property(name: str, dataset: str, *values: str, rounds: int = 2) -> None:
        settings = {value: partial(zfs_set, name, value, dataset) for value in values}
        found[name] = alternate(name, settings, lambda _: postgres_block(pg, SECONDS), rounds)
        sh(f"zfs inherit {name} {dataset}")

    def by_session(name: str, options: str, *values: str, rounds: int = 2) -> None:
        found[name] = alternate(
            name,
            dict.fromkeys(values, lambda: None),
            lambda value: postgres_block(pg, SECONDS, options=options.format(value)),
            rounds,
        )

    by_alter("full_page_writes", "on", "off")
    by_property("logbias", f"{POOL}/wal", "latency", "throughput")
    by_property("sync", f"{POOL}/wal", "standard", "disabled", rounds=1)
    by_session("synchronous_commit", "-c synchronous_commit={}", "on", "off", rounds=1)
    by_session("commit_delay", "-c commit_siblings=2 -c commit_delay={}", "0", "1000", rounds=1)
    save(results)
    wal_files(found, pg)
    save(results)
    wal_place(found, pg)


def recordsize(found: Json, pg: Postgres) -> None:
    """The same tables in tablespaces on datasets that differ only in recordsize, or in what the ARC
    keeps of them."""
    kinds = {
        "8K": {"recordsize": "8K"},
        "16K": {"recordsize": "16K"},
        "32K": {"recordsize": "32K"},
        "128K": {"recordsize": "128K"},
        "128K-lz4": {"recordsize": "128K", "compression": "lz4"},
        "metadata": {"recordsize": "8K", "primarycache": "metadata"},
    }
    for kind, properties in kinds.items():
        progress(f"fill {kind}")
        name = kind.lower().replace("-", "")
        place = create(f"{POOL}/t{name}", **properties)
        sh(f"chown postgres:postgres {place}")
        pg.sql(f"CREATE TABLESPACE t{name} LOCATION '{place}'")
        pg.sql(f"CREATE DATABASE d{name} TABLESPACE t{name}")
        pg.fill(SCALE, f"d{name}")

    def measure(kind: str) -> Json:
        name = {"all": "8k"}.get(kind, kind.lower().replace("-", ""))
        return postgres_block(pg, SECONDS, database=f"d{name}")

    nothing = dict.fromkeys(("8K", "16K", "32K", "128K", "128K-lz4"), lambda: None)
    found["recordsize"] = alternate("recordsize", nothing, measure, rounds=1)
    nothing = dict.fromkeys(("all", "metadata"), lambda: None)
    found["primarycache"] = alternate("primarycache", nothing, measure, rounds=1)
    for kind in kinds:
        name = kind.lower().replace("-", "")
        pg.sql(f"DROP DATABASE d{name}")
        pg.sql(f"DROP TABLESPACE t{name}")
        sh(f"zfs destroy {POOL}/t{name}")


def wal_files(found: Json, pg: Postgres) -> None:
    """wal_init_zero and wal_recycle, with so little WAL kept that files come and go."""
    pg.alter("max_wal_size", "'64MB'")
    pg.alter("min_wal_size", "'32MB'")

    def both(value: str) -> None:
        pg.alter("wal_init_zero", value)
        pg.alter("wal_recycle", value)

    found["wal_files"] = alternate(
        "wal_init_zero and wal_recycle",
        {"on": lambda: both("on"), "off": lambda: both("off")},
        lambda _: postgres_block(pg, SECONDS + 4, checkpoint_s=3),
        rounds=1,
    )
    both("on")
    pg.alter("max_wal_size", "'4GB'")
    pg.alter("min_wal_size", "'80MB'")


def wal_place(found: Json, pg: Postgres) -> None:
    """The WAL on its own dataset, or on that of the data, whose fsyncs at checkpoints then go
    through the same log."""
    places = {"own dataset": f"/{POOL}/wal/main", "with the data": f"/{POOL}/data/wal"}
    link = Path(pg.home) / "pg_wal"
    assert link.is_symlink()

    def move(where: str) -> None:
        old, new = str(link.readlink()), places[where]
        if old != new:
            pg.stop()
            shutil.rmtree(new, ignore_errors=True)
            sh(f"cp -a {old} {new}; rm {link}; ln -s {new} {link}")
            pg.start()

    def measure(where: str) -> Json:
        dataset = f"{POOL}/wal" if where == "own dataset" else f"{POOL}/data"
        return postgres_block(pg, SECONDS, checkpoint_s=1, dataset=dataset)

    moves = {where: partial(move, where) for where in places}
    found["wal_place"] = alternate("WAL", moves, measure)
    move("own dataset")


# --- MariaDB

MARIADB = {
    "innodb_buffer_pool_size": "32M",
    "innodb_log_file_size": "64M",
    "innodb_flush_log_at_trx_commit": "1",
}


def mariadb(results: Json) -> None:
    """Files of the tables in `wide` are on a dataset of their own, which has larger records."""
    found: Json = {}
    results["mariadb"] = found
    create(f"{POOL}/my", recordsize="16K")
    server = Mariadb(f"/{POOL}/my/data")
    server.create(MARIADB)
    create(f"{POOL}/wide", recordsize="128K", mountpoint=f"{server.home}/wide")
    sh(f"chown mysql:mysql {server.home}/wide")
    server.start()
    server.sql("CREATE DATABASE lab")
    for database in ("lab", "wide"):
        progress(f"sysbench prepare {database}")
        server.sysbench(database, "prepare")
    before = server.statuses("%fsync%")
    found["counts"] = {**mariadb_block(server, SECONDS), "before": before}
    found["counts"]["after"] = server.statuses("%fsync%")

    def set_global(name: str, value: str) -> None:
        server.sql(f"SET GLOBAL {name} = {value}")

    def restart(name: str, value: str) -> None:
        server.stop()
        server.configure({name: value})
        server.start()

    flush = "innodb_flush_log_at_trx_commit"
    found[flush] = alternate(
        flush,
        {value: partial(set_global, flush, value) for value in ("1", "2")},
        lambda _: mariadb_block(server, SECONDS),
        rounds=1,
    )
    set_global(flush, "1")
    found["innodb_doublewrite"] = alternate(
        "innodb_doublewrite",
        {value: partial(restart, "innodb_doublewrite", value) for value in ("ON", "OFF")},
        lambda _: mariadb_block(server, SECONDS + 4),
        rounds=1,
    )
    restart("innodb_doublewrite", "ON")
    databases = {"16K": "lab", "128K": "wide"}
    found["recordsize"] = alternate(
        "recordsize",
        dict.fromkeys(databases, lambda: None),
        lambda record: mariadb_block(server, SECONDS + 4, databases[record]),
        rounds=1,
    )
    server.stop()


# --- zfstune tune

# A third of what the disk takes: with more, a block has too few fsyncs to judge. In a thread, which
# ends with the program.
BULK = "--name=bulk --rw=write --bs=1M --size=1500M --rate=10M --thread"
BULK += " --time_based --runtime=7200"


# Room for the reads that wait for more writes, since txgs become shorter: with the default limit a
# session proved its gain here and could not be sure of them (2026-11-28).
SESSION = ("--budget", "30m", "--block", "10s", "--limit", "read.p99<=+70%")


def tune(results: Json, pg: Postgres, options: Sequence[str]) -> None:
    """A whole session on the load of pgbench, beside a bulk load that fills the pool with dirty
    data; then its values in pairs with those of before, whatever it ended with."""
    found: Json = {}
    results["tune"] = found
    create(f"{POOL}/bulk", recordsize="1M")
    fio = ["fio", "--output=/dev/null", "--fallocate=none", f"--directory=/{POOL}/bulk"]
    bulk = subprocess.Popen([*fio, *BULK.split()])
    try:
        out = Path("/tmp/tune-pg")
        load = f"{pgbench(pg.port, 8)} -T 600"
        words = [POOL, "--workload", load, "--as", "postgres", "--seed", "1", "--out", str(out)]
        command = ["zfstune", "tune", *words, *options, "--yes"]
        progress(" ".join(command))
        before = values()
        done = run([*command, "--json"], timeout=3600)
        found |= {"command": command, "status": done["status"], "stderr": done["stderr"]}
        if not done["stdout"]:
            raise RuntimeError(done["stderr"])
        session = json.loads(done["stdout"])
        shutil.copytree(out, OUT / out.name, dirs_exist_ok=True)
        found |= {"session": session, "in_force": changed(before)}
        found["revert"] = run(["zfstune", "revert"])
        found["after_revert"] = changed(before)
        found["values"] = best(session)
        if found["values"]:
            found["blocks"] = with_values(pg, found["values"])
        found["left"] = changed(before)
    finally:
        bulk.kill()
        bulk.wait()


def best(session: Json) -> dict[str, int]:
    """The values of the winner, or else of the trial that looked best; none was tried: {}."""
    if session["winner"]:
        return dict(session["winner"])
    tried = [trial for trial in session["trials"] if trial["change"] is not None]
    one = min(tried, key=lambda trial: trial["change"], default=None)
    base = session["baseline"]
    return {n: v for n, v in one["values"].items() if v != base.get(n)} if one else {}


def with_values(pg: Postgres, wanted: dict[str, int]) -> list[Json]:
    """Pairs: what the session found is looked at again, with the words that a user has for it."""
    words = [f"{name}={value}" for name, value in wanted.items()]

    def to(command: list[str]) -> None:
        done = run(["zfstune", *command])
        if done["status"]:
            raise RuntimeError(f"{command}: {done['stderr']}")
        for _ in range(2):  # txgs that were open before
            sh(f"zpool sync {POOL}")

    return alternate(
        "tune",
        {"before": lambda: to(["revert"]), "found": lambda: to(["params", "set", *words])},
        lambda _: postgres_block(pg, 15),
        rounds=1,
    )


def values() -> dict[str, str]:
    """All parameters that can be written."""
    files = (path for path in PARAMETERS.iterdir() if path.stat().st_mode & 0o200)
    return {path.name: path.read_text().strip() for path in sorted(files)}


def changed(before: dict[str, str]) -> dict[str, list[str]]:
    now = values()
    return {name: [before[name], now[name]] for name in before if before[name] != now[name]}


# --- main


def save(results: Json) -> None:
    """Where the next boot finds it, and where a person does if a later scene fails."""
    with SO_FAR.open("w") as file:
        json.dump(results, file)
        file.flush()
        os.fsync(file.fileno())
    shutil.copy(SO_FAR, OUT / "so-far.json")


def scenes(results: Json, wanted: list[str]) -> None:
    """One that fails is reported, and the others still run."""
    pg = cluster() if set(ON_CLUSTER) & set(wanted) else None
    for name in wanted:
        progress(f"scene {name}")
        try:
            if name in ALONE:
                ALONE[name](results)
            elif pg:
                ON_CLUSTER[name](results, pg)
        except (OSError, RuntimeError, subprocess.SubprocessError):
            progress(traceback.format_exc())
            results.setdefault("failed", {})[name] = traceback.format_exc()
        save(results)
    if pg:
        pg.stop()


def main() -> None:
    boot = int(os.environ.get("ZFSTUNE_LAB_BOOT", "1"))
    wanted = sys.argv[1].split(",") if sys.argv[1:] else list(SCENES)
    results: Json = {}
    if boot == 1:
        results |= {"packages": install(), "started_by_installing": running(), "failed": {}}
        results["date"] = time.strftime("%Y-%m-%d", time.gmtime())
        make_pool(POOL, "/dev/vdb")
        save(results)
        if "crash" in wanted:
            database_crash.before()
    else:
        results = json.loads(SO_FAR.read_text())
        database_crash.after(results, boot)
        save(results)
        if boot <= database_crash.ROUNDS:
            database_crash.again(results)
        database_crash.remove()
    scenes(results, [name for name in wanted if name != "crash"])
    finish(results)


ON_CLUSTER: dict[str, Callable[[Json, Postgres], None]] = {
    "counts": counts,
    "knobs": knobs,
    "tune": lambda results, pg: tune(results, pg, sys.argv[2:] or SESSION),
}
ALONE: dict[str, Callable[[Json], None]] = {
    "advised": lambda results: database_advice.postgres(results, SETTINGS, SCALE),
    "mariadb": mariadb,
    "advised_mariadb": lambda results: database_advice.mariadb(results, MARIADB),
}
SCENES = ("crash", *ON_CLUSTER, *ALONE)

if __name__ == "__main__":
    main()
