"""The Makefile: its help, and a checkout in a folder with a space in its name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.paths import ROOT

FILES = ("Makefile", "scripts/dist/rules.mk")


def make(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Outside of the `make` that runs the tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_its_help_lists_each_target_that_is_described() -> None:
    text = "".join((ROOT / name).read_text() for name in FILES)
    described = set(re.findall(r"^## (\S+): ", text, re.MULTILINE))
    assert {"all", "test-python39", "dist"} <= described
    shown = [line.split()[1] for line in make("help", cwd=ROOT).stdout.splitlines()]
    assert sorted(shown) == sorted(described)
    phony = re.findall(r"^\.PHONY: (.*)$", text.replace("\\\n", " "), re.MULTILINE)
    assert described <= set(" ".join(phony).split())


@pytest.mark.skipif(not shutil.which("clang"), reason="there is no clang")
def test_a_program_is_compiled_below_a_folder_with_a_space(tmp_path: Path) -> None:
    base = tmp_path / "a checkout"
    for name in (*FILES, "tracers/libzfstrace/zfstrace.h", "tracers/libzfstrace/zfstrace_tables.h"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, base / name)
    (base / "tracers/bpf").mkdir()
    (base / "tracers/bpf/one.bpf.c").write_text("int one;\n")
    done = make("tracers/bpf/one.bpf.o", cwd=base)
    assert done.returncode == 0, done.stderr
    assert (base / "tracers/bpf/one.bpf.o").exists()
