#!/usr/bin/env python3
"""Installs zfstune or its one-file tools below a prefix, or removes them; called by `make install`
and `make install-tools`."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

if sys.version_info < (3, 9):  # noqa: UP036  (the reader may have an older one)
    sys.exit(
        "install: error: Python 3.9 or newer is needed: this is "
        f"{sys.version_info.major}.{sys.version_info.minor}\n"
        "hint: put a newer python3 first in PATH"
    )

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "tracers/zfstrace",
    "tuner/zfstune",
    "platform/linux/zfs_linux",
    "platform/freebsd/zfs_freebsd",
)
# sources, py.typed, rules, and parts of the pages of flame graphs and reports
MODULE_FILES = (".py", ".typed", ".json", ".css", ".js")
LIBRARY = ROOT / "tracers/libzfstrace/libzfstrace.so"
API = ROOT / "tracers/libzfstrace"
HEADERS = ("zfstrace.h", "zfstrace_tables.h")
COMPLETION = ROOT / "docs/completion"
UNIT_FILES = ROOT / "platform/linux/systemd"
DROP_INS = UNIT_FILES / "examples"
RC_SCRIPTS = ROOT / "platform/freebsd/rc.d"
# dashboard and rules, for Grafana and Prometheus
MONITORING_FILES = ROOT / "platform/monitoring"
SYSTEMS = ("linux", "freebsd")
SYSTEM = "freebsd" if sys.platform.startswith("freebsd") else "linux"  # this one

sys.path.insert(0, str(ROOT / "tuner"))
# Under sudo, byte code of root's would stay in somebody else's checkout.
if ROOT.stat().st_uid != os.geteuid():
    sys.dont_write_bytecode = True

from zfstune.inside import collect  # noqa: E402

# Below the prefix. HOME is ours alone.
HOME = Path("lib/zfstune")
PYTHON = HOME / "python"
COMMAND = Path("bin/zfstune")
LIB = Path("lib")
INCLUDE = Path("include")
PKG_CONFIG = Path("lib/pkgconfig/zfstrace.pc")
EXAMPLES = Path("share/doc/zfstune/examples")
MAN = Path("share/man/man1")
MAN_C = Path("share/man/man3")
# by their files in docs/completion
COMPLETIONS = {
    "zfstune.bash": Path("share/bash-completion/completions/zfstune"),
    "_zfstune": Path("share/zsh/site-functions/_zfstune"),
    "zfstune.fish": Path("share/fish/vendor_completions.d/zfstune.fish"),
}
UNITS = Path("lib/systemd/system")
RC = Path("etc/rc.d")
MONITORING = Path("share/zfstune/monitoring")
# what `zfstune trace` and `zfstune flame` run on FreeBSD
SCRIPTS = ("*-json.d", "fsyncstack.d")
SCRIPT_HOME = HOME / "dtrace"

# The one-file tools need root, so they go where root finds commands, with their suffixes; Debian
# also puts bpftrace's tools there.
TOOLS = collect.PATTERNS
TOOL_PAGES = {"linux": "*.8", "freebsd": "*.d.8"}
TOOL_COMMANDS = Path("sbin")
TOOL_MAN = Path("share/man/man8")

# Our files in shared directories.
OURS = (
    (INCLUDE, "zfstrace*.h"),
    (EXAMPLES, "*.c"),
    (EXAMPLES, "zfstune-*.conf"),
    (MAN, "zfstune.1"),
    (MAN, "zfstune-*.1"),
    (MAN_C, "zfstrace.3"),
    (UNITS, "zfstune-*"),
    (RC, "zfstune"),
    (RC, "zfstune_*"),
    (MONITORING, "*.json"),
    (MONITORING, "*.yml"),
)

USAGE = 2
NOT_POSSIBLE = 3

# It begins as that of the checkout, and finds the rest relative to itself: the prefix may be moved
# or staged (DESTDIR).
_HEAD, _, _ = (ROOT / "bin/zfstune").read_text().partition("# --- what differs")
LAUNCHER = (
    _HEAD
    + """\
# installed by `make install`
lib = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + "/lib"
os.environ.setdefault("ZFSTUNE_LIB", lib + "/%%LIBRARY%%")
sys.path.insert(0, lib + "/zfstune/python")

from zfstune.__main__ import main

sys.exit(main())
"""
)

USES = """\
examples:
  sudo make install                               into /usr/local
  make install PREFIX=$HOME/.local                without root
  make install PREFIX=/usr DESTDIR=stage          for a package (see also `make deb`)
  sudo python3 scripts/install.py --uninstall     remove it from /usr/local
  sudo make install-tools                         only the one-file tools, into /usr/local/sbin
  python3 scripts/install.py                      on FreeBSD, as root: nothing is built there
