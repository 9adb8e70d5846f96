"""The one-file tools: what `doctor` says about them on fake hosts, and that it checks what they
probe."""

from __future__ import annotations

import importlib
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

from zfs_linux import tools
from zfs_linux.host import LinuxHost

BPFTRACE = sorted((ROOT / "tracers/bpftrace").iterdir())
BCC = sorted((ROOT / "tracers/bcc").glob("*.py"))


def write_symbols(root: Path, names: set[str]) -> None:
    (root / "proc").mkdir(exist_ok=True)
    lines = [f"ffffffffc0000000 t {name}\t[zfs]\n" for name in sorted(names)]
    (root / "proc/kallsyms").write_text("".join(["0000000000000000 A other\n", *lines]))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host on which all of them would work."""
    (tmp_path / "sys/module/zfs").mkdir(parents=True)
    (tmp_path / "lib/modules" / os.uname().release / "build").mkdir(parents=True)
    write_symbols(tmp_path, {symbol for needs in tools.NEEDS.values() for symbol in needs})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bpftrace").write_text("")
    (tmp_path / "bin/bpftrace").chmod(0o755)
    (tmp_path / "python").mkdir()
    (tmp_path / "python/bcc.py").write_text("raise RuntimeError('imported')")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "python")])
    return tmp_path


def why(root: Path) -> dict[str, str]:
    return {tool.name: tool.why for tool in LinuxHost(root).tools()}


def test_on_a_complete_host_all_tools_work(root: Path) -> None:
    assert set(why(root).values()) == {""}
    assert set(why(root)) == {path.name for path in [*BPFTRACE, *BCC]}


def test_without_bpftrace_only_bcc_tools_work(root: Path) -> None:
    (root / "bin/bpftrace").unlink()
    found = why(root)
    assert found["zilcommit.bt"] == "bpftrace is not installed"
    assert found["zildist.py"] == ""


def test_without_bcc_only_bpftrace_tools_work(root: Path) -> None:
    (root / "python/bcc.py").unlink()
    importlib.invalidate_caches()
    found = why(root)
    assert found["zilcommit.bt"] == ""
    assert found["zildist.py"] == "Python's module bcc is not installed"


def test_bcc_tools_need_headers_of_the_kernel(root: Path) -> None:
    (root / "lib/modules" / os.uname().release / "build").rmdir()
    assert why(root)["zildist.py"] == "the headers of this kernel are not installed"
    (root / "sys/kernel").mkdir()
    (root / "sys/kernel/kheaders.tar.xz").write_text("")
    assert why(root)["zildist.py"] == ""


def test_d_scripts_are_listed_where_dtrace_for_linux_is(root: Path) -> None:
    """SystemTap's script of that name is not it; types come from the module's BTF."""
    program = root / "usr/sbin/dtrace"
    program.parent.mkdir(parents=True)
    program.write_text("#!/usr/bin/python3")
    assert "zilcommit.d" not in why(root)
    program.write_bytes(b"\x7fELF\2")
    write_symbols(
        root, {s for needs in (tools.NEEDS | tools.D_NEEDS).values() for s in needs} - {"__cv_wait"}
    )
    assert why(root)["txgstate.d"] == "the zfs module has no BTF"
    (root / "sys/kernel/btf").mkdir(parents=True)
    (root / "sys/kernel/btf/zfs").write_bytes(b"")
    assert why(root)["txgstate.d"] == ""
    assert why(root)["zilcommit.d"] == "the kernel has no __cv_wait"


def test_a_missing_symbol_is_named(root: Path) -> None:
    """Linux before 5.19: the bcc tools do without the tracepoint, bpftrace does not."""
    symbols = {symbol for needs in tools.NEEDS.values() for symbol in needs}
    write_symbols(root, symbols - {"__traceiter_contention_begin"})
    found = why(root)
    assert found["zilcommit.bt"] == "the kernel has no __traceiter_contention_begin"
    assert found["txgstate.bt"] == found["zildist.py"] == ""


def test_without_zfs_no_tool_works(root: Path) -> None:
    (root / "sys/module/zfs").rmdir()
    assert set(why(root).values()) == {"ZFS is not loaded"}
    (root / "proc/kallsyms").unlink()
    assert set(why(root).values()) == {"ZFS is not loaded"}


@pytest.mark.parametrize("path", BPFTRACE, ids=lambda path: path.name)
def test_needs_of_bpftrace_tools_are_listed(path: Path) -> None:
    text = path.read_text()
    probed = set(re.findall(r"^k(?:ret)?probe:(\w+)\b", text, re.MULTILINE))
    probed |= {f"__traceiter_{n}" for n in re.findall(r"^tracepoint:lock:(\w+)", text, re.M)}
    assert probed == set(tools.NEEDS[path.name])


def test_needs_of_d_scripts_are_among_their_probes() -> None:
    folder = ROOT / "tracers/dtrace/linux"
    assert {path.name for path in folder.glob("*.d")} >= set(tools.D_NEEDS)
    for name, needs in tools.D_NEEDS.items():
        assert needs
        for symbol in needs:
            assert f"fbt::{symbol}:" in (folder / name).read_text(), (name, symbol)


@pytest.mark.parametrize("path", BCC, ids=lambda path: path.name)
def test_needs_of_bcc_tools_are_listed(path: Path) -> None:
    needed = re.search(r"^NEEDED = \(([^)]*)\)", path.read_text(), re.MULTILINE)
    assert needed
    assert set(re.findall(r'"(\w+)"', needed[1])) == set(tools.NEEDS[path.name])


@pytest.mark.parametrize("path", [*BPFTRACE, *BCC], ids=lambda path: path.name)
def test_each_is_one_file_with_pages(path: Path) -> None:
    assert path.stat().st_mode & stat.S_IXUSR
    text = path.read_text()
    assert text.startswith("#!/usr/bin/env ")
    assert f"USAGE: {path.name}" in text
    assert max(map(len, text.expandtabs(4).splitlines())) <= 100
    page = (ROOT / f"docs/tools/{path.stem}.md").read_text()
    manual = (ROOT / f"docs/man/{path.stem}.8").read_text()
    assert path.name in page
    assert path.name in manual
    assert ".Sh OVERHEAD" in manual


@pytest.mark.parametrize("path", BCC, ids=lambda path: path.name)
@pytest.mark.parametrize("words", [["-p", "0"], ["--nonsense"], ["1", "2", "3"], ["-1"]])
def test_bad_arguments_are_an_error_with_a_hint(path: Path, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(path), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(rf"{path.stem}: error: [^\n]+\nhint: see `{path.name} -h`\n", done.stderr)


@pytest.mark.parametrize("path", BCC, ids=lambda path: path.name)
def test_help_ends_in_examples(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path), "-h"], capture_output=True, text=True, check=True
    )
    assert "examples:" in done.stdout
