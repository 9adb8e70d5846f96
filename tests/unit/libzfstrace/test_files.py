"""The files of libzfstrace call one way: none needs another that needs it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.paths import ROOT

FILES = sorted((ROOT / "tracers/libzfstrace").glob("*.c"))


def symbols(source: Path, folder: Path) -> tuple[set[str], set[str]]:
    """The functions and data that a C file defines for others, and those it needs of others."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler is needed, as for `make`"
    made = folder / f"{source.stem}.o"
    flags = ["-std=gnu11", "-D_DEFAULT_SOURCE", '-DBPF_DIR="tracers/bpf"']
    subprocess.run([compiler, *flags, "-c", source, "-o", made], cwd=ROOT, check=True)
    listed = subprocess.run(["nm", "-g", made], check=True, capture_output=True, text=True)
    words = [line.split()[-2:] for line in listed.stdout.splitlines()]
    return (
        {name for kind, name in words if kind != "U"},
        {name for kind, name in words if kind == "U"},
    )


def check_no_circle(files: Iterable[Path], folder: Path) -> None:
    """Raises CycleError with the files of a circle."""
    found = {path.name: symbols(path, folder) for path in files}
    home = {name: file for file, (defined, _) in found.items() for name in defined}
    graph = {file: {home[n] for n in needed if n in home} for file, (_, needed) in found.items()}
    TopologicalSorter(graph).prepare()


def test_files_form_no_circle(tmp_path: Path) -> None:
    assert len(FILES) > 10
    check_no_circle(FILES, tmp_path)


def test_a_circle_is_found(tmp_path: Path) -> None:
    """By a call, and by a table of functions."""
    (tmp_path / "first.c").write_text("int one(void);\nint two(void) { return one(); }\n")
    (tmp_path / "second.c").write_text("int two(void);\nint (*const table[])(void) = { two };\n")
    (tmp_path / "third.c").write_text(
        "extern int (*const table[])(void);\nint one(void) { return table[0](); }\n"
    )
    files = sorted(tmp_path.glob("*.c"))
    check_no_circle(files[:2], tmp_path)
    with pytest.raises(CycleError) as caught:
        check_no_circle(files, tmp_path)
    assert set(caught.value.args[1]) == {"first.c", "second.c", "third.c"}
