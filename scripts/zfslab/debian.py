"""Packages of Debian that an image of the lab lacks. A guest has no network, so apt fetches them on
the host, for the list of packages that the image has; the recipes of images stay as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from . import image

ROOT = Path(__file__).resolve().parents[2]
NEEDS = ("apt-get", "debugfs")

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Archive and suite, of a release
_SUITES = (("debian", "{}"), ("debian", "{}-updates"), ("debian-security", "{}-security"))
_MIRROR = "http://deb.debian.org/debian"
_CONFIG = """\
Dir "{at}";
Dir::State "state";
Dir::State::status "{at}/status";
Dir::Cache "cache";
Dir::Etc "etc";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::trustedparts "/dev/null";
APT::Architecture "amd64";
APT::Sandbox::User "";
APT::Install-Recommends "false";
Debug::NoLocking "true";
"""


def missing() -> str:
    """Why nothing can be fetched here; "" if it can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacks = [name for name in NEEDS if not shutil.which(name, path=path)]
    lacks += [] if Path(_KEYRING).exists() else [_KEYRING]
    return f"no packages are fetched: {', '.join(lacks)} is missing" if lacks else ""


@cache
def fetched(purpose: str, flavour: str, *packages: str) -> Path:
    """The directory with the packages, and all that these need beside what the image has. Raises
    CalledProcessError with apt's message."""
    at, release = ROOT / f"build/lab-{purpose}-{flavour}", flavour.partition("-")[0]
    for name in (
        "state/lists/partial",
        "cache/archives/partial",
        "etc/apt.conf.d",
        "etc/preferences.d",
    ):
        (at / name).mkdir(parents=True, exist_ok=True)
    (at / "status").write_text(_file_of_image(flavour, "/var/lib/dpkg/status"))
    mirror = os.environ.get("ZFSTUNE_MIRROR") or _MIRROR
    root = mirror.removesuffix("/").removesuffix("/debian")
    lines = [
        f"deb [signed-by={_KEYRING}] {root}/{of} {suite.format(release)} main\n"
        for of, suite in _SUITES
    ]
    (at / "etc/sources.list").write_text("".join(lines))
    (at / "apt.conf").write_text(_CONFIG.format(at=at))
    debs = at / "cache/archives"
    for path in debs.glob("*.deb"):
        path.unlink()  # of an earlier list
    for words in (["update"], ["install", "--yes", "--download-only", *packages]):
        subprocess.run(
            ["apt-get", "-q", *words],
            env={**os.environ, "APT_CONFIG": str(at / "apt.conf")},
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return debs


def _file_of_image(flavour: str, path: str) -> str:
    """Read without a mount, so without root."""
    disk = image.find(flavour).disk
    command = ["debugfs", "-R", f"cat {path}", str(disk)]
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    if not done.stdout:
        raise RuntimeError(f"{disk} has no {path}: {done.stderr}")
    return done.stdout
