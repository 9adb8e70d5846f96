"""A whole `zfstune tune` on a fake module, for a Python that has nothing but its standard library.

usage: python3 -I -S tests/support/session_alone.py SOURCES DIRECTORY STOP ARGUMENT...

Real are the command line, the search, its study, the verdict, changes with journal and supervisor,
and the report. Fake are the module, the clock and what a block measures: depths that are small make
fsyncs fast. SOURCES: folders of packages with colons between, or the one file. STOP: the trial that
Ctrl-C interrupts; 0 for none. Exits with the command's status.
"""

from __future__ import annotations

import importlib
import math
import os
import random
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), *sys.argv[1].split(":")]
if sys.argv[1].endswith(".pyz"):  # as scripts/dist/main.py does
    sys.meta_path.insert(0, importlib.import_module("importer").Importer(sys.argv[1], sys.argv[1]))

from support.fake_host import FakeStop  # noqa: E402
from support.fake_module import ModuleHost  # noqa: E402
from support.samples import txg_row  # noqa: E402

from zfstune import cli  # noqa: E402
from zfstune.experiment.blocks import Block  # noqa: E402
from zfstune.experiment.runner import Experiment, Record, Stopped, Values  # noqa: E402
from zfstune.term.units import SECOND  # noqa: E402
from zfstune.tune import command, flame, plan, production, session  # noqa: E402

DEPTH = "zfs_vdev_async_write_max_active"
LATENCIES = ("fsync.p50", "fsync.p99", "fsync.p999", "fsync.mean")


def main(directory: str, stop_at: str, *words: str) -> int:
    root = Path(directory)
    host = ModuleHost(root, create=not (root / "parameters").exists())
    host.txgs = [txg_row(1)]
    os.environ["ZFSTUNE_STATE_DIR"] = str(host.where.state)
    os.environ["ZFSTUNE_RUN_DIR"] = str(host.where.run)
    noise = random.Random(int(stop_at))

    class Blocks(Experiment):
        """Blocks that measure the values in force at once."""

        def block(
            self,
            phase: str,
            trial: int | None,
            label: str,
            values: Values,
            *,
            wait_s: float | None = None,
        ) -> Record:
            if trial and trial == int(stop_at):
                raise Stopped
            self.apply(values)
            assert isinstance(self.stop, FakeStop)
            self.stop.clock += 20 * SECOND
            cost = (host.params.read(DEPTH) or 0) / 10
            metrics = {name: 1e8 * cost * math.exp(noise.gauss(0, 0.05)) for name in LATENCIES} | {
                "write.throughput": 3e7 * math.exp(noise.gauss(0, 0.01))
            }
            block = Block(10.0, 1000, metrics, txgs=tuple(map(txg_row, range(8))))
            number = len(self.records) + 1
            record = Record(number, phase, trial, label, self.now_s(), 10.0, block)
            self.records.append(record)
            return record

    fakes: list[tuple[object, str, object]] = [
        (command, "open_host", lambda: host),
        (command, "prepare", lambda *_, **__: None),
        (command, "Stop", lambda _: FakeStop()),
        (session, "Experiment", Blocks),
        (session.TuningRun, "_warm_up", lambda *_: None),
        (flame, "record", lambda *_: None),
        (plan, "scanning", lambda _: None),
        (production, "signs", list),
    ]
    for where, name, fake in fakes:
        setattr(where, name, fake)
    return cli.main(["tune", "tank", "--observe", "--yes", "--seed", "1", *words])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[2:]))
