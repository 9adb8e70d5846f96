"""What a FreeBSD guest finds on its disk for one run: an archive that its rc.local unpacks."""

from __future__ import annotations

import io
import json
import os
import shlex
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from .initrd import GUEST

# Of the checkout: what is not in the repository is of no use to FreeBSD.
_LEFT_OUT = {".git", ".venv", "build", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


def write_job(
    file: IO[bytes], checkout: Path, config: Mapping[str, str], command: Mapping[str, object]
) -> None:
    """Writes the archive: `run.sh`, the agent with its command, and the checkout as `zfstune`."""
    lines = [f"{key}={shlex.quote(value)}\n" for key, value in config.items()]
    with _archive(file) as archive:
        archive.add(GUEST / "freebsd.sh", "run.sh", filter=_plain)
        archive.add(GUEST / "agent.py", "agent.py", filter=_plain)
        _add(archive, "config", "".join(lines).encode())
        _add(archive, "command.json", json.dumps(command).encode())
        archive.add(checkout, "zfstune", filter=_plain)
    _pad(file)


def write_share(file: IO[bytes], directory: Path) -> None:
    """Writes the archive with the contents of `directory`."""
    with _archive(file) as archive:
        archive.add(directory, ".", filter=_plain)
    _pad(file)


def _archive(file: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """The member as root's; None for what is left out."""
    if os.path.basename(member.name) in _LEFT_OUT:  # noqa: PTH119  (a name in an archive)
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _pad(file: IO[bytes]) -> None:
    """To whole MiB: a disk."""
    file.flush()
    size = os.fstat(file.fileno()).st_size
    os.truncate(file.fileno(), -(-size >> 20) << 20)
