"""`make install` and the launchers: the command runs from any directory, nothing stays behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import install
import pytest
from support.paths import ROOT

from zfs_freebsd.dtrace import scripts as tools
from zfstrace.errors import TraceError
from zfstune import __version__

BUILT = install.LIBRARY.exists()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is there, whether or not this checkout is built."""
    if not BUILT:
        (tmp_path / "libzfstrace.so").write_bytes(b"not a library")
        monkeypatch.setattr(install, "LIBRARY", tmp_path / "libzfstrace.so")


def staged(tmp_path: Path, *more: str) -> tuple[int, Path]:
    """Status of install.py with DESTDIR, and where /opt/z is then."""
    stage = tmp_path / "stage"
    status = install.main(["--prefix", "/opt/z", "--destdir", str(stage), *more])
    return status, stage / "opt/z"


def files(base: Path) -> dict[str, int]:
    """Installed files and their modes, without byte code."""
    return {
        str(path.relative_to(base)): path.stat().st_mode & 0o777
        for path in sorted(base.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }


def run(command: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(command), *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.usefixtures("library")
def test_the_installed_command_runs_from_another_directory(tmp_path: Path) -> None:
    status, base = staged(tmp_path)
    assert status == 0
    elsewhere = tmp_path / "elsewhere"
    # what lies in the current directory must not be imported, least of all by root
    (elsewhere / "zfstune").mkdir(parents=True)
    (elsewhere / "zfstune/__init__.py").write_text("raise SystemExit('shadowed')")
    link = elsewhere / "link"
    link.symlink_to(base / "bin/zfstune")
    for command in (base / "bin/zfstune", link):
        version = run(command, "--version", cwd=elsewhere)
        assert (version.returncode, version.stdout) == (0, f"zfstune {__version__}\n")
        usage = run(command, "trace", "fsync", "-h", cwd=elsewhere)
        assert usage.returncode == 0
        assert "Measures each stage" in usage.stdout


@pytest.mark.skipif(not BUILT, reason="the library is not built")
def test_the_installed_command_loads_the_installed_library(tmp_path: Path) -> None:
    _, base = staged(tmp_path)
    found = run(base / "bin/zfstune", "doctor", cwd=tmp_path)
    assert str(base / "lib" / install.soname()) in found.stdout


@pytest.mark.usefixtures("library")
def test_all_files_are_installed_with_their_modes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, base = staged(tmp_path)
    found = files(base)
    for path, mode in {
        "bin/zfstune": 0o755,
        f"lib/{install.soname()}": 0o644,
        "lib/libzfstrace.so": 0o644,
        "lib/pkgconfig/zfstrace.pc": 0o644,
        "include/zfstrace.h": 0o644,
        "include/zfstrace_tables.h": 0o644,
        "share/doc/zfstune/examples/fsyncs.c": 0o644,
        "share/man/man3/zfstrace.3": 0o644,
        "lib/zfstune/python/zfstune/cli.py": 0o644,
        "lib/zfstune/python/zfstrace/bpf/binding.py": 0o644,
        "lib/zfstune/python/zfstrace/flame/svg.py": 0o644,
        "lib/zfstune/python/zfstrace/flame/view.js": 0o644,
        "lib/zfstune/python/zfstrace/flame/view.css": 0o644,
        "lib/zfstune/python/zfs_linux/host.py": 0o644,
        "share/man/man1/zfstune.1": 0o644,
        "share/man/man1/zfstune-trace.1": 0o644,
        "share/bash-completion/completions/zfstune": 0o644,
        "share/zsh/site-functions/_zfstune": 0o644,
        "share/fish/vendor_completions.d/zfstune.fish": 0o644,
        "lib/systemd/system/zfstune-exporter.service": 0o644,
        "lib/systemd/system/zfstune-recover.service": 0o644,
        "share/doc/zfstune/examples/zfstune-exporter-kprobes.conf": 0o644,
        "share/zfstune/monitoring/alerts.yml": 0o644,
    }.items():
        assert found[path] == mode
    assert set(capsys.readouterr().out.split()) == {str(base / path) for path in found}


@pytest.mark.usefixtures("library")
def test_a_second_install_replaces_and_uninstall_leaves_nothing(tmp_path: Path) -> None:
    _, base = staged(tmp_path)
    before = files(base)
    old = base / "lib/zfstune/python/zfstune/module_of_last_year.py"
    old.write_text("")
    assert staged(tmp_path)[0] == 0
    assert files(base) == before
    run(base / "bin/zfstune", "--version", cwd=tmp_path)  # leaves byte code
    assert staged(tmp_path, "--uninstall")[0] == 0
    assert files(base) == {}
    assert not (base / "lib/zfstune").exists()
    assert not (base / "share/doc/zfstune").exists()
    assert not (base / "share/zfstune").exists()
    assert staged(tmp_path, "--uninstall")[0] == 0


@pytest.mark.usefixtures("library")
def test_no_unit_is_a_drop_in(tmp_path: Path) -> None:
    """Of the examples an administrator copies one; none is in force by itself."""
    _, base = staged(tmp_path)
    units = base / install.UNITS
    assert {path.name for path in units.iterdir()} == {
        path.name for path in install.UNIT_FILES.iterdir() if path.is_file()
    }
    examples = {path.name for path in install.DROP_INS.iterdir()}
    assert examples <= {path.name for path in (base / install.EXAMPLES).iterdir()}


def test_freebsd_has_both_scripts_of_rc(tmp_path: Path) -> None:
    _, base = staged(tmp_path, "--system", "freebsd")
    found = {path: mode for path, mode in files(base).items() if path.startswith("etc/")}
    assert found == {"etc/rc.d/zfstune": 0o555, "etc/rc.d/zfstune_exporter": 0o555}
    for path in found:
        assert '"/opt/z/bin/zfstune"' in (base / path).read_text()
    assert (base / "share/zfstune/monitoring/alerts.yml").exists()


@pytest.mark.usefixtures("library")
def test_a_library_of_another_abi_is_removed(tmp_path: Path) -> None:
    _, base = staged(tmp_path)
    before = files(base)
    for name in ("lib/libzfstrace.so.3", "lib/zfstune/libzfstrace.so"):
        (base / name).write_text("")
    staged(tmp_path)
    assert files(base) == before


@pytest.mark.skipif(not BUILT, reason="the library is not built")
def test_the_example_in_c_builds_and_says_what_its_page_says(tmp_path: Path) -> None:
    """As its user builds it, but for where the installation is; without ZFS."""
    _, base = staged(tmp_path)
    stage = {
        "PKG_CONFIG_PATH": str(base / "lib/pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(tmp_path / "stage"),
        "LD_LIBRARY_PATH": str(base / "lib"),
    }

    def output(*command: str | Path) -> str:
        return subprocess.run(
            command, env=os.environ | stage, check=True, capture_output=True, text=True
        ).stdout

    assert output("pkg-config", "--modversion", "zfstrace") == f"{__version__}\n"
    flags = output("pkg-config", "--cflags", "--libs", "zfstrace").split()
    source, program = base / "share/doc/zfstune/examples/fsyncs.c", tmp_path / "fsyncs"
    output("cc", "-Wall", "-Wextra", "-Werror", "-o", program, source, *flags)
    assert f"NEEDED               {install.soname()}\n" in output("objdump", "-p", program)
    if Path("/sys/module/zfs").exists():
        return
    found = subprocess.run(
        [program], env=os.environ | stage, check=False, capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (1, "")
    page = (base / "share/man/man3/zfstrace.3").read_text()
    assert "\nhint: " in found.stderr
    assert found.stderr in page
    assert f"lib/{install.soname()}\n" in page


@pytest.mark.usefixtures("library")
def test_uninstall_leaves_files_of_others(tmp_path: Path) -> None:
    _, base = staged(tmp_path)
    theirs = [base / "lib/zfstune/notes", base / "bin/other", base / "share/man/man1/zfs.1"]
    theirs.append(base / install.UNITS / "zfstune-exporter.service.d/memory.conf")
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    assert staged(tmp_path, "--uninstall")[0] == 0
    assert list(files(base)) == sorted(str(path.relative_to(base)) for path in theirs)


def test_tools_install_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "LIBRARY", tmp_path / "not built")
    status, base = staged(tmp_path, "--tools")
    assert status == 0
    found = files(base)
    for path, mode in {
        "sbin/zilcommit.bt": 0o755,
        "sbin/zilslower.bt": 0o755,
        "sbin/zilslower.py": 0o755,
        "sbin/zildist.py": 0o755,
        "sbin/zilcommit.d": 0o755,
        "sbin/zilevent-json.d": 0o755,
        "share/man/man8/zilcommit.8": 0o644,
        "share/man/man8/zildist.8": 0o644,
    }.items():
        assert found[path] == mode
    assert {str(Path(path).parent) for path in found} == {"sbin", "share/man/man8"}
    usage = run(base / "sbin/zildist.py", "-h", cwd=tmp_path)
    assert usage.returncode == 0
    theirs = base / "sbin/biolatency.bt"
    theirs.write_text("")
    assert staged(tmp_path, "--tools", "--uninstall")[0] == 0
    assert list(files(base)) == ["sbin/biolatency.bt"]


def test_tools_of_freebsd_are_its_d_scripts(tmp_path: Path) -> None:
    _, base = staged(tmp_path, "--tools", "--system", "freebsd")
    scripts = {path.name for path in (ROOT / "tracers/dtrace/freebsd").glob("*.d")}
    pages = {path.name for path in (ROOT / "docs/man").glob("*.d.8")}
    assert {Path(path).name for path in files(base)} == scripts | pages
    script = base / "sbin/zilcommit.d"
    assert script.read_bytes() == (ROOT / "tracers/dtrace/freebsd/zilcommit.d").read_bytes()


FIND_SCRIPT = """
import sys
sys.path[:0] = sys.argv[1:3]
from zfs_freebsd.dtrace import scripts as tools
print(tools.script("zilevent-json.d"), tools.script("fsyncstack.d"))
"""


def test_freebsd_finds_the_d_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZFSTUNE_DTRACE_DIR", raising=False)
    _, base = staged(tmp_path, "--system", "freebsd")
    installed = base / "lib/zfstune"
    checkout = ROOT / "tracers/dtrace/freebsd"
    for folders, place in (
        ((str(installed / "python"), "/nowhere"), installed / "dtrace"),
        ((str(ROOT / "platform/freebsd"), str(ROOT / "tracers")), checkout),
    ):
        said = run(Path(sys.executable), "-I", "-c", FIND_SCRIPT, *folders, cwd=tmp_path)
        assert said.stdout.split() == [str(place / "zilevent-json.d"), str(place / "fsyncstack.d")]
    monkeypatch.setenv("ZFSTUNE_DTRACE_DIR", str(tmp_path))
    with pytest.raises(TraceError, match="has no fsyncstack"):
        tools.script("fsyncstack.d")
    (tmp_path / "fsyncstack.d").write_text("")
    assert tools.script("fsyncstack.d") == tmp_path / "fsyncstack.d"


def test_old_d_scripts_are_removed(tmp_path: Path) -> None:
    _, base = staged(tmp_path, "--system", "freebsd")
    (base / "lib/zfstune/dtrace/of_last_year.d").write_text("")
    staged(tmp_path, "--system", "freebsd")
    assert not (base / "lib/zfstune/dtrace/of_last_year.d").exists()
    staged(tmp_path, "--system", "freebsd", "--uninstall")
    assert files(base) == {}
    assert not (base / "lib/zfstune").exists()


def test_each_error_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install.main(["--prefix", "usr"]) == 2
    assert install.main(["--perfix", "/usr"]) == 2
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(install, "LIBRARY", tmp_path / "file")
    assert install.main(["--prefix", f"{tmp_path}/file"]) == 3
    monkeypatch.setattr(install, "LIBRARY", tmp_path / "libzfstrace.so")
    assert install.main(["--prefix", str(tmp_path)]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 8
    assert all(line.startswith("install: error: ") for line in lines[::2])
    assert all(line.startswith("hint: ") for line in lines[1::2])
    assert "`make all`" in lines[7]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a checkout of somebody else's")
def test_root_leaves_no_byte_code_in_a_checkout_of_somebody_else(tmp_path: Path) -> None:
    """`sudo make install`: its owner could not remove it, and `make clean` would fail."""
    base = tmp_path / "checkout"
    for name in ("bin", "scripts", "tuner/zfstune/inside"):
        (base / name).mkdir(parents=True)
    for name in ("bin/zfstune", "scripts/install.py", "tuner/zfstune/__init__.py"):
        shutil.copy(ROOT / name, base / name)
    for path in (ROOT / "tuner/zfstune/inside").glob("*.py"):
        shutil.copy(path, base / "tuner/zfstune/inside")
    os.chown(base, 65534, 65534)
    done = run(Path(sys.executable), str(base / "scripts/install.py"), "-h", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list(base.rglob("*.pyc"))


def test_the_launcher_of_a_checkout_runs(tmp_path: Path) -> None:
    link = tmp_path / "zfstune"
    link.symlink_to(ROOT / "bin/zfstune")
    for command in (ROOT / "bin/zfstune", link):
        found = run(command, "--version", cwd=tmp_path)
        assert (found.returncode, found.stdout) == (0, f"zfstune {__version__}\n")
