"""`make wheel`: pip installs it without an index, and no wheel lacks the library."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.paths import ROOT

from dist import wheel
from zfstune import __version__

MACHINES = ("x86_64", "aarch64")
HERE = os.uname().machine
OFFLINE = ("--no-index", "--no-deps", "--disable-pip-version-check")


def run(*command: str | Path, cwd: Path = ROOT) -> tuple[int, str]:
    """Status and output of a command, outside of the `make` that runs the tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def made() -> Path:
    """The folder of the wheels, as `make wheel` makes them of this checkout."""
    status, text = run("make", "--no-print-directory", "wheel", f"PYTHON={sys.executable}")
    assert status == 0, text[-2000:]
    return ROOT / "dist"


@pytest.fixture(scope="module")
def installed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin of a fresh environment with the wheel."""
    base = tmp_path_factory.mktemp("venv")
    assert run(sys.executable, "-m", "venv", base)[0] == 0
    status, text = run(base / "bin/pip", "install", *OFFLINE, file(made))
    assert status == 0, text
    return base / "bin"


def file(made: Path, machine: str = HERE) -> Path:
    return made / f"zfstune-{__version__}-py3-none-manylinux_2_28_{machine}.whl"


@pytest.mark.parametrize("machine", MACHINES)
def test_auditwheel_finds_the_tag_of_its_name(made: Path, machine: str) -> None:
    status, text = run(sys.executable, "-m", "auditwheel", "show", file(made, machine))
    assert status == 0, text
    told = " ".join(text.split())
    assert f'consistent with the following platform tag: "manylinux_2_28_{machine}"' in told


@pytest.mark.parametrize("machine", MACHINES)
def test_it_holds_the_library_and_has_a_checksum(made: Path, machine: str) -> None:
    with zipfile.ZipFile(file(made, machine)) as archive:
        assert archive.testzip() is None
        library = archive.read("zfstrace/bpf/libzfstrace.so")
    assert library == (ROOT / f"build/dist/{machine}/libzfstrace.so").read_bytes()
    sums = (made / "SHA256SUMS").read_text().split("\n")
    made_file = file(made, machine)
    assert f"{hashlib.sha256(made_file.read_bytes()).hexdigest()}  {made_file.name}" in sums


def test_the_record_has_every_file(made: Path) -> None:
    with zipfile.ZipFile(file(made)) as archive:
        names = archive.namelist()
        record = f"zfstune-{__version__}.dist-info/RECORD"
        rows = [line.rsplit(",", 2) for line in archive.read(record).decode().splitlines()]
        assert [row[0] for row in rows] == names
        assert rows.pop() == [record, "", ""]
        for name, digest, size in rows:
            data = archive.read(name)
            assert (wheel.digest(data), str(len(data))) == (digest, size)


def test_the_installed_command_has_all_it_needs(installed: Path, tmp_path: Path) -> None:
    command = installed / "zfstune"
    assert run(command, "--version", cwd=tmp_path) == (0, f"zfstune {__version__}\n")
    status, text = run(command, "doctor", cwd=tmp_path)
    assert status in (0, 1, 3), text
    assert "site-packages/zfstrace/bpf/libzfstrace.so" in "".join(text.split())
    assert "not built" not in text
    status, text = run(command, "tools", "extract", "tools", "zilcommit.bt", cwd=tmp_path)
    assert status == 0, text
    tool = ROOT / "tracers/bpftrace/zilcommit.bt"
    assert (tmp_path / "tools/zilcommit.bt").read_bytes() == tool.read_bytes()
    status, text = run(command, "licences", cwd=tmp_path)
    assert status == 0
    assert "libbpf 1." in text and "GNU LESSER GENERAL PUBLIC" in text
    assert (installed.parent / "share/man/man1/zfstune.1").is_file()


def test_pip_makes_the_same_wheel_of_a_built_checkout(made: Path, tmp_path: Path) -> None:
    status, text = run(sys.executable, "-m", "pip", "wheel", *OFFLINE, "-w", tmp_path, ROOT)
    assert status == 0, text
    assert (tmp_path / file(made).name).read_bytes() == file(made).read_bytes()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A checkout where nothing is built."""
    base = tmp_path / "sources"
    ignore = shutil.ignore_patterns("*.so", "*.o", "__pycache__")
    for name in ("bin", "docs", "platform", "scripts", "tracers", "tuner"):
        shutil.copytree(ROOT / name, base / name, ignore=ignore)
    for name in ("LICENSE", "Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, base)
    return base


@pytest.mark.parametrize("stale", [False, True])
def test_pip_refuses_a_checkout_without_a_library_of_its_sources(
    stale: bool, sources: Path, tmp_path: Path
) -> None:
    if stale:
        library = sources / f"build/dist/{HERE}/libzfstrace.so"
        library.parent.mkdir(parents=True)
        library.write_bytes(b"of older sources")
        os.utime(library, (0, 0))
    wheels = tmp_path / "wheels"
    pip = (sys.executable, "-m", "pip")
    for words in (("wheel", *OFFLINE, "-w", wheels), ("install", *OFFLINE, "--target", wheels)):
        status, text = run(*pip, *words, sources, cwd=tmp_path)
        assert status == 1
        assert "zfstune: error: no wheel without libzfstrace.so: " in text
        assert "hint: run `make wheel`" in text
        assert "Traceback" not in text
    assert not list(wheels.glob("*"))


def test_there_is_no_sdist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        wheel.build_sdist(str(tmp_path))
    assert caught.value.code == 3
    assert capsys.readouterr().err.startswith("zfstune: error: zfstune has no sdist\nhint: ")
    assert not list(tmp_path.iterdir())


def test_packing_it_again_makes_equal_bytes(made: Path, tmp_path: Path) -> None:
    libraries = [ROOT / f"build/dist/{machine}/libzfstrace.so" for machine in MACHINES]
    command = (sys.executable, ROOT / "scripts/dist/wheel.py", "--output", "again")
    status, text = run(*command, *libraries, cwd=tmp_path)
    assert status == 0, text
    for machine in MACHINES:
        again = file(tmp_path / "again", machine)
        assert again.read_bytes() == file(made, machine).read_bytes()
