#!/usr/bin/env python3
"""Builds packages of Debian and of RPM's distributions, by their own tools; called by `make deb`
and `make rpm`.

The sources are staged below build/packages, with the files of platform/linux/debian as debian/ and
of platform/linux/rpm, and built there, so the checkout stays as it is. All times come from
SOURCE_DATE_EPOCH, else from the last commit: two builds give equal bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path

import install
from install import InstallError

ROOT = install.ROOT
PACKAGING = ROOT / "platform/linux"
SNIPPETS = PACKAGING / "packages"
BUILD = ROOT / "build/packages"
# what the build and the packages need
SOURCES = (
    *("Makefile", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("bin", "docs", "platform", "scripts", "tracers", "tuner"),
)
BUILT = ("*.o", "*.so", "*.tmp", "*.pyc", "__pycache__", "*.egg-info")
UNITS = ("zfstune-exporter.service", "zfstune-recover.path", "zfstune-recover.service")
VERSION = re.compile(r"[0-9][0-9A-Za-z.+~]*")
MAINTAINER = "The zfstune authors <zfstune@example.org>"

# The program of each kind, and Debian's packages with all that it needs.
TOOLS = {
    "deb": ("dh", "dpkg-dev debhelper dh-python"),
    "rpm": ("rpmbuild", "rpm"),
}

USES = """\
examples:
  scripts/package.py deb                      dist/zfstune_VERSION_ARCH.deb, and zfstune-tools
  scripts/package.py rpm --out /tmp           the same for RHEL and its clones
  scripts/package.py deb --version 0.2.0~rc1  under another version
"""


def epoch() -> int:
    """The time of all files, in seconds."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given.isdigit():
        return int(given)
    command = ["git", "log", "-1", "--format=%ct"]
    with suppress(FileNotFoundError):  # no git
        last = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if last.returncode == 0 and last.stdout.strip():
            return int(last.stdout)
    return int((ROOT / "CHANGELOG.md").stat().st_mtime)


def missing(kind: str) -> str:
    """The packages to install before; "" if all is there."""
    program, packages = TOOLS[kind]
    return "" if shutil.which(program) else packages


def stage(base: Path, version: str, when: int) -> None:
    """Copies the sources to base, with the files that make packages of them."""
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, base / name, ignore=shutil.ignore_patterns(*BUILT))
        else:
            shutil.copy(source, base / name)
    # `zfstune --version` says which package it is
    init = base / "tuner/zfstune/__init__.py"
    init.write_text(init.read_text().replace(f'"{install.version()}"', f'"{version}"'))
    debian = base / "debian"
    shutil.copytree(PACKAGING / "debian", debian)
    for script in debian.glob("zfstune.p*"):
        script.write_text(with_snippets(script.read_text(), "\t"))
    for unit in UNITS:
        shutil.copy(PACKAGING / "systemd" / unit, debian / f"zfstune.{unit}")
    (debian / "changelog").write_text(
        f"zfstune ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n"
        f" -- {MAINTAINER}  {formatdate(when)}\n"
    )
    spec = base / "zfstune.spec"
    text = (PACKAGING / "rpm/zfstune.spec.in").read_text().replace("%%VERSION%%", version)
    date = time.strftime("%a %b %d %Y", time.gmtime(when))
    spec.write_text(with_snippets(text.replace("%%DATE%%", date), ""))
    for path in sorted(base.rglob("*"), reverse=True):
        os.utime(path, (when, when))


def with_snippets(text: str, indent: str) -> str:
    """The text with files of platform/linux/packages for lines such as #REMOVE#."""
    for path in sorted(SNIPPETS.glob("*.sh")):
        lines = path.read_text().splitlines()
        code = "\n".join(indent + line for line in lines if not line.startswith("# shellcheck"))
        text = text.replace(f"#{path.stem.upper()}#", code)
    return text


def run(command: Sequence[str], cwd: Path, when: int) -> None:
    """Runs a tool, whose output comes in full if it fails. Raises InstallError."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(when), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    log = cwd.parent / "log"
    with log.open("w") as out:
        done = subprocess.run(
            command, cwd=cwd, env=environment, stdout=out, stderr=out, check=False
        )
    if done.returncode:
        sys.stderr.write(log.read_text(errors="replace")[-8000:])
        raise InstallError(f"{command[0]} failed: status {done.returncode}", f"see {log}")


def build_deb(base: Path, when: int) -> list[Path]:
    run(["dpkg-buildpackage", "--build=binary", "--no-sign"], base, when)
    return sorted(base.parent.glob("*.deb"))


def build_rpm(base: Path, when: int) -> list[Path]:
    top = base.parent / "rpmbuild"
    shutil.rmtree(top, ignore_errors=True)
    defines = {
        "_topdir": str(top),
        "zfstune_tree": str(base),
        "_buildhost": "localhost",
        "use_source_date_epoch_as_buildtime": "1",
        "clamp_mtime_to_source_date_epoch": "1",
    }
    words = [word for key, value in defines.items() for word in ("--define", f"{key} {value}")]
    if shutil.which("dpkg"):
        words.append("--nodeps")  # rpm knows nothing of the packages of Debian
    run(["rpmbuild", "-bb", *words, "zfstune.spec"], base, when)
    return sorted(top.glob("RPMS/*/*.rpm"))


BUILDERS = {"deb": build_deb, "rpm": build_rpm}


def build(kind: str, version: str, out: Path) -> list[Path]:
    """The packages, in the directory out. Raises InstallError."""
    if not VERSION.fullmatch(version):
        what = f"{version!r} is not a version"
        raise InstallError(
            what, "begin with a digit; use digits, letters, . + ~", status=install.USAGE
        )
    packages = missing(kind)
    if packages:
        what = f"cannot build a .{kind}: {TOOLS[kind][0]} is not installed"
        raise InstallError(what, f"run `apt install {packages}`, or on Fedora its equivalent")
    when = epoch()
    folder = BUILD / kind
    shutil.rmtree(folder, ignore_errors=True)
    base = folder / f"zfstune-{version}"
    stage(base, version, when)
    out.mkdir(parents=True, exist_ok=True)
    made = [Path(shutil.copy(path, out)) for path in BUILDERS[kind](base, when)]
    shutil.rmtree(base)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = install.Parser(
        prog="scripts/package.py",
        description="Builds packages of zfstune, from this checkout.",
        epilog=USES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("kind", choices=BUILDERS)
    parser.add_argument("--version", default=install.version(), help="default: that of zfstune")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
    try:
        given = parser.parse_args(arguments)
        for path in build(given.kind, given.version, given.out):
            print(path)
    except InstallError as error:
        return install.fail(error, "package")
    except OSError as error:
        what = f"{error.filename}: {error.strerror}"
        return install.fail(InstallError(what, "make room or use another --out"), "package")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
