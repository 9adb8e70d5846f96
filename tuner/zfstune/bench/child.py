"""A program that bench runs: the leader of a process group of its own, which ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from zfstune.bench.load import BenchFailed

_TERM_S = 2.0
# After an error programs may tell a lot.
_MOST_SAID = 2000


class Child:
    """Started by the constructor, ended with the block. Its output goes to a file, or into a
    pipe that is out. Raises BenchFailed."""

    def __init__(self, argv: Sequence[str], *, pipe: bool = False) -> None:
        self.name = Path(argv[0]).name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self._output = None if pipe else tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self._output or subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
                env=os.environ | {"LC_ALL": "C"},
            )
        except OSError as error:
            raise BenchFailed(f"{argv[0]} cannot be run: {error.strerror}, see --with") from None

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def running(self) -> bool:
        return self.process.poll() is None

    def signal(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signum)

    def output(self) -> str:
        """What it has written to the file."""
        assert self._output
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def failure(self) -> BenchFailed:
        """It ended with an error: how, and the last thing that it said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # its output has ended before it did
            self.process.wait(_TERM_S)
        status = self.process.returncode or 0
        how = f"signal {-status}" if status < 0 else f"status {status}"
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _MOST_SAID))
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return BenchFailed(f"{self.name} ended with {how}{f': {said[:200]}' if said else ''}")

    def close(self) -> None:
        """Ends it; what hangs in the kernel is not waited for."""
        for signum in (signal.SIGTERM, signal.SIGKILL):
            self.signal(signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_TERM_S)
                break
        for file in (self.process.stdout, self._output, self._errors):
            if file:
                file.close()
