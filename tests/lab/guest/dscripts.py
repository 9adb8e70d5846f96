"""A one-file D script as a scenario runs it: the variant for the guest's system."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

from labkit import FREEBSD, Json, commits, progress

SCRIPTS = Path("/zfstune/tracers/dtrace", "freebsd" if FREEBSD else "linux")


class Script:
    """A D script that runs; all its probes are enabled when the constructor returns."""

    def __init__(self, name: str, *args: str) -> None:
        progress(" ".join((name, *args)))
        self.out = Path(f"/tmp/dtrace-{time.monotonic_ns()}.out")
        self.err = self.out.with_suffix(".err")
        self.started = time.monotonic()
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen([str(SCRIPTS / name), *args], stdout=out, stderr=err)
        # the output of the clause for BEGIN, which is enabled last
        while not re.search("Tracing|trace_begin", self.out.read_text()):
            if self.process.poll() is not None or time.monotonic() > self.started + 180:
                self.process.kill()
                raise RuntimeError(f"{name} did not start: {self.err.read_text()}")
            time.sleep(0.1)
        self.attach_seconds = time.monotonic() - self.started
        self.before = commits()

    def stop(self) -> Json:
        kstat_commits = commits() - self.before
        time.sleep(0.5)
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)
        return {
            "status": self.process.returncode,
            "stdout": self.out.read_text(),
            "stderr": self.err.read_text(),
            "kstat_commits": kstat_commits,
            "attach_seconds": self.attach_seconds,
        }
