"""What the lab installs, built once in a run: the one files, alone and with an old system, and the
packages, these also as the next version."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory

import install
import package

NEXT = "9999"
# guests of two flavours may ask at the same time
_BUILDING = threading.RLock()


def once(build: Callable[[], Path]) -> Callable[[], Path]:
    cached = cache(build)

    @wraps(build)
    def one() -> Path:
        with _BUILDING:
            return cached()

    return one


def missing() -> str:
    """Why no package can be built here; "" if it can."""
    packages = package.missing("deb")
    return f"no packages are built: run `apt install {packages}`" if packages else ""


@once
def built() -> Path:
    """The directory with the packages of this checkout, and of a later version. Raises
    install.InstallError."""
    out = package.ROOT / "build/lab-packages"
    subprocess.run(["rm", "-rf", out], check=True)
    for path in package.build("deb", install.version(), out):
        _as_next(path, out)
    return out


@once
def one_files() -> Path:
    """The directory that `make dist` fills."""
    command = ["make", "--no-print-directory", "-C", str(package.ROOT), "dist"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return package.ROOT / "dist"


@once
def debian_11() -> Path:
    """The directory with the one files, and the files of Debian 11 that its Python needs."""
    out = package.ROOT / "build/lab-python39"
    out.mkdir(parents=True, exist_ok=True)
    for path in one_files().glob("*.pyz"):
        shutil.copy(path, out)
    tree = out / "debian-11.tar"
    command = ["mmdebstrap", "--quiet", "--variant=extract", "--include=python3,dash,coreutils"]
    subprocess.run([*command, "bullseye", tree], check=True)
    return out


def _as_next(path: Path, out: Path) -> None:
    """Packs the same files under a version that is higher: what another build would give."""
    with TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        subprocess.run(["dpkg-deb", "-R", path, tree], check=True)
        old = install.version()
        for name, form in (
            ("DEBIAN/control", "Version: {}\n"),
            ("usr/lib/zfstune/python/zfstune/__init__.py", '__version__ = "{}"'),
        ):
            file = tree / name
            if file.exists():
                file.write_text(file.read_text().replace(form.format(old), form.format(NEXT)))
        name = path.name.replace(f"_{old}_", f"_{NEXT}_")
        command = ["dpkg-deb", "--root-owner-group", "-b", str(tree), str(out / name)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
