"""A process that the kernel spares when swap runs out."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.freebsd import standin

from zfs_freebsd.protect import protect_from_oom


def test_the_caller_is_protected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSCTL_STANDIN_TABLE", str(tmp_path / "table"))
    protect_from_oom(str(standin.build()))
    assert (tmp_path / "table.protected").read_text() == f"{os.getpid()}\n"


def test_only_root_may_protect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSCTL_STANDIN_TABLE", str(tmp_path / "table"))
    monkeypatch.setenv("SYSCTL_STANDIN_USER", "1")
    with pytest.raises(OSError, match="permitted") as raised:
        protect_from_oom(str(standin.build()))
    assert raised.value.errno == errno.EPERM
    assert not (tmp_path / "table.protected").exists()
