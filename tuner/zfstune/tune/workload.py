"""The load of a session: a command that runs as long as the session."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

from zfstrace import files, processes
from zfstune.errors import NotPossible, RestoredError, UsageError

# A command that ends sooner does no work, and is not restarted.
QUICK_S = 1.0
# between SIGTERM and SIGKILL
TERM_S = 5.0
# the part of our environment for a command of another user
_KEPT = ("PATH", "LANG", "TERM", "TZ")
# bytes of output after which it is discarded
MOST_OUTPUT = 4 << 20


class WorkloadFailed(RestoredError):
    """The command of --workload ended with an error."""


class Workload:
    """Runs a command, as another user if one is named, and restarts it when it ends; without a
    shell unless asked. close() ends it and its children. Raises UsageError when it cannot be
    started."""

    def __init__(self, command: str, user: str | None, *, shell: bool = False) -> None:
        self._argv = ["/bin/sh", "-c", command] if shell else split(command)
        self._account = account(user) if user else None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self._process = self._start()
        self.runs = 1

    def _start(self) -> subprocess.Popen[bytes]:
        self._began = time.monotonic()
        who = self._account
        try:
            return processes.start(
                self._argv,
                self._output,
                self._output,
                user=who.pw_uid if who else None,
                group=who.pw_gid if who else None,
                extra_groups=os.getgrouplist(who.pw_name, who.pw_gid) if who else None,
                env=_environment(who) if who else None,
            )
        except PermissionError as error:
            raise UsageError(f"--workload: cannot run {self._argv[0]}: {error.strerror}") from None
        except OSError as error:
            raise UsageError(
                f"--workload: cannot run {self._argv[0]}: {error.strerror}",
                "name an installed program, or add --shell to run a shell command",
            ) from None

    def check(self) -> None:
        """Restarts the command if it has ended. Raises WorkloadFailed."""
        status = self._process.poll()
        if status is None:
            self._shorten()
            return
        if status:
            how, said = processes.how_ended(status), processes.last_line(self._output)
            raise WorkloadFailed(f"the workload ended with {how}{f': {said}' if said else ''}")
        if time.monotonic() - self._began < QUICK_S:
            raise WorkloadFailed("the workload ended at once: it must run for at least a second")
        try:
            self._process = self._start()
        except UsageError as error:
            # its program has gone since, or there is no room for a process
            raise WorkloadFailed(str(error), error.hint) from None
        self.runs += 1

    def _shorten(self) -> None:
        """Frees the output of a talkative command, which continues behind the hole."""
        fd = self._output.fileno()
        if os.fstat(fd).st_blocks * 512 > MOST_OUTPUT:
            os.ftruncate(fd, 0)

    def close(self) -> None:
        """Ends it and its children, without waiting for a process that hangs in the kernel."""
        processes.end(self._process, TERM_S)
        self._output.close()


def _environment(who: pwd.struct_passwd) -> dict[str, str]:
    """A small one: root's may have passwords and sockets."""
    kept = {n: v for n, v in os.environ.items() if n in _KEPT or n.startswith("LC_")}
    own = {"USER": who.pw_name, "LOGNAME": who.pw_name, "HOME": who.pw_dir, "SHELL": who.pw_shell}
    return kept | own


def split(command: str) -> list[str]:
    """The words of a command, split as by a shell. Raises UsageError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--workload: {error}", "check the quotes") from None
    if not words:
        raise UsageError("--workload: the command is empty", "name a program")
    return words


def account(user: str) -> pwd.struct_passwd:
    """The user named by --as. Raises UsageError, NotPossible."""
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise UsageError(f"--as: no user {user!r}", "see `getent passwd`") from None
    if os.geteuid() != 0 and found.pw_uid != os.geteuid():
        raise NotPossible(
            f"--as {user}: only root can run a command as another user", "run as root"
        )
    return found


def output_directory(path: Path) -> Path:
    """Creates the directory for the results of a session, where other users can neither write nor
    replace it. Raises UsageError."""
    try:
        files.require_private(path, create=True)
    except OSError as error:
        raise UsageError(
            f"--out {path}: {error.strerror}", "name a directory that only you can write into"
        ) from None
    return path
