"""A program that bench runs, with what it prints."""

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

# how long a program may take to end when it is asked to
_TERM_S = 2.0


class Child:
    """Started by the constructor, ended with the block. Its output goes to a file or, with pipe,
    into process.stdout. Raises BenchFailed."""

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
        """Whether it has not ended yet; never waits."""
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """To the program and all that it has started."""
        processes.signal_all(self.process, number)

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
        how = processes.how_ended(self.process.returncode or 0)
        said = processes.last_line(self._errors)
        return BenchFailed(f"{self.name} ended with {how}{f': {said}' if said else ''}")

    def close(self) -> None:
        """Ends it; what hangs in the kernel is not waited for."""
        processes.end(self.process, _TERM_S)
        for file in (self.process.stdout, self._output, self._errors):
            if file:
                file.close()
