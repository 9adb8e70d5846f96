"""Where the journal and incident files are. Cheap, because every command asks at its start."""

# ruff: noqa: PTH100, PTH112  (pathlib is slow to load)

from __future__ import annotations

import os
import sys

FILE = "journal"
# hier(7): FreeBSD uses /var/db; a port may create /var/lib or /run
_FREEBSD = sys.platform.startswith("freebsd")
_LOOK_S = 1.0
_STATE = "/var/db/zfstune" if _FREEBSD else "/var/lib/zfstune"
# of the flight recorder
INCIDENTS = "/var/run/zfstune-exporter" if _FREEBSD else "/run/zfstune-exporter"


def state_directory() -> str:
    """The directory of the journal on disk; ZFSTUNE_STATE_DIR overrides it."""
    return os.path.abspath(os.environ.get("ZFSTUNE_STATE_DIR") or _STATE)


def run_directory() -> str:
    """The directory of the journal in memory, and the lock; ZFSTUNE_RUN_DIR overrides it."""
    run = "/run" if os.path.isdir("/run") and not _FREEBSD else "/var/run"
    return os.path.abspath(os.environ.get("ZFSTUNE_RUN_DIR") or f"{run}/zfstune")


def journal_exists() -> bool:
    """Whether this process can see a journal. A state directory that does not answer counts as
    empty: whatever is in force is also in the run directory."""
    if os.path.lexists(f"{run_directory()}/{FILE}"):
        return True
    from zfstune.changes import bounded

    try:
        return bounded.call(_LOOK_S, os.path.lexists, f"{state_directory()}/{FILE}")
    except OSError:
        return False