"""


class InstallError(Exception):
    """Printed as `PROGRAM: error: WHAT: WHY` and `hint: WHAT TO DO`; scripts/package.py and
    scripts/dist raise it as well."""

    def __init__(self, message: str, hint: str, *, status: int = NOT_POSSIBLE) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status


class Parser(argparse.ArgumentParser):
    """Its errors come with a hint, as all others."""

    def error(self, message: str) -> NoReturn:
        raise InstallError(message, f"see `{self.prog} -h`", status=USAGE)


@dataclass(frozen=True)
class Entry:
    """A file to install; target is below the prefix. If link is not "", it is a symbolic link to
    that."""

    target: Path
    content: bytes = b""
    mode: int = 0o644
    link: str = ""


def entries(
    system: str = "linux", prefix: str = "/usr/local", *, private: bool = False
) -> Iterator[Entry]:
    """All files of an installation. private: the library is for the command alone, and without
    what programs in C need. Raises InstallError if the library, which only Linux has, is not
    built."""
    if system == "linux" and not LIBRARY.exists():
        raise InstallError(f"{LIBRARY.name} is not built", "run `make all` first")
    for name, data in modules():
        yield Entry(PYTHON / name, data)
    library = (HOME if private else LIB) / soname()
    command = LAUNCHER.replace("%%LIBRARY%%", str(library.relative_to(LIB)))
    yield Entry(COMMAND, command.encode(), 0o755)
    yield from help_entries()
    yield from monitoring_entries()
    if system == "freebsd":
        for path in sorted(RC_SCRIPTS.iterdir()):
            script = path.read_bytes().replace(b"%%PREFIX%%", prefix.encode())
            yield Entry(RC / path.name, script, 0o555)
        for pattern in SCRIPTS:
            for path in sorted((ROOT / "tracers/dtrace/freebsd").glob(pattern)):
                yield Entry(SCRIPT_HOME / path.name, path.read_bytes())
        return
    for path in sorted(UNIT_FILES.glob("*.*")):
        yield Entry(UNITS / path.name, path.read_bytes())
    for path in sorted(DROP_INS.iterdir()):
        yield Entry(EXAMPLES / path.name, path.read_bytes())
    if private:
        yield Entry(library, LIBRARY.read_bytes())
    else:
        yield from library_entries(prefix)


def help_entries() -> Iterator[Entry]:
    """Manual pages of the command, and its completion for shells."""
    for path in sorted((ROOT / "docs/man").glob("*.1")):
        yield Entry(MAN / path.name, path.read_bytes())
    for name, target in COMPLETIONS.items():
        yield Entry(target, (COMPLETION / name).read_bytes())


def monitoring_entries() -> Iterator[Entry]:
    """The dashboard and the rules."""
    for suffix in ("json", "yml"):
        for path in sorted(MONITORING_FILES.glob(f"*.{suffix}")):
            yield Entry(MONITORING / path.name, path.read_bytes())


def modules() -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of the packages, and of those that collect makes."""
    for package in PACKAGES:
        source = ROOT / package
        for path in sorted(source.rglob("*")):
            if path.suffix in MODULE_FILES:
                yield str(path.relative_to(source.parent)), path.read_bytes()
    yield "zfstune/inside/tools.json", json.dumps(collect.tools(ROOT)).encode()
    licences = collect.licences(ROOT, version())
    yield "zfstune/inside/licences.json", json.dumps(licences).encode()


def version() -> str:
    """That of zfstune."""
    return one_of(r'^__version__ = "(.+)"$', ROOT / "tuner/zfstune/__init__.py")


def library_entries(prefix: str) -> Iterator[Entry]:
    """libzfstrace, with everything needed to use it from C."""
    yield Entry(LIB / soname(), LIBRARY.read_bytes())
    yield Entry(LIB / LIBRARY.name, link=soname())
    for name in HEADERS:
        yield Entry(INCLUDE / name, (API / name).read_bytes())
    text = (API / "zfstrace.pc.in").read_text()
    text = text.replace("%%PREFIX%%", prefix).replace("%%VERSION%%", version())
    yield Entry(PKG_CONFIG, text.encode())
    for path in sorted((API / "examples").glob("*.c")):
        yield Entry(EXAMPLES / path.name, path.read_bytes())
    for path in sorted((ROOT / "docs/man").glob("*.3")):
        yield Entry(MAN_C / path.name, path.read_bytes())


def soname() -> str:
    """The library's file name with its ABI number."""
    return f"{LIBRARY.name}.{one_of(r'^#define ZFSTRACE_ABI ([0-9]+)$', API / HEADERS[0])}"


def one_of(pattern: str, path: Path) -> str:
    """The pattern's group in the only matching line of the file."""
    (found,) = re.findall(pattern, path.read_text(), re.MULTILINE)
    return str(found)


def tool_entries(system: str) -> Iterator[Entry]:
    """The one-file tools of a system, for bpftrace, bcc or dtrace, and their manual pages, none of
    which is built."""
    for pattern in TOOLS[system]:
        for path in sorted(ROOT.glob(pattern)):
            yield Entry(TOOL_COMMANDS / path.name, path.read_bytes(), 0o755)
    for path in sorted((ROOT / "docs/man").glob(TOOL_PAGES[system])):
        yield Entry(TOOL_MAN / path.name, path.read_bytes())


