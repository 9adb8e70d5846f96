"""Where the journal is; nothing but that, since every command asks at its start."""

# ruff: noqa: PTH100, PTH112  (pathlib is slow to load)

from __future__ import annotations

import os
import sys

FILE = "journal"
# hier(7): FreeBSD has /var/db for that, and may get a /var/lib or /run by some port
_FREEBSD = sys.platform.startswith("freebsd")
_LOOK_S = 1.0
_STATE = "/var/db/zfstune" if _FREEBSD else "/var/lib/zfstune"


def state_directory() -> str:
    """Where the journal is on disk; ZFSTUNE_STATE_DIR names another place."""
    return os.path.abspath(os.environ.get("ZFSTUNE_STATE_DIR") or _STATE)


def run_directory() -> str:
    """Where the journal is in memory, with the lock; ZFSTUNE_RUN_DIR names another place."""
    run = "/run" if os.path.isdir("/run") and not _FREEBSD else "/var/run"
    return os.path.abspath(os.environ.get("ZFSTUNE_RUN_DIR") or f"{run}/zfstune")


def journal_exists() -> bool:
    """As far as this process may see. A state directory that does not answer has none: what is
    in force is in the run directory as well."""
    if os.path.lexists(f"{run_directory()}/{FILE}"):
        return True
    from zfstune.changes import bounded

    try:
        return bounded.call(_LOOK_S, os.path.lexists, f"{state_directory()}/{FILE}")
    except OSError:
        return False
