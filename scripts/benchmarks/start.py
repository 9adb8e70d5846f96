#!/usr/bin/env python3
"""Measures how long the one file of `make dist` takes to start; writes docs/measurements/start.md.

usage: scripts/benchmarks/start.py
"""

import datetime
import marshal
import os
import platform
import resource
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from dist import importer, pack  # noqa: E402

PAGE = ROOT / "docs/measurements/start.md"
COMMANDS = (
    *("--version", "trace fsync -h", "doctor", "trace fsync tank --duration 1s"),
    *("diagnose --duration 1s", "params list", "status", "bench tank"),
)
ROUNDS = 15

HEAD = """\
# How long the one file takes to start

Written by `make bench-start` on {date}; run it to have the numbers of your machine.
Host: {cores} cores of {cpu}, Python {python}, ZFS {zfs}.

CPU time of the whole process, the least of {rounds} rounds, in which the three alternate. The
checkout has its byte code on disk. *Another Python* is one for which the file has no byte code:
here, the same file without any. Where ZFS is not loaded, most commands end when they see that.

| command | checkout | one file | ratio | another Python | ratio |
|---|---:|---:|---:|---:|---:|
"""
SIZE = """
The file has {whole:,} bytes. {spare:,} of them are byte code of other commands, which makes room
for what is added.
"""


def cpu_ms(command: list[str]) -> float:
    """The time that one run spends on a CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    null = subprocess.DEVNULL
    subprocess.run(command, stdout=null, stderr=null, stdin=null, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def without_byte_code(path: Path, made: Path) -> None:
    """Copies a file, without the modules' byte code."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            if entry.filename != importer.CODE:
                new.writestr(entry, old.read(entry), compresslevel=9)


def spare(path: Path) -> int:
    """Bytes of byte code that no command here loads."""
    with zipfile.ZipFile(path) as archive:
        code = marshal.loads(zlib.decompress(archive.read(importer.CODE)))
    return sum(len(data) for name, data in code.items() if pack.priority(name) > pack.NEEDED)


def host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown CPU"


def main() -> None:
    """Measures and writes the page."""
    (packed,) = ROOT.glob(f"dist/*-linux-{platform.machine()}.pyz")
    head = HEAD.format(
        date=datetime.date.today(),
        cores=os.cpu_count(),
        cpu=host_cpu(),
        python=platform.python_version(),
        zfs="loaded" if Path("/sys/module/zfs").exists() else "not loaded",
        rounds=ROUNDS,
    )
    rows = ""
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder, packed.name)
        without_byte_code(packed, bare)
        programs = (ROOT / "bin/zfstune", packed, bare)
        for words in COMMANDS:
            times = [
                [cpu_ms([sys.executable, "-I", str(one), *words.split()]) for one in programs]
                for _ in range(ROUNDS)
            ]
            checkout, one, other = map(min, zip(*times, strict=True))
            rows += f"| `{words}` | {checkout:.0f} ms | {one:.0f} ms | **{one / checkout:.2f}** "
            rows += f"| {other:.0f} ms | {other / checkout:.2f} |\n"
            print(rows.splitlines()[-1])
    size = SIZE.format(whole=packed.stat().st_size, spare=spare(packed))
    PAGE.write_text(head + rows + size, encoding="utf-8")


if __name__ == "__main__":
    main()
