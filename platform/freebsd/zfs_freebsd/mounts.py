"""Device numbers of mounted datasets, from mount(8)."""

from __future__ import annotations

import re

from zfstrace import processes
from zfstrace.disk import Dev, dev_of

_ESCAPE = re.compile(r"\\([0-7]{3})")
_TIMEOUT_S = 5


def parse_mounts(text: str) -> dict[str, str]:
    """Dataset -> mount point, from `mount -p -t zfs`: lines as in fstab(5), with blanks in names as
    octal escapes. Malformed lines are skipped."""
    found = {}
    for line in text.split("\n"):
        words = line.split()
        if len(words) >= 3 and words[2] == "zfs" and "@" not in words[0]:
            found[_unescape(words[0])] = _unescape(words[1])
    return found


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


def _unescape(name: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), name)
