"""A program that bench runs, and its output."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from zfstrace import processes
from zfstune.bench.load import BenchFailed

# between SIGTERM and SIGKILL
_TERM_S = 2.0


class Child:
    """Started by the constructor, ended with the block. Its output goes to a file or, with pipe,
    to process.stdout. Raises BenchFailed."""

    def __init__(self, argv: Sequence[str], *, pipe: bool = False) -> None:
        self.name = Path(argv[0]).name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self._output = None if pipe else tempfile.TemporaryFile()  # noqa: SIM115
        out = self._output or subprocess.PIPE
        try:
            self.process = processes.start(
                argv, out, self._errors, env=os.environ | {"LC_ALL": "C"}
            )
        except OSError as error:
            raise BenchFailed(
                f"{argv[0]} cannot be run: {error.strerror}", "use another program by --with"
            ) from None

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
        """Whether it has not ended yet; never waits."""
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """Signals the program and its children."""
        processes.signal_all(self.process, number)

    def output(self) -> str:
        """All that it has printed so far; not with pipe."""
        assert self._output
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def failure(self) -> BenchFailed:
        """The error of a program that failed: its status, and its last line on stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # a program closes its output before it ends
            self.process.wait(_TERM_S)
        how = processes.how_ended(self.process.returncode or 0)
        said = processes.last_line(self._errors)
        return BenchFailed(f"{self.name} ended with {how}{f': {said}' if said else ''}")

    def close(self) -> None:
        """Ends it, without waiting for a process that hangs in the kernel."""
        processes.end(self.process, _TERM_S)
        for file in (self.process.stdout, self._output, self._errors):
            if file:
                file.close()
