"""What a crash of the guest takes from databases: each confirmed transaction is noted where it
outlives the crash, then all are looked for. For databases.py.

The guest is reset while it runs (sysrq b): all that was only in its memory is gone. Its disk keeps
what it was sent, which after a power failure holds only for what was flushed.
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from database_blocks import POOL
from database_servers import PG, Mariadb, Postgres, as_user, copy, pgbench

from labkit import Json, progress, sh

NOTES = "/dev/vdc"
PAGE, AREA = 4096, 4 << 20
RECORD = struct.Struct("<Qd")
PER_PAGE = PAGE // RECORD.size
LOAD_S = 15
FEW, PATIENCE_S = 100, 180
ROUNDS = 3

BASE = Path("/var/tmp/base")
PG_SETTINGS = {
    "shared_buffers": "16MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "checkpoint_timeout": "30s",
}


@dataclass(frozen=True)
class Case:
    """A server with a setting; properties are of its dataset."""

    name: str
    kind: str
    settings: dict[str, str]
    properties: str = ""


CASES = (
    Case("postgresql", "postgresql", {}),
    Case("full_page_writes=off", "postgresql", {"full_page_writes": "off"}),
    Case("synchronous_commit=off", "postgresql", {"synchronous_commit": "off"}),
    Case("fsync=off", "postgresql", {"fsync": "off"}),
    Case("sync=disabled", "postgresql", {}, "-o sync=disabled"),
    Case("mariadb", "mariadb", {}),
    Case("innodb_doublewrite=OFF", "mariadb", {"innodb_doublewrite": "OFF"}),
    Case("innodb_flush_log_at_trx_commit=2", "mariadb", {"innodb_flush_log_at_trx_commit": "2"}),
)

# By place, in this boot.
CONFIRMED: dict[int, int] = {}


def dataset(place: int) -> str:
    return f"{POOL}/crash{place}"


def server(place: int) -> Postgres | Mariadb:
    home = f"/{dataset(place)}/main"
    if CASES[place].kind == "postgresql":
        return Postgres(home, port=5500 + place)
    return Mariadb(home, socket=f"/tmp/crash{place}.sock")


def prepare() -> None:
    """A server for each case, its files copied from one of its kind."""
    progress("crash: create the servers")
    BASE.mkdir(exist_ok=True)
    BASE.chmod(0o755)
    pg, maria = Postgres(str(BASE / "pg")), Mariadb(str(BASE / "maria"))
    pg.create(PG_SETTINGS, "--data-checksums")
    pg.start()
    pg.sql("CREATE TABLE t (n bigint PRIMARY KEY)")
    pg.fill(1)
    pg.stop()
    maria.create({"innodb_buffer_pool_size": "32M", "innodb_log_file_size": "32M"})
    maria.start()
    maria.sql("CREATE DATABASE lab; CREATE TABLE lab.t (n BIGINT PRIMARY KEY) ENGINE=InnoDB")
    maria.stop()
    for place, case in enumerate(CASES):
        record = "8K" if case.kind == "postgresql" else "16K"
        sh(f"zfs create -o recordsize={record} {case.properties} {dataset(place)}")
        one = server(place)
        copy(str(BASE / ("pg" if case.kind == "postgresql" else "maria")), one.home)
        if isinstance(one, Mariadb):
            copy(maria.conf, one.conf)
            one.configure({"datadir": one.home, "socket": one.socket})
        one.configure(case.settings)


class Notes:
    """What was confirmed, on a raw disk: each number with its time, in pages that are written
    synchronously."""

    def __init__(self, place: int) -> None:
        self.at = place * AREA
        self.fd = os.open(NOTES, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
        self.page = mmap.mmap(-1, PAGE)  # O_DIRECT wants an aligned one

    def add(self, number: int) -> None:
        slot = number % PER_PAGE
        self.page[slot * RECORD.size : (slot + 1) * RECORD.size] = RECORD.pack(
            number, time.monotonic()
        )
        os.pwrite(self.fd, self.page, self.at + number // PER_PAGE * PAGE)

    def read(self) -> dict[int, float]:
        with Path(NOTES).open("rb") as data:
            data.seek(self.at)
            return {n: at for n, at in RECORD.iter_unpack(data.read(AREA)) if n}


def client(place: int, first: int) -> None:
    """Inserts numbers, each in a transaction of its own, and notes what is confirmed; until the
    crash."""
    case, one, notes = CASES[place], server(place), Notes(place)
    if isinstance(one, Postgres):
        command = f"stdbuf -oL psql -h /tmp -p {one.port} -qAtX -d postgres"
        words = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "sh", "-c"]
        words += [command]
    else:
        words = ["mariadb", "--no-defaults", f"--socket={one.socket}", "-u", "root", "-BNn", "lab"]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd="/tmp"
    )
    assert process.stdin and process.stdout
    number = first
    while True:
        process.stdin.write(b"INSERT INTO t VALUES (%d) RETURNING n;\n" % number)
        answer = process.stdout.readline().strip()
        if answer != b"%d" % number:
            raise RuntimeError(f"{case.name}: {answer!r} instead of {number}")
        notes.add(number)
        number += 1
        CONFIRMED[place] = number - first


def load_and_crash(firsts: dict[int, int]) -> None:
    """firsts are the first numbers by the places of the servers that run. Does not return."""
    sh(f"dd if=/dev/zero of={NOTES} bs=1M count={len(CASES) * AREA >> 20} oflag=direct")
    sh("sync")  # what is not in the pool has to outlive the crash
    for place, first in firsts.items():
        threading.Thread(target=client, args=(place, first), daemon=True).start()
    paged = sorted({0, 1} & set(firsts))
    for place in paged:  # pages that may be torn
        one = server(place)
        assert isinstance(one, Postgres)
        # so little that the others have processors, too
        command = f"{pgbench(one.port, 1)} -R 20 -T 3600"
        threading.Thread(target=as_user, args=("postgres", command, 3600), daemon=True).start()
    begun = time.monotonic()
    while time.monotonic() < begun + LOAD_S or (
        min(CONFIRMED.get(place, 0) for place in firsts) < FEW
        and time.monotonic() < begun + PATIENCE_S
    ):
        time.sleep(3)
        for place in paged:
            one = server(place)
            assert isinstance(one, Postgres)
            threading.Thread(target=one.sql, args=("CHECKPOINT",), daemon=True).start()
    progress("crash")
    time.sleep(1)  # the line is on its way
    Path("/proc/sysrq-trigger").write_text("b")
    time.sleep(60)
    raise RuntimeError("the guest did not crash")


def look(place: int) -> Json:
    """After the crash: what was confirmed and is there, what was confirmed and is not."""
    case, one, noted = CASES[place], server(place), Notes(place).read()
    try:
        one.start()
    except RuntimeError as error:
        return {"name": case.name, "recovered": False, "error": str(error)[-600:]}
    table = "t" if isinstance(one, Postgres) else "lab.t"
    there = {int(line) for line in one.sql(f"SELECT n FROM {table}").split()}
    lost = sorted(set(noted) - there)
    last = max(noted, default=0)
    found = {
        "name": case.name,
        "recovered": True,
        "confirmed": len(noted),
        "lost": len(lost),
        "lost_s": noted[last] - noted[lost[0]] if lost else 0,
        # what is lost is the end, not a gap
        "only_the_end": not lost or lost == list(range(lost[0], last + 1)),
        "next": max(last, *there, 0) + 1,
    }
    one.stop()
    if isinstance(one, Postgres):
        checked = as_user("postgres", f"{PG}/pg_checksums --check -D {one.home} 2>&1 || true")
        found["bad_pages"] = int(checked.partition("Bad checksums:")[2].split()[0])
    return found


def before() -> None:
    """The first boot; does not return."""
    prepare()
    start_and_crash(dict.fromkeys(range(len(CASES)), 1))


def start_and_crash(firsts: dict[int, int]) -> None:
    for place in firsts:
        server(place).start()
    load_and_crash(firsts)


def after(results: Json, boot: int) -> None:
    """After a crash. Crashes again until there were ROUNDS of it."""
    sh(f"zpool import -f {POOL}")
    progress(f"after crash {boot - 1}")
    rounds = results.setdefault("crash", [])
    ran = {place for place, row in enumerate(rounds[-1]) if row["recovered"]} if rounds else None
    found = [
        look(place) if ran is None or place in ran else rounds[-1][place]
        for place, _ in enumerate(CASES)
    ]
    for one in found:
        progress(f"  {one}")
    rounds.append(found)


def again(results: Json) -> None:
    """Does not return."""
    rows = results["crash"][-1]
    start_and_crash({place: row["next"] for place, row in enumerate(rows) if row["recovered"]})


def remove() -> None:
    """The disk belongs to the next scene."""
    for place, _ in enumerate(CASES):
        sh(f"zfs destroy {dataset(place)}")
