"""Scenario: pools with defects, made on purpose, and what `zfstune advise` says of them; with the
raw outputs of zpool(8) and zfs(8), which are samples for the tests without a kernel: `jq .raw
results.json > tests/data/FLAVOUR/advise.json`.

/dev/vdb and /dev/vdc have physical sectors of 4 KiB, the others of 512 bytes.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from labkit import Json, finish, progress, run, sh, suspended_pool

PARAMETERS = Path("/sys/module/zfs/parameters")
CONFIG = Path("/tmp/conf")
RAW = {
    "zpool_get": "zpool get -H -p -o name,property,value,source all {pool}",
    "zpool_ashift": "zpool get -H -p -o name,property,value,source ashift {pool} all-vdevs",
    "zpool_status": "zpool status {pool}",
    "zpool_status_paths": "zpool status -P {pool}",
    "zpool_status_json": "zpool status -j {pool}",
    "zfs_get": "zfs get -H -p -o name,property,value,source -r -t filesystem,volume all {pool}",
    "lsblk": "lsblk -b -o NAME,PHY-SEC,LOG-SEC,ROTA,TYPE",
    "zdb": "zdb -C {pool} | grep -E 'ashift|path'",
}


def advise(*words: str) -> Json:
    """Status, stderr and findings."""
    started = time.monotonic()
    done = run(["zfstune", "advise", *words, "--json"])
    text = done.pop("stdout")
    return {**done, "seconds": time.monotonic() - started, **(json.loads(text) if text else {})}


def state(pool: str) -> str:
    """All that a command could change: properties without what time changes, and the history."""
    values = sh(f"zfs get -H -r -o name,property,value,source -s local,received all {pool}")
    history = sh(f"zpool history -i {pool}")
    parameters = "".join(path.read_text() for path in sorted(PARAMETERS.iterdir()))
    return values + history + parameters


def record(results: Json, key: str, pool: str, *words: str) -> None:
    """advise on a pool, its text, the raw outputs, and whether anything was changed."""
    progress(key)
    commands = {name: command.format(pool=pool) for name, command in RAW.items()}
    results["raw"][key] = {
        name: {"command": command, **run(["sh", "-c", command])}
        for name, command in commands.items()
    }
    before = state(pool)
    results[key] = advise(pool, *words)
    results[key]["text"] = run(["zfstune", "advise", pool, *words])
    results[key]["unchanged"] = state(pool) == before


def clean(results: Json) -> None:
    sh(
        "zpool create -f -o ashift=12 -O compression=lz4 -O atime=off -O xattr=sa "
        "tank mirror vdb vdc"
    )
    record(results, "clean", "tank")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    results["nobody"] = run([*nobody, "zfstune", "advise", "tank", "--json"])
    sh("zpool destroy tank")


def defects(results: Json) -> None:
    sh("zpool create -f -o ashift=9 -O compression=lz4 tank vdb log vdd cache vde")
    sh("zfs create -o sync=disabled tank/nosync; zfs create tank/nosync/below")
    sh("zfs create -o logbias=throughput tank/throughput")
    sh("zfs create -o compression=off -o recordsize=128K tank/db")
    sh("zfs create -o checksum=off -o primarycache=none tank/none")
    sh("zfs create -o dedup=on -o copies=2 -o xattr=dir -o redundant_metadata=none 'tank/a b'")
    sh("zfs create -V 64M -o volblocksize=4K tank/vol")
    record(results, "defects", "tank")
    results["one"] = advise("tank/nosync")
    results["with_blank"] = advise("tank/a b")
    databases(results)
    bad_input(results)
    sh("zpool destroy tank")


def databases(results: Json) -> None:
    progress("configurations")
    CONFIG.mkdir(exist_ok=True)
    Path("/tank/db/pg").mkdir()
    (CONFIG / "postgresql.conf").write_text(
        "data_directory = '/tank/db/pg'\ninclude_dir 'conf.d'\nshared_buffers = 64MB\n"
    )
    (CONFIG / "conf.d").mkdir(exist_ok=True)
    (CONFIG / "conf.d/a.conf").write_text("wal_init_zero = off\n")
    Path("/tank/db/pg/postgresql.auto.conf").write_text("wal_recycle = 'off'\n")
    (CONFIG / "my.cnf").write_text(
        "[mysqld]\ndatadir = /tank/db\ninnodb_flush_method = O_DIRECT\ninnodb_flush_neighbors=1\n"
    )
    results["postgresql"] = advise("--config", str(CONFIG / "postgresql.conf"))
    results["mysql"] = advise("--config", str(CONFIG / "my.cnf"))
    results["for"] = advise("tank/db", "--for", "postgresql")


def bad_input(results: Json) -> None:
    progress("bad input")
    (CONFIG / "broken.cnf").write_text("# ours\n[mysqld\n")
    cases = {
        "unknown pool": ["tnak"],
        "unknown dataset": ["tank/bd"],
        "snapshot": ["tank@now"],
        "configuration absent": ["--config", "/nowhere/my.cnf"],
        "configuration broken": ["--config", str(CONFIG / "broken.cnf")],
    }
    results["bad"] = {name: run(["zfstune", "advise", *words]) for name, words in cases.items()}


def special(results: Json) -> None:
    sh("zpool create -f -o ashift=12 -O compression=lz4 side mirror vdb vdc special vdd")
    sh("zfs create -o special_small_blocks=128K -o recordsize=128K side/all")
    record(results, "special", "side")
    sh("zpool destroy side")
    sh("zpool create -f -o ashift=12 -O compression=lz4 side raidz vdb vdc vdd")
    sh("zfs create -V 64M -o volblocksize=8K side/vol")
    sh("zfs create -o copies=2 -o sync=always -o atime=on -o relatime=off side/much")
    record(results, "raidz", "side")
    sh("zpool destroy side")
    sh("zpool create -f -O compression=lz4 side vdb vdd")
    record(results, "mixed", "side")
    sh("zpool destroy side")


def parameters(results: Json) -> None:
    """A parameter changed by the user, one changed by zfstune, and one that can lose data."""
    progress("parameters")
    sh("zpool create -f -o ashift=12 -O compression=lz4 -O atime=off tank mirror vdb vdc")
    (PARAMETERS / "zfs_txg_timeout").write_text("9")
    (PARAMETERS / "zil_nocacheflush").write_text("1")
    sh("zfstune params set zfs_delay_scale=400us")
    results["parameters"] = advise("tank")
    (PARAMETERS / "zfs_txg_timeout").write_text("5")
    (PARAMETERS / "zil_nocacheflush").write_text("0")
    sh("zfstune revert; zpool destroy tank")


def suspended(results: Json) -> None:
    """A pool whose only disk fails for a while. Last, since it may not come back."""
    progress("suspended")
    with suspended_pool("/dev/vdf") as state:
        results["suspended_state"] = state
        results["suspended"] = advise("frail")


def main() -> None:
    results: Json = {"raw": {}}
    clean(results)
    defects(results)
    special(results)
    parameters(results)
    suspended(results)
    finish(results)


main()
