"""Why a shared object does not load: from its head, and from the message of the dynamic linker
(dlerror(3) has no number)."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

_DAMAGED = "the file is damaged or not complete", "copy it again, or rebuild it with `make`"
# e_machine in elf(5), and the machine of uname(2)
MACHINES = {62: "x86_64", 183: "aarch64"}

# A pattern, what it means, and what to do; the first that matches. {0} is its group
_REASONS = (
    (
        r"failed to map segment",
        "its file system is mounted noexec",
        "copy zfstune to one that is not, such as /root or /usr/local",
    ),
    (
        r"^(lib\S+\.so\S*): cannot open shared object file",
        "{0} is not installed",
        "install {0}: libbpf.so.1 is in package libbpf1 of Debian and Ubuntu, libbpf elsewhere",
    ),
    (
        r"version `(\w+_[\d.]+)' not found",
        "it needs {0}, which this system does not have yet",
        "build it on this host with `make`",
    ),
    (r"file too short|invalid ELF header", *_DAMAGED),
    (
        r"cannot open shared object file: Permission denied",
        "no permission to read it",
        "run zfstune as root",
    ),
)


def why(message: str) -> tuple[str, str]:
    """What the linker's message means and what to do; the message itself if it is none of those
    known."""
    for pattern, meaning, hint in _REASONS:
        match = re.search(pattern, message)
        if match:
            return meaning.format(*match.groups()), hint.format(*match.groups())
    return " ".join(message.split()), "rebuild it with `make`"


def wrong(path: str) -> tuple[str, str] | None:
    """What is wrong with a file, and what to do; None if nothing is, or if it is no file. To be
    asked before the linker, which is killed by SIGBUS if the file is cut short, and says of one for
    another machine that it does not exist."""
    file = Path(path)
    if not file.is_file():
        return None
    try:
        with file.open("rb") as opened:
            head, size = opened.read(64), file.stat().st_size
    except OSError as error:
        return f"it cannot be read ({error.strerror})", f"run `ls -l {path}`"
    if len(head) < 64 or head[:4] != b"\x7fELF":
        return _DAMAGED
    here = os.uname().machine
    (number,) = struct.unpack_from("<H", head, 18)
    made = MACHINES.get(number, "another machine")
    if head[4] != 2 or (here in MACHINES.values() and made != here):
        return f"it is for {made}, and this machine is {here}", "build it on this host with `make`"
    (sections,) = struct.unpack_from("<Q", head, 40)
    each, count = struct.unpack_from("<HH", head, 58)
    # the table of sections is the last part of the file
    return _DAMAGED if sections + each * count > size else None
