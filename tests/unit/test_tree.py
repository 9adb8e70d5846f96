"""What must hold for the source tree itself."""

from __future__ import annotations

import ast
from pathlib import Path

from support.paths import ROOT

PACKAGES = {
    "zfstrace": ROOT / "tracers/zfstrace",
    "zfstune": ROOT / "tuner/zfstune",
    "zfs_linux": ROOT / "platform/linux/zfs_linux",
    "zfs_freebsd": ROOT / "platform/freebsd/zfs_freebsd",
}
# who may import whom
ALLOWED = {
    "zfstrace": {"zfstrace"},
    "zfs_linux": {"zfstrace", "zfs_linux"},
    "zfs_freebsd": {"zfstrace", "zfs_freebsd"},
    "zfstune": {"zfstrace", "zfstune"},
}


def test_platform_does_not_shadow_the_standard_module() -> None:
    assert list((ROOT / "platform").glob("*.py")) == []


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_dependencies_point_one_way() -> None:
    for package, directory in PACKAGES.items():
        for path in directory.rglob("*.py"):
            wrong = imports(path) & set(PACKAGES) - ALLOWED[package]
            # the one function that picks the implementation
            if path == ROOT / "tuner/zfstune/host.py":
                wrong -= {"zfs_linux", "zfs_freebsd"}
            assert not wrong, f"{path.name} imports {wrong}"


def test_files_are_short_and_say_what_they_are() -> None:
    for directory in PACKAGES.values():
        for path in directory.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert len(text.splitlines()) < 600, path
            assert ast.get_docstring(ast.parse(text)), path
