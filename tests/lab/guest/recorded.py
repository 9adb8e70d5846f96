"""What a flight recorder has in its file of causes that are over; diagnosing.py has what a person
sees who asks meanwhile."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from diagnosing import Runs, said
from exporting import PATIENT_S, run, until

from labkit import Json, progress
from zfstune.errors import NotPossible
from zfstune.record.control import ask

DIRECTORY = Path("/run/zfstune-exporter")
# The record of all recorders, each of which goes on with that of the one before
FILE = DIRECTORY / "recorded.jsonl.gz"
# The end of the first txg starts a diagnosis, also of a pool that is well
RECORD = ("zfstune", "record", "run", "--budget", "100%", "--trigger", "txg.open>1ms")


class Recorded(Runs):
    """Nobody asks: a recorder runs for the time of each cause, and answer() is for when all is
    over."""

    def watch(self, meanwhile: Callable[[], None], seconds: int, prefix: Sequence[str]) -> Json:
        with Path("/out/recorder.err").open("a") as err:
            recorder = subprocess.Popen(RECORD, stderr=err)
        try:
            until("its views", lambda: dead(recorder) or status().get("off") == {})
            before = rings(recorder.pid)
            until(
                "its diagnosis",
                lambda: dead(recorder) or rings(recorder.pid) > before or ended(),
            )
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            meanwhile()
            until("the end of its diagnosis", lambda: dead(recorder) or ended())
        finally:
            recorder.terminate()
            recorder.wait(PATIENT_S)
        return {"at": at}

    def answer(self) -> None:
        """Asks the file for the time of each run."""
        for one in self.found:
            progress(f"{one['scenario']} at {one['at']}")
            done = run(["zfstune", "diagnose", "--from", str(FILE), "--at", one["at"], "--json"])
            one.update(said(done["status"], done["stdout"], done["stderr"]))


def dead(recorder: subprocess.Popen[bytes]) -> bool:
    """False. Raises RuntimeError for a recorder that has ended."""
    if recorder.poll() is not None:
        raise RuntimeError(f"the recorder ended with status {recorder.returncode}")
    return False


def status() -> Json:
    """What `zfstune record status` shows, {} while no recorder answers; for a Python that has it
    loaded it costs next to nothing."""
    try:
        return ask(DIRECTORY / "record.sock", {"do": "status"}).body
    except NotPossible:
        return {}


def ended() -> bool:
    """Whether the recorder has made its diagnosis. Raises RuntimeError."""
    found = status().get("diagnoses") or {}
    if found.get("failed"):
        raise RuntimeError(f"no diagnosis: {found['error']}")
    return bool(found.get("done"))


def rings(pid: int) -> int:
    """How many ring buffers a process reads. A diagnosis reads that of its fsyncs from the moment
    on from which it counts."""
    count = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += str(fd.readlink()) == "anon_inode:[eventpoll]"
    return count
