"""Where `zfstune bench` measures: a directory and its dataset."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from zfstrace import processes
from zfstrace.disk import dev_of
from zfstrace.host import Host
from zfstrace.types import WRITES_BLOCKED, FsyncOptions
from zfstune.errors import NotPossible, UsageError
from zfstune.preflight import require_names
from zfstune.term.log import say
from zfstune.term.units import format_size

PREFIX = ".zfstune-bench-"
_LIST_S = 10.0
_REMOVE_S = 30.0
# Files are overwritten, and the pool frees the old blocks only after a few txgs.
_ROOM = 2


@dataclass(frozen=True)
class Place:
    """A directory; pool and dataset are None if it is not on ZFS."""

    path: Path
    pool: str | None = None
    dataset: str | None = None

    @property
    def name(self) -> str:
        """For people: ``PATH (DATASET)``."""
        return f"{self.path} ({self.dataset})" if self.dataset else str(self.path)


def find(host: Host, where: str) -> Place:
    """The place that a path or dataset names; a path begins with / or . or is not a dataset. Raises
    UsageError, NotPossible."""
    if not where:
        raise UsageError("the name of the path or dataset is empty", "name a directory")
    if "@" in where and "/" != where[0] != ".":
        raise UsageError(f"{where!r} is a snapshot: it cannot be written", "name a dataset")
    looks_like_path = where[0] in "/."
    if not looks_like_path and (where in host.dataset_names() or not Path(where).exists()):
        return _of_dataset(host, where)
    path = Path(where)
    if not path.exists():
        raise UsageError(f"{where} does not exist", "name a directory or a mounted dataset")
    if not path.is_dir():
        raise UsageError(
            f"{where} is not a directory", "name one (for a disk see --raw and --matrix)"
        )
    return _at(host, path)


def _of_dataset(host: Host, name: str) -> Place:
    require_names(host, FsyncOptions(dataset=name))
    _require_health(host, name.split("/", 1)[0])
    for line in processes.output(["zfs", "mount"], _LIST_S).splitlines():
        point = line.removeprefix(f"{name} ").lstrip()
        if point != line and point.startswith("/"):
            return _at(host, Path(point))
    raise UsageError(f"{name} has no directory (a volume, or not mounted)", "name a path")


def _at(host: Host, path: Path) -> Place:
    path = path.absolute()
    dataset = host.dataset_name("", 0, dev_of(path))
    if not dataset:
        return Place(path)
    if "@" in dataset:
        raise UsageError(f"{path} is in a snapshot: it cannot be written", "name a dataset")
    pool = dataset.split("/", 1)[0]
    _require_health(host, pool)
    return Place(path, pool, dataset)


def _require_health(host: Host, pool: str) -> None:
    """Raises NotPossible when writes would block."""
    state = host.pool_state(pool)
    if state in WRITES_BLOCKED:
        raise NotPossible(
            f"cannot write to pool {pool}: it is {state}",
            f"see `zpool status {pool}` and `zpool clear`",
        )
    if state not in ("ONLINE", ""):
        say(f"pool {pool} is {state} and may be slower; `zpool status {pool}` says why")


def check_room(path: Path, needed: int) -> None:
    """Raises NotPossible when there is no room for files of needed bytes."""
    try:
        free = shutil.disk_usage(path).free
    except OSError as error:
        raise NotPossible(f"cannot write to {path}: {error.strerror}") from None
    if free < _ROOM * needed:
        raise NotPossible(
            f"{path} is too full: {format_size(free)} are free, {format_size(_ROOM * needed)} "
            "are needed",
            "take a smaller --size or fewer --jobs",
        )


def others(path: Path) -> list[str]:
    """The paths of directories that other runs have in there."""
    with suppress(OSError):
        return sorted(str(one) for one in path.iterdir() if one.name.startswith(PREFIX))
    return []


@contextmanager
def directory(host: Host, place: Place, left: list[str]) -> Iterator[Path]:
    """A temporary directory for the time of the block; if it cannot be removed, left gets a
    sentence. Raises NotPossible."""
    try:
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place.path))
    except OSError as error:
        raise NotPossible(
            f"cannot write to {place.path}: {error.strerror}", "name a directory that you may write"
        ) from None
    try:
        yield made
    finally:
        why = remove(host, made, place.pool)
        if why:
            left.append(f"{made} is left ({why}); remove it with `rm -r`")


def remove(host: Host, path: Path, pool: str | None) -> str:
    """Removes the directory; returns why it is still there, or "". Does not wait for a pool in
    which writes block."""
    state = host.pool_state(pool) if pool else ""
    if state in WRITES_BLOCKED:
        return f"pool {pool} is {state}"
    try:
        done = processes.run(["rm", "-rf", "--", str(path)], _REMOVE_S)
    except TimeoutError:
        return f"it takes longer than {_REMOVE_S:.0f} s"
    return done.err.strip().split("\n")[0] if done.status else ""
