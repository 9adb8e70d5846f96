"""The tree or archive of OpenZFS that an image is compiled from."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import USAGE, LabError
from .process import scratch_dir

# In the top directory of every version
_META = "META"


@dataclass(frozen=True)
class Packed:
    """An archive with one directory at its top, which holds the source."""

    archive: Path
    digest: str  # SHA-256


@contextmanager
def packed(path: Path) -> Iterator[Packed]:
    """`path`, if it is an archive, else one made of the tree there: of a checkout what git tracks,
    as it is in the tree, so that nothing is taken that was compiled for another kernel. Raises
    LabError if it does not hold OpenZFS."""
    if path.is_dir():
        if not (path / _META).is_file():
            raise _not_zfs(path)
        with tempfile.TemporaryDirectory(prefix="zfslab-", dir=scratch_dir()) as directory:
            archive = Path(directory) / "zfs.tar"
            _pack(path, archive)
            yield Packed(archive, _digest(archive))
        return
    # by the program that unpacks it in the image
    done = subprocess.run(["tar", "-tf", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip().splitlines()[0]
        what = f"{path} is neither a tree nor a whole archive of OpenZFS: {why}"
        raise LabError(what, "download it again", status=USAGE)
    names = done.stdout.splitlines()
    tops = {name.split("/")[0] for name in names}
    if len(tops) != 1 or f"{(*tops,)[0]}/{_META}" not in names:
        raise _not_zfs(path)
    yield Packed(path.resolve(), _digest(path))


def _not_zfs(path: Path) -> LabError:
    hint = f"give a tree of it, or an archive with one directory, which has a file {_META}"
    return LabError(f"{path} is not the source of OpenZFS", hint, status=USAGE)


def _pack(tree: Path, archive: Path) -> None:
    names = _tracked(tree) if (tree / ".git").exists() else b".\0"
    command = ["tar", "--create", "--file", str(archive), "--directory", str(tree), "--null"]
    command += ["--sort=name", "--owner=0", "--group=0", "--transform=s,^[.]/,,;s,^,zfs/,S"]
    done = subprocess.run([*command, "--files-from=-"], input=names, check=False)
    if done.returncode:
        raise _failed(f"cannot pack {tree}", "tar", done.returncode)


def _tracked(tree: Path) -> bytes:
    """The files that git tracks and that are there, each with a zero byte at its end."""
    git = ["git", "-C", str(tree), "ls-files", "-z", "--recurse-submodules"]
    done = subprocess.run(git, stdout=subprocess.PIPE, check=False)
    if done.returncode:  # root in a tree of somebody else's, for one
        raise _failed(f"cannot list the files of {tree}", "git", done.returncode)
    names = [name for name in done.stdout.split(b"\0") if name]
    return b"".join(name + b"\0" for name in names if os.path.lexists(tree / os.fsdecode(name)))


def _failed(what: str, program: str, status: int) -> LabError:
    return LabError(f"{what}: {program} ended with status {status}", "see its message above")


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
