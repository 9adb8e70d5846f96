"""docs/measurements/databases.md, from runs of the scenario "databases". Prints it:
`python3 scripts/pages/databases.py RESULTS...`, of which each may have some of the scenes."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Json = dict[str, Any]

_HEAD = """\
# Databases on ZFS: tables

Written by `make test-databases`. [The page on databases](../databases.md) says what follows.

* {date}: {packages}; kernel {uname}, ZFS {zfs}
* {guests} (QEMU without KVM) with 2 processors and 4 GiB on {machine}
* the pool is one disk limited to 30 MB/s and 600 writes/s; ashift=12, compression=off, atime=off

Blocks of one setting alternate with those of the other in one guest, in the order A B B A. A rate
is the median of its blocks. A change is against the first line of a table: the geometric mean of
its pairs and, in brackets, the smallest and the largest of them; where these lie on both sides of
0, the blocks show no difference. fsyncs are those for each transaction; p50 and p99 are those of
`zfstune trace fsync`, of the dataset that has the log. "disk" is what the pool wrote for each
transaction, from one checkpoint and `zpool sync` to the next, metadata and logs included."""

# Of each table of one setting: its key, title, and what stands above it.
KNOBS = (
    ("recordsize", "recordsize of the data", "The same tables of pgbench in five tablespaces."),
    (
        "primarycache",
        "primarycache of the data (recordsize=8K)",
        "75 MB of tables, 16 MB of shared_buffers.",
    ),
    (
        "full_page_writes",
        "full_page_writes (recordsize=8K)",
        "A block begins with a checkpoint.",
    ),
    ("wal_place", "The WAL on its own dataset or with the data", "A checkpoint every second."),
    ("logbias", "logbias of the WAL, without a log device", ""),
    (
        "wal_files",
        "wal_init_zero and wal_recycle",
        "max_wal_size = 64MB, a checkpoint every three seconds.",
    ),
    ("synchronous_commit", "synchronous_commit: off loses transactions in a crash", ""),
    ("sync", "sync of the WAL: disabled loses transactions in a crash", ""),
    ("commit_delay", "commit_delay in us, with commit_siblings = 2", ""),
)
MARIADB_KNOBS = (
    ("recordsize", "recordsize of the data (innodb_page_size is 16K)", ""),
    ("innodb_doublewrite", "innodb_doublewrite (recordsize=16K)", ""),
    (
        "innodb_flush_log_at_trx_commit",
        "innodb_flush_log_at_trx_commit: 2 loses transactions in a crash",
        "",
    ),
)


def pairs(blocks: Sequence[Json], value: Callable[[Json], float | None]) -> dict[str, list[float]]:
    """By setting: the ratio to the first setting in each pass over all settings."""
    settings = list(dict.fromkeys(block["setting"] for block in blocks))
    ratios: dict[str, list[float]] = {setting: [] for setting in settings}
    for begin in range(0, len(blocks), len(settings)):
        now = {block["setting"]: value(block) for block in blocks[begin : begin + len(settings)]}
        first = now.get(settings[0])
        for setting, found in now.items():
            if first and found:
                ratios[setting].append(found / first)
    return ratios


def change(ratios: Sequence[float]) -> str:
    """As percent, with the range of the pairs."""
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    if mean >= 3:
        return f"x {mean:.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    low, high = (f"{(one - 1) * 100:+.0f}" for one in (min(ratios), max(ratios)))
    return f"{(mean - 1) * 100:+.0f} % ({low} to {high})"


def table(blocks: Sequence[Json]) -> list[str]:
    """A line for each setting."""
    settings = list(dict.fromkeys(block["setting"] for block in blocks))
    with_wal = any("wal_bytes" in block for block in blocks)
    wal = (" WAL |", "---:|") if with_wal else ("", "")
    lines = [f"| setting | blocks | tps | change | fsyncs | p50 | p99 | change |{wal[0]} disk |"]
    lines += [f"|---|---:|---:|---|---:|---:|---:|---|{wal[1]}---:|"]
    tps = pairs(blocks, lambda block: block["tps"])
    p99 = pairs(blocks, lambda block: block["fsync"]["p99"])
    for setting in settings:
        mine = [block for block in blocks if block["setting"] == setting]
        first = setting == settings[0]
        cells = [
            setting,
            str(len(mine)),
            f"{median(block['tps'] for block in mine):.0f}",
            "" if first else change(tps[setting]),
            f"{median(block['fsync']['count'] / block['transactions'] for block in mine):.2f}",
            _ms([block["fsync"]["p50"] for block in mine]),
            _ms([block["fsync"]["p99"] for block in mine]),
            "" if first else change(p99[setting]),
            *([_kib([block["wal_bytes"] for block in mine])] if with_wal else []),
            _kib([block["disk_bytes"] for block in mine]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ms(times: Sequence[float | None]) -> str:
    known = [one for one in times if one is not None]
    return f"{median(known) / 1e6:.1f} ms" if known else ""


def _kib(sizes: Sequence[float]) -> str:
    return f"{median(sizes) / 1024:.1f} KiB"


def page(results: Sequence[Json], machine: str) -> str:
    """The whole page; results that have the same scene: the last one counts."""
    all_: Json = {}
    for one in results:
        all_ |= one
        all_["packages"] = {**all_.get("packages", {}), **one.get("packages", {})}
    packages = ", ".join(f"{name} {version}" for name, version in sorted(all_["packages"].items()))
    lines = [
        _HEAD.format(
            date=all_["date"],
            packages=packages,
            uname=all_["uname"],
            zfs=all_["zfs"],
            machine=machine,
            guests="an emulated guest" if len(results) == 1 else f"{len(results)} emulated guests",
        )
    ]
    for scene, write in SCENES.items():
        if scene in all_:
            lines += ["", *write(all_[scene])]
    return "".join(f"{line}\n" for text in lines for line in _wrapped(text))


def _wrapped(text: str) -> list[str]:
    """Prose in lines that fit; tables, commands and headings as they are."""
    if text[:1] in ("|", "#", " ", "") or "\n" in text:
        return text.split("\n")
    rest = "  " if text.startswith("* ") else ""
    return textwrap.wrap(
        text, 100, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _counts(found: Json) -> Iterator[str]:
    wal, data = found["wal"], found["data"]
    yield "## PostgreSQL: is every fsync counted?"
    yield ""
    yield (
        f"`pgbench -N -c 8 -T 10` and a checkpoint, {found['load']['transactions']} transactions. "
        "Beside its fdatasyncs the WAL's dataset has fsyncs of new files and of their directory, "
        "which pg_stat_wal does not count, and that of the data fsyncs of pg_control, pg_xact and "
        "directories, which pg_stat_io does not."
    )
    yield ""
    yield "| | PostgreSQL | `zfstune trace fsync` | lost |"
    yield "|---|---:|---:|---:|"
    yield (
        f"| WAL: wal_sync of pg_stat_wal, fdatasync | {found['wal_sync_with_checkpoint']} | "
        f"{wal['kinds'].get('fdatasync', 0)} | {wal['lost']} |"
    )
    yield (
        f"| data: fsyncs of pg_stat_io by the checkpointer, fsync | {found['file_fsyncs']} | "
        f"{data['kinds'].get('fsync', 0)} | {data['lost']} |"
    )


def _knobs(found: Json) -> Iterator[str]:
    yield "## PostgreSQL: one setting at a time"
    yield ""
    yield "`pgbench -N -c 8`; WAL and data on datasets of their own, unless a table says otherwise."
    yield from _tables(found, KNOBS)


def _mariadb(found: Json) -> Iterator[str]:
    yield "## MariaDB: one setting at a time"
    yield ""
    yield "`sysbench oltp_write_only --threads=8`, two tables of 20,000 rows, all files in one"
    yield "dataset, unless a table says otherwise; fsyncs are those of the pool."
    yield from _tables(found, MARIADB_KNOBS)


def _tables(found: Json, knobs: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    for key, title, above in knobs:
        if key in found:
            yield from ("", f"### {title}", "")
            if above:
                yield from (above, "")
            yield from table(found[key])


def _advised(title: str, tool: str) -> Callable[[Json], Iterator[str]]:
    def write(found: Json) -> Iterator[str]:
        yield f"## {title}"
        yield ""
        yield (
            "Made with recordsize=128K, compression=off, atime=on, logbias=throughput, "
            f"primarycache=none and sync=disabled, {tool}. `zfstune advise --config` found: "
            f"{', '.join(f'`{rule}`' for rule in found['before'])}."
        )
        yield ""
        yield "Run as printed:"
        yield ""
        yield from (f"    {command}" for command in found["commands"])
        yield ""
        settings = ", ".join(f"{name} = {value}" for name, value in found["settings"].items())
        yield f"Set by hand, as the findings say: {settings}."
        yield ""
        rates = ", ".join(f"{block['tps']:.0f}" for block in found["bad"])
        yield f"As found, without durability: {rates} tps in two blocks."
        yield ""
        if "blocks" in found:
            after = ", ".join(f"`{rule}`" for rule in found["after"]) or "nothing"
            yield (
                f"Tables were then filled again. What `zfstune advise` found afterwards: {after}. "
                "With durability restored, and with all advice followed:"
            )
            yield ""
            yield from table(found["blocks"])
        else:
            yield "With durability restored, and with all advice followed: not measured."
        rows = [
            ("as found", found.get("bench_bad")),
            ("durable only", found.get("bench_durable")),
            ("as advised", found.get("bench_advised")),
        ]
        if any(row for _, row in rows):
            yield ""
            yield "`zfstune bench DATASET --test fdatasync,committers-8 --duration 3s`:"
            yield ""
            yield "| | test | per second | the device alone would allow |"
            yield "|---|---|---:|---:|"
            for name, tests in rows:
                for test in tests or ():
                    limit = test["limit_per_s"]
                    cells = (name, test["test"], f"{test['per_s']:.0f}")
                    shown = f"{limit:.0f}" if limit else "no fsync reached it"
                    yield f"| {' | '.join(cells)} | {shown} |"

    return write


def _tune(found: Json) -> Iterator[str]:
    yield "## `zfstune tune` under pgbench and a bulk load"
    yield ""
    yield f"    {shlex.join(found['command'])}"
    yield ""
    if "session" not in found:
        yield "It ended with an error:"
        yield ""
        said = found["stderr"].partition("\nzfstune: error: ")[2].splitlines()
        yield from (f"    {line}" for line in said if line)
        return
    session = found["session"]
    verdict = session["verdict"]
    kind = (
        f"the verdict {verdict['kind']} ({_interval(verdict)} in {verdict['pairs']} pairs)"
        if verdict
        else "no verdict"
    )
    blocks, trials = len(session["blocks"]), len(session["trials"])
    yield (
        f"It took {session['seconds']:.0f} s, measured {blocks} blocks and tried {trials} sets of "
        f"values, and ended with {kind}: status {found['status']}, "
        f"{'values in force' if session['in_force'] else 'nothing changed'}. "
        + (f"The session said: {session['note']}." if session["note"] else "")
    )
    if session["limits"]:
        limits = (f"{one['text']} {one['state']} ({_interval(one)})" for one in session["limits"])
        yield ""
        yield f"Its limits: {', '.join(limits)}."
    tried = [trial for trial in session["trials"] if trial["change"] is not None]
    if tried:
        yield ""
    for trial in tried:
        values = " ".join(f"{name}={value}" for name, value in trial["values"].items())
        note = f"; {trial['note']}" if trial["note"] else ""
        count = "1 pair" if trial["pairs"] == 1 else f"{trial['pairs']} pairs"
        yield f"* {values}: {trial['change'] * 100:+.0f} % in {count}{note}"
    if session["more"]:
        yield ""
        yield f"Its advice: {session['more']}."
    if "blocks" in found:
        yield ""
        values = ", ".join(f"{name}={value}" for name, value in found["values"].items())
        which = "The values it proved" if session["in_force"] else "The values it looked at last"
        yield f"{which}, {values}, set by `zfstune params set` in turn with those of before:"
        yield ""
        yield from table(found["blocks"])


def _interval(one: Json) -> str:
    """As percent; null where nothing bounds it."""
    change, low, high = (
        "?" if one[key] is None else f"{one[key] * 100:+.0f}" for key in ("change", "low", "high")
    )
    return f"{change} %, {low} to {high}"


def _crash(found: Sequence[Sequence[Json]]) -> Iterator[str]:
    yield "## What a crash takes"
    yield ""
    yield (
        f"Eight servers on datasets of their own, each with one client that inserts a number in a "
        f"transaction of its own and notes what was confirmed on another disk; the guest is reset "
        f"in the midst of it (sysrq b), {len(found)} times. Checkpoints run on the first two. This "
        "is a crash of the host: a power failure also empties caches of disks without a flush."
    )
    yield ""
    yield "| server | confirmed | lost | of the last | recovers | bad checksums of pages |"
    yield "|---|---:|---:|---:|---|---:|"
    for rows in zip(*found, strict=True):
        done = [row for row in rows if row["recovered"]]
        lost = [row["lost_s"] for row in done]
        torn = [row["bad_pages"] for row in done if "bad_pages" in row]
        cells = [
            rows[0]["name"],
            ", ".join(f"{row['confirmed']:,}" for row in done),
            ", ".join(f"{row['lost']:,}" for row in done),
            ", ".join(f"{one:.1f} s" for one in lost) if any(lost) else "",
            f"{len(done)} of {len(rows)}",
            ", ".join(map(str, torn)),
        ]
        yield f"| {' | '.join(cells)} |"


SCENES: dict[str, Callable[[Any], Iterator[str]]] = {
    "counts": _counts,
    "crash": _crash,
    "knobs": _knobs,
    "advised_postgresql": _advised("A PostgreSQL set up badly", "and fsync = off"),
    "tune": _tune,
    "mariadb": _mariadb,
    "advised_mariadb": _advised("A MariaDB set up badly", "innodb_flush_log_at_trx_commit = 0"),
}


def machine() -> str:
    """The host of the guest, as its kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{os.cpu_count()} shared CPUs ({line.partition(':')[2].strip()})"
    return f"{os.cpu_count()} shared CPUs"


if __name__ == "__main__":
    given = [json.loads(Path(path).read_text()) for path in sys.argv[1:]]
    print(page(given, machine()), end="")
