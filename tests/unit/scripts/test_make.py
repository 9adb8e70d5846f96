"""The Makefile: its help, and a checkout in a folder with a space in its name."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

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


def constant(name: str) -> Any:
    """Of tests/lab/conftest.py, which is not imported: it is pytest's."""
    for node in ast.parse((ROOT / "tests/lab/conftest.py").read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value
            return eval(compile(ast.Expression(node.value), name, "eval"), {})
    raise KeyError(name)


def test_the_matrix_runs_what_a_sample_leaves_out() -> None:
    """By its list, or by a line or a target of its own."""
    text = (ROOT / "Makefile").read_text()
    listed = set(re.search(r"^SAMPLED = (.*)$", text, re.MULTILINE)[1].split())  # type: ignore[index]
    freebsd = re.search(r"^SAMPLED_FREEBSD = .*freebsd_,(.*)\)$", text, re.MULTILINE)
    assert freebsd
    listed |= {f"freebsd_{name}" for name in freebsd[1].split()}
    left_out = constant("MATRIX_ONLY") | constant("SAMPLE").keys()
    rest = {name for name in left_out - listed if f"tests/lab/test_{name}.py" not in text}
    # in the lab's tests on trixie-backports, which are no sample
    assert rest == {"arc"} and "arc" not in constant("ONE_FLAVOUR")


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
