"""Databases set up badly on purpose, and what the words of `zfstune advise` make of them. For
databases.py.

Each is measured as found, then with only its durability restored, then with all advice followed:
the two durable states alternate, since what sync=disabled is worth says nothing about the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from database_blocks import POOL, alternate, mariadb_block, postgres_block
from database_servers import Mariadb, Postgres, advise

from labkit import Json, progress, run, sh

BAD = "-o recordsize=128K -o compression=off -o atime=on -o relatime=off -o logbias=throughput"
BAD += " -o primarycache=none -o sync=disabled"
DURABLE = {"sync-disabled", "postgresql-fsync-off", "innodb-durability"}
SECONDS = 8


def rules(found: Json, dataset: str, config: str) -> list[str]:
    """The rules that were found for a dataset or the configuration."""
    about = (dataset, config)
    return [one["rule"] for one in found["findings"] if set(about) & set(one["where"])]


def follow(found: Json, dataset: str, only: set[str] | None = None) -> list[str]:
    """Runs the commands of the findings on a dataset: all of them, or those of some rules."""
    done = []
    for one in found["findings"]:
        if dataset in one["where"] and (only is None or one["rule"] in only):
            # those of other datasets with the same finding are not ours
            for command in (line for line in one["commands"] if line.split()[-1] == dataset):
                sh(command)
                done.append(command)
    return done


def settings_of(found: Json, config: str) -> dict[str, str]:
    """What the findings that do not lower durability say to set in the configuration."""
    wanted = {}
    for one in found["findings"]:
        if not one["lowers_durability"] and one["how"] and config in one["how"]:
            for part in re.findall(r"(\w+) = (\w+)", one["how"].split(f" in {config}")[0]):
                wanted[part[0]] = part[1]
    return wanted


def bench(dataset: str) -> list[Json]:
    words = ["--test", "fdatasync,committers-8", "--duration", "3s", "--json"]
    done = run(["zfstune", "bench", dataset, *words], timeout=300)
    lines = [json.loads(line) for line in done["stdout"].splitlines()]
    names = ("test", "tool", "per_s", "limit_per_s", "lost")
    kept = [{name: line.get(name) for name in names} for line in lines]
    for line, row in zip(lines, kept, strict=True):
        row["commits"] = line["fsync"]["commits"] if line.get("fsync") else None
        row["zil"] = line["fsync"]["zil"] if line.get("fsync") else None
    if not kept:
        raise RuntimeError(done["stderr"])
    return [{**row, "stderr": done["stderr"]} for row in kept]


# --- PostgreSQL


def postgres(results: Json, settings: dict[str, str], scale: int) -> None:
    """One cluster is mended wholly, its twin only as far as durability goes."""
    found: Json = {}
    results["advised_postgresql"] = found
    twins = {}
    for port, name in ((5441, "bad"), (5442, "twin")):
        progress(f"advise: create {name}")
        sh(f"zfs create {BAD} {POOL}/{name}")
        pg = Postgres(f"/{POOL}/{name}/main", port=port)
        pg.create({**settings, "fsync": "off"})
        pg.start()
        pg.fill(scale)
        twins[name] = pg
    pg, twin = twins["bad"], twins["twin"]
    config = f"{pg.home}/postgresql.conf"
    dataset = f"{POOL}/bad"
    found["bench_bad"] = bench(dataset)
    found["bad"] = [postgres_block(pg, SECONDS, dataset=dataset) for _ in range(2)]
    said = advise(POOL, "--config", config)
    found["before"] = rules(said, dataset, config)

    twin_said = advise(POOL, "--config", f"{twin.home}/postgresql.conf")
    found["durable_commands"] = follow(twin_said, f"{POOL}/twin", DURABLE)
    twin.alter("fsync", "on")
    found["bench_durable"] = bench(f"{POOL}/twin")

    found["commands"] = follow(said, dataset)
    wanted = settings_of(said, config)
    found["settings"] = wanted
    pg.stop()
    pg.configure(wanted)
    if "wal-with-data" in found["before"]:
        sh(f"zfs create {POOL}/bad_wal")
        where = f"/{POOL}/bad_wal/pg_wal"
        sh(f"mv {pg.home}/pg_wal {where}; ln -s {where} {pg.home}/pg_wal")
    pg.start()
    pg.fill(scale)  # files of before keep their records
    found["bench_advised"] = bench(dataset)
    said = advise(POOL, "--config", config)
    found["after"] = rules(said, dataset, config)
    found["in_force"] = {name: pg.sql(f"SHOW {name}") for name in wanted}

    servers = {"durable only": (twin, f"{POOL}/twin"), "as advised": (pg, f"{POOL}/bad_wal")}

    def measure(name: str) -> Json:
        server, wal = servers[name]
        return postgres_block(server, SECONDS, dataset=wal)

    nothing: dict[str, Callable[[], None]] = dict.fromkeys(servers, lambda: None)
    found["blocks"] = alternate("advice", nothing, measure, rounds=1)
    for one in twins.values():
        one.stop()


# --- MariaDB


def mariadb(results: Json, settings: dict[str, str]) -> None:
    found: Json = {}
    results["advised_mariadb"] = found
    twins = {}
    for name in ("mbad", "mtwin"):
        progress(f"advise: create {name}")
        sh(f"zfs create {BAD} {POOL}/{name}")
        server = Mariadb(f"/{POOL}/{name}/data", f"/tmp/{name}.sock")
        server.create({**settings, "innodb_flush_log_at_trx_commit": "0"})
        server.start()
        server.sql("CREATE DATABASE lab")
        server.sysbench("lab", "prepare")
        twins[name] = server
    server, twin = twins["mbad"], twins["mtwin"]
    dataset, config = f"{POOL}/mbad", server.conf
    found["bad"] = [mariadb_block(server, SECONDS) for _ in range(2)]
    said = advise(POOL, "--config", config, "--for", "mysql")
    found["before"] = rules(said, dataset, config)
    twin_said = advise(POOL, "--config", twin.conf, "--for", "mysql")
    found["durable_commands"] = follow(twin_said, f"{POOL}/mtwin", DURABLE)
    twin.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    found["commands"] = follow(said, dataset)
    wanted = settings_of(said, config)
    found["settings"] = wanted
    server.stop()
    server.configure(wanted)
    server.start()
    server.sql("DROP DATABASE lab; CREATE DATABASE lab")
    server.sysbench("lab", "prepare")
    said = advise(POOL, "--config", config, "--for", "mysql")
    found["after"] = rules(said, dataset, config)
    servers = {"durable only": twin, "as advised": server}
    nothing: dict[str, Callable[[], None]] = dict.fromkeys(servers, lambda: None)
    found["blocks"] = alternate(
        "advice", nothing, lambda name: mariadb_block(servers[name], SECONDS), rounds=1
    )
    for one in twins.values():
        one.stop()
