"""Device numbers of mounted datasets, from mount(8)."""

from __future__ import annotations

import re

from zfstrace import processes
from zfstrace.disk import Dev, dev_of

# After each name one to three tabs or, if it has 24 bytes or more, a blank (putfsent() in
# sbin/mount/mount.c). Blanks within names are not escaped.
_LINE = re.compile(r"([^\t]+?)(?:\t+| )(/[^\t]*?)(?:\t+| )zfs\t.*")
_TIMEOUT_S = 5


def parse_mounts(text: str) -> dict[str, str]:
    """Dataset -> mount point, from `mount -p -t zfs`. Malformed lines are skipped."""
    lines = map(_LINE.fullmatch, text.split("\n"))
    return {line[1]: line[2] for line in lines if line and "@" not in line[1]}


def datasets() -> dict[Dev, str]:
    """Mounted datasets by device number; {} if mount(8) does not answer, as with a suspended
    pool."""
    found = {}
    for name, path in parse_mounts(
        processes.output(["mount", "-p", "-t", "zfs"], _TIMEOUT_S)
    ).items():
        try:
            found[dev_of(path)] = name
        except OSError:
            continue
    return found
