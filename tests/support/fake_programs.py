"""Fakes of fio and pg_test_fsync: they behave like the originals, and write nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from support.paths import DATA

BENCH = DATA / "bench"

FIO = """
import json, pathlib, sys, time
words = sys.argv[1:]
if words == ["--version"]:
    print("fio-3.39")
    raise SystemExit
pathlib.Path({log!r}).open("a").write(" ".join(words) + "\\n")
options = dict(word.lstrip("-").partition("=")[::2] for word in words)
if {fails!r}:
    print("note: something odd")
    print("fio: io_u error on file bench.0.0: No space left on device", file=sys.stderr)
    raise SystemExit(1)
time.sleep({seconds})
found = json.loads(pathlib.Path({data!r}).read_text())
job = found["jobs"][0]
job["sync"]["lat_ns"]["N"] = job["write"]["runtime"] * 2
print("fio: a note, which comes before")
print(json.dumps(found, indent=1))
"""

PG = """
import os, pathlib, signal, sys, time
if sys.argv[1:] == ["--version"]:
    print("pg_test_fsync (PostgreSQL) 17.11 (Debian 17.11-0+deb13u1)")
    raise SystemExit
file = pathlib.Path(sys.argv[sys.argv.index("-f") + 1])
file.write_text("x")
alarm = False
def on_alarm(*_):
    global alarm
    alarm = True
def on_end(*_):
    file.unlink()
    os._exit(1)
signal.signal(signal.SIGALRM, on_alarm)
signal.signal(signal.SIGINT, on_end)
signal.signal(signal.SIGTERM, on_end)
for line in pathlib.Path({data!r}).read_text().split("\\n")[:-1]:
    if not line.endswith("usecs/op"):
        print(line)
        continue
    print(line[:-len("%13.3f ops/sec  %6.0f usecs/op" % (0, 0))], end="", flush=True)
    alarm = False  # one that came before is forgotten, as there
    while not alarm:
        time.sleep(0.001)
    print(line[-len("%13.3f ops/sec  %6.0f usecs/op" % (0, 0)):])
file.unlink()
"""


def install(directory: Path, name: str, text: str) -> Path:
    """Writes an executable Python program."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def fio(directory: Path, *, fails: bool = False, seconds: float = 0.0) -> Path:
    """A fio that prints a recording; it logs its command lines to directory/fio.log."""
    data = BENCH / "fio-3.39-fdatasync.json"
    log = directory / "fio.log"
    text = FIO.format(log=str(log), fails=fails, seconds=seconds, data=str(data))
    return install(directory, "fio", text)


def pg_test_fsync(directory: Path) -> Path:
    """A pg_test_fsync that prints a recording, each test when a signal ends it."""
    text = PG.format(data=str(BENCH / "pg_test_fsync-17.txt"))
    return install(directory, "pg_test_fsync", text)