def plist() -> str:
    """The pkg-plist of the FreeBSD port, which compresses manual pages."""
    targets = [entry.target for entry in (*entries("freebsd"), *tool_entries("freebsd"))]
    names = (f"{t}.gz" if t.parent in (MAN, TOOL_MAN) else str(t) for t in targets)
    return "".join(f"{name}\n" for name in sorted(names))


def install_tools(base: Path, system: str) -> None:
    """Puts the one-file tools below base."""
    for entry in tool_entries(system):
        write(base, entry)
        print(base / entry.target)


def uninstall_tools(base: Path, system: str) -> None:
    """Removes the one-file tools below base."""
    for entry in tool_entries(system):
        with suppress(FileNotFoundError):
            (base / entry.target).unlink()
            print(f"removed {base / entry.target}")


def install(base: Path, wanted: Sequence[Entry]) -> None:
    """Puts everything below base, which is the prefix below DESTDIR."""
    for entry in wanted:
        write(base, entry)
        print(base / entry.target)
    kept = {base / entry.target for entry in wanted}
    for path in own_files(base):
        # modules of older versions, and stale byte code
        if path not in kept:
            path.unlink()


def uninstall(base: Path) -> None:
    """Removes everything below base, including files of older versions."""
    found = [base / path for path in (COMMAND, *COMPLETIONS.values(), PKG_CONFIG)]
    for folder, pattern in OURS:
        # a directory of drop-ins beside a unit is not ours
        found += sorted(path for path in (base / folder).glob(pattern) if not path.is_dir())
    found += own_files(base)
    for path in found:
        with suppress(FileNotFoundError):
            path.unlink()
            if path.suffix != ".pyc":
                print(f"removed {path}")
    for home in (base / HOME, base / EXAMPLES.parent, base / MONITORING.parent):
        directories = [path for path in home.rglob("*") if path.is_dir()]
        for path in [*sorted(directories, reverse=True), home]:
            with suppress(OSError):  # not empty: it has files that are not ours
                path.rmdir()


def own_files(base: Path) -> list[Path]:
    """The installed packages with their byte code, the D scripts, and libraries of any ABI."""
    found = sorted((base / SCRIPT_HOME).glob("*.d"))
    for folder in (LIB, HOME):
        found += sorted((base / folder).glob(f"{LIBRARY.name}*"))
    for package in PACKAGES:
        directory = base / PYTHON / Path(package).name
        found += [path for path in sorted(directory.rglob("*")) if not path.is_dir()]
    return found


def write(base: Path, entry: Entry) -> None:
    """Atomically replaces a file: a running command may have the old one mapped."""
    path = base / entry.target
    make_directory(path.parent)
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(entry.content)
        if entry.link:
            Path(name).unlink()
            Path(name).symlink_to(entry.link)
        else:
            Path(name).chmod(entry.mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise


def make_directory(path: Path) -> None:
    """Makes a directory and its parents, readable for all whatever the umask."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir()
        path.chmod(0o755)


def base_of(prefix: str, destdir: str) -> Path:
    """The prefix, below destdir if that is not "". Raises InstallError."""
    if not Path(prefix).is_absolute():
        what = f"--prefix {prefix!r} does not begin with /"
        raise InstallError(what, "give an absolute path", status=USAGE)
    return Path(destdir).absolute() / prefix.lstrip("/") if destdir else Path(prefix)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = Parser(
        prog="scripts/install.py",
        description="Installs zfstune below a prefix; running it again replaces everything.",
        epilog=USES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--prefix", default="/usr/local", help="default: /usr/local")
    parser.add_argument("--destdir", default="", help="stage the files below this directory")
    parser.add_argument("--uninstall", action="store_true", help="remove instead of installing")
    parser.add_argument(
        "--system", choices=SYSTEMS, default=SYSTEM, help="install for it, default: this system"
    )
    parser.add_argument("--tools", action="store_true", help="only the one-file tools")
    parser.add_argument(
        "--private", action="store_true", help="the library for the command alone, in lib/zfstune"
    )
    parser.add_argument("--plist", action="store_true", help="only print the port's pkg-plist")
    try:
        given = parser.parse_args(arguments)
        if given.plist:
            print(plist(), end="")
            return 0
        base = base_of(given.prefix, given.destdir)
        if given.tools:
            (uninstall_tools if given.uninstall else install_tools)(base, given.system)
        else:
            if given.uninstall:
                uninstall(base)
            else:
                wanted = list(entries(given.system, given.prefix, private=given.private))
                install(base, wanted)
    except InstallError as error:
        return fail(error)
    except PermissionError as error:
        what = f"no permission to change {error.filename}"
        return fail(InstallError(what, "use sudo or another --prefix"))
    except OSError as error:
        what = f"{error.filename}: {error.strerror}"
        return fail(InstallError(what, "make room or use another --prefix"))
    return 0


def fail(error: InstallError, program: str = "install") -> int:
    """Prints the error and its hint; returns its status."""
    print(f"{program}: error: {error}\nhint: {error.hint}", file=sys.stderr)
    return error.status


if __name__ == "__main__":
    sys.exit(main())
