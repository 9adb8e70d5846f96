"""File systems that fail: in one directory only, in this process and in those that it forks."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_HANG_S = 60


class Faults:
    """Faults of file operations, by directory: an errno, "hang", or None for none. reads: also fail
    opening for reading. after: how many calls succeed first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fault: dict[str, tuple[int | str, bool]] = {}
        self._after: dict[str, int] = {}
        for name in ("open", "rename", "unlink", "link", "mkdir", "write"):
            monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))

    def put(
        self, directory: Path, fault: int | str | None, *, reads: bool = False, after: int = 0
    ) -> None:
        path = str(directory)
        self._fault.pop(path, None)
        if fault is not None:
            self._fault[path] = (fault, reads)
            self._after[path] = after

    def hanging(self) -> list[str]:
        """The directories that no longer answer."""
        return [path for path, (fault, _reads) in self._fault.items() if fault == "hang"]

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def one(*given: Any, **named: Any) -> Any:
            where = self._directory(name, given, named)
            if where in self._fault:
                fault, reads = self._fault[where]
                if reads or name != "open" or given[1] & _WRITES:
                    self._happen(where, fault, name, real, given)
            return real(*given, **named)

        return one

    def _happen(
        self, where: str, fault: int | str, name: str, real: Callable[..., Any], given: Any
    ) -> None:
        if self._after[where] > 0:
            self._after[where] -= 1
            return
        if fault == "hang":
            time.sleep(_HANG_S)
        # a full disk takes a part, and names
        if fault == errno.ENOSPC and name == "write":
            real(given[0], given[1][: len(given[1]) // 2])
        elif fault == errno.ENOSPC and name in ("rename", "unlink", "open"):
            return
        assert isinstance(fault, int)
        raise OSError(fault, os.strerror(fault))

    def _directory(self, name: str, given: Any, named: Any) -> str:
        if not self._fault:
            return ""
        try:
            if name == "write":
                return os.path.dirname(_path_of(given[0]))  # noqa: PTH120
            fd = named.get("dir_fd", named.get("src_dir_fd"))
            if fd is not None:
                return _path_of(fd)
            path = str(given[0])
            return path if path in self._fault else os.path.dirname(path)  # noqa: PTH120
        except OSError:
            return ""


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
