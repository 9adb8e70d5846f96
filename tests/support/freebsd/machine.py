"""Commands of zfstune in a root directory of FreeBSD's shape, on the stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.freebsd import standin
from support.freebsd.standin import ROOT, Table

FOLDERS = ("tracers", "tuner", "platform/freebsd")
RUN = ROOT / "tests/support/freebsd/run.py"
DTRACE = ROOT / "tests/support/freebsd/dtrace_standin.py"


class Machine:
    """A root directory, and commands that run in it. Root is whoever runs the tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for directory in ("etc", "boot/loader.conf.d", "dev", "var/db", "var/run"):
            (root / directory).mkdir(parents=True)
        self.table = Table(root / "table").host().write()
        self.libc = standin.build()
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in FOLDERS),
            "SYSCTL_STANDIN_TABLE": str(self.table.path),
            "ZFSTUNE_STATE_DIR": str(root / "var/db/zfstune"),
            "ZFSTUNE_RUN_DIR": str(root / "var/run/zfstune"),
            "COLUMNS": "98",
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        # -S: the standard library is enough
        python = (sys.executable, "-S")
        return subprocess.Popen(
            [
                *python,
                str(RUN),
                str(self.root),
                str(self.libc),
                *words,
            ],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, status: int = 0) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        assert process.returncode == status, err
        return out + err

    def with_dtrace(self) -> Machine:
        """Adds the stand-in for dtrace(1), with its modules loaded."""
        (self.root / "dev/dtrace").mkdir()
        (self.root / "dev/dtrace/dtrace").touch()
        (self.root / "bin").mkdir()
        (self.root / "bin/dtrace").symlink_to(DTRACE)
        self.environment["PATH"] = f"{self.root}/bin:{self.environment['PATH']}"
        self.environment["DTRACE_STANDIN"] = str(self.root)
        return self

    def file(self, name: str) -> list[str]:
        return (self.root / name).read_text().splitlines()
