"""fsyncstack.d as `zfstune flame` runs it on FreeBSD, here in its Linux variant."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from labkit import Json, Tracer, commits, progress, run, sync_writes

ROOT = Path("/zfstune")
sys.path[:0] = [str(ROOT / part) for part in ("tracers", "platform/freebsd", "tests")]

from support.freebsd import linux_probes  # noqa: E402

from zfs_freebsd.dtrace import process  # noqa: E402
from zfs_freebsd.dtrace.stacks import ScriptedStacks  # noqa: E402
from zfstrace.recording import StackOptions  # noqa: E402

process.OPTIONS = linux_probes.OPTIONS


def session(
    results: Json, name: str, kind: str, pool: str | None, load: Callable[[], None]
) -> None:
    """Records the load, while `zfstune trace fsync` runs."""
    progress(f"session {name}")
    os.environ["ZFSTUNE_DTRACE_DIR"] = str(ROOT / "tracers/dtrace/linux")
    tracer = Tracer("fsync")
    stacks = ScriptedStacks(StackOptions(kind, "fsync", pool=pool))
    lines: list[str] = []
    end = stacks._dtrace.finish

    def finish() -> list[str]:
        lines.extend(end())
        return lines

    stacks._dtrace.finish = finish  # type: ignore[method-assign]
    before = commits()
    load()
    kstat_commits = commits() - before
    time.sleep(0.5)
    found = stacks.finish()
    stacks.close()
    results[f"session {name}"] = {
        "kind": found.stacks.kind,
        "unit": found.stacks.unit,
        "counts": found.stacks.counts,
        "losses": asdict(found.losses),
        "lines": lines,
        "kstat_commits": kstat_commits,
        "rows": tracer.rows(),
    }


def slow() -> None:
    """23 fsyncs, each with a cache flush of 40 ms."""
    sync_writes("/slow/file", 23)


def both_pools() -> None:
    """31 fsyncs on one pool and 7 on the other, at once."""
    script = "import labkit; labkit.sync_writes('/tank/db/other', 31)"
    other = subprocess.Popen(["python3", "-c", script], cwd=Path(__file__).parent)
    sync_writes("/slow/file", 7)
    other.wait()


def convert(results: Json, text: str) -> None:
    """What the script printed, through the command to a picture."""
    Path("/tmp/fsyncstack.out").write_text(text)
    done = run(["zfstune", "flame", "convert", "/tmp/fsyncstack.out", "-o", "/out/fsyncstack.svg"])
    results["convert"] = done | {"svg": Path("/out/fsyncstack.svg").read_text()[:100_000]}


def refused(results: Json) -> None:
    """No such script: the one line that a user sees."""
    os.environ["ZFSTUNE_DTRACE_DIR"] = "/nowhere"
    try:
        ScriptedStacks(StackOptions("off-cpu", "fsync"))
    except Exception as error:
        results["no script"] = f"{type(error).__name__}: {error}"
