"""What zfstune can do, each once, on a pool under load: for every way of installing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from labkit import Json, Tracer, busy, commits, progress, run, sync_writes, values

SYNCS = 137
OUT = Path("/tmp/everything")


def traced(command: Sequence[str], pool: str, n: int = SYNCS) -> Json:
    """What it counts of n fsyncs."""
    tracer = Tracer("fsync", pool, command=command)
    before = commits()
    sync_writes(f"/{pool}/file", n)
    counted = commits() - before
    rows = tracer.rows()
    return {
        "summaries": [row for row in rows if row["type"] == "fsync_summary"],
        "kstat_commits": counted,
        "syncs": n,
    }


def everything(command: Sequence[str], pool: str, *, tune: bool = True) -> Json:
    """Runs each, a session of `tune` if asked; afterwards all parameters are as before, if it did
    what it promises."""
    OUT.mkdir(exist_ok=True)
    before = values()
    results: Json = {"trace": traced(command, pool)}
    for key, words in {
        "version": ["--version"],
        "doctor": ["doctor", "--json"],
        "params": ["params", "list", "--json"],
        "advise": ["advise", pool, "--json"],
        "set": ["params", "set", "zfs_txg_timeout=1"],
    }.items():
        progress(key)
        results[key] = run([*command, *words])
    results["in_force"] = changed(before)
    picture, session = OUT / "flame.svg", OUT / "session"
    with busy(f"/{pool}"):
        for key, words in {
            "diagnose": ["diagnose", pool, "--duration", "10s", "--json"],
            "flame": ["flame", "--pool", pool, "--duration", "5s", "-o", str(picture)],
            # no parameter that makes txgs longer: each change waits for three of them
            "tune": [
                *("tune", pool, "--observe", "--yes", "--staging", "--json", "--out", str(session)),
                *("--budget", "200s", "--block", "3s"),
                *("--parameters", "zfs_delay_scale,zfs_commit_timeout_pct"),
            ],
        }.items():
            if key != "tune" or tune:
                progress(key)
                results[key] = run([*command, *words], timeout=900)
    results["picture"] = picture.read_text()[:200] if picture.exists() else ""
    results["session"] = sorted(path.name for path in session.glob("*"))
    results["status"] = run([*command, "status", "--json"])
    results["revert"] = run([*command, "revert"])
    results["after"] = changed(before)
    return results


def changed(before: dict[str, str]) -> dict[str, str]:
    """The parameters that differ from before, with their values."""
    return {name: value for name, value in values().items() if before.get(name) != value}
