"""zfstune's commands in forks of this process: to start Python and load zfstune takes seconds on an
emulated machine.

forked.py JSON: runs the commands of a JSON list, and prints a JSON list of what came of them; for
other users, and for jails.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from typing import BinaryIO, NoReturn

from labkit import Json
from zfstune import cli
from zfstune.__main__ import main as zfstune_main
from zfstune.tunables import catalogue

assert cli
catalogue.load()


def zfstune(*words: str, timeout_s: float = 120, **environment: str) -> Json:
    """Its status, None if it was killed after timeout_s, and its output."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            _command(words, environment, out, err)
        status = _wait(pid, timeout_s)
        out.seek(0)
        err.seek(0)
        said = {"stdout": out.read().decode(), "stderr": err.read().decode()}
    return {"command": " ".join(words), "status": status, **said}


def _command(
    words: tuple[str, ...], environment: dict[str, str], out: BinaryIO, err: BinaryIO
) -> NoReturn:
    status: object = 1
    try:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        os.environ.update(environment)
        sys.argv = ["zfstune", *words]
        try:
            status = zfstune_main()
        except SystemExit as end:
            status = end.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status if isinstance(status, int) else int(status is not None))


def _wait(pid: int, timeout_s: float) -> int | None:
    end = time.monotonic() + timeout_s
    while not (found := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return None  # not waited for: it may hang in the kernel
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(found[1])


if __name__ == "__main__":
    print(json.dumps([zfstune(*words) for words in json.loads(sys.argv[1])]))
