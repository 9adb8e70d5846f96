"""The command line of `scripts/lab`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from . import disk, image, kvm, qemu, recipe, session
from .errors import NOT_POSSIBLE, USAGE, LabError
from .machine import Options
from .units import parse_size, parse_time_s

CHECKOUT = Path(__file__).resolve().parent.parent.parent

# How long a guest may take to be ready: three times what it takes on a busy machine
_BOOT_S = {"debian": 180.0, "freebsd": 300.0}

_T = TypeVar("_T")

_EXAMPLES = """\
examples:
  scripts/lab build                      make the image of Debian 13, once, about 8 minutes
  scripts/lab run -- zfs version         run a command in a fresh guest
  scripts/lab run --disk size=8G,write-iops=600 -- sh -c 'zpool create tank vdb && zpool status'
  scripts/lab shell --flavour bookworm   look around by hand

docs/lab.md says more."""

_RUN_EXAMPLES = """\
examples:
  scripts/lab run -- uname -r
  scripts/lab run --flavour bookworm --disk size=4G -- sh -c 'zpool create tank vdb && zfs list'
  scripts/lab run --disk size=8G,write-bps=30M,write-iops=600 --disk flush-delay=20ms -- ./mytest
  scripts/lab run --out results -- sh -c 'fio --output=/out/fio.json ...'

exit status: that of COMMAND; 125 if the guest panicked, hung or took too long; 2 for a wrong
command line; 3 if this machine lacks something."""

_BUILD_EXAMPLES = """\
examples:
  scripts/lab build                      Debian 13: kernel 6.12, ZFS 2.3
  scripts/lab build bookworm             Debian 12: kernel 6.1, ZFS 2.1
  scripts/lab build all                  all flavours
  scripts/lab build --again trixie       rebuild with today's packages
  scripts/lab build bookworm-2.2 --zfs-source zfs-2.2.9.tar.gz
  scripts/lab build trixie-mine --zfs-source ~/src/zfs
                                         OpenZFS of an archive or a tree, under a name of yours"""

_SHELL_EXAMPLES = """\
examples:
  scripts/lab shell
  scripts/lab shell --flavour trixie-backports --disk size=4G --disk size=1G

Leave with `exit` or Ctrl-D; the guest and its disks are gone then."""

_DISK_HELP = (
    "add a disk: /dev/vdb, then /dev/vdc...; SPEC is size=8G,KEY=VALUE,... with the keys "
    "sector (physical, in bytes), bps, read-bps, write-bps, iops, read-iops, write-iops (limits, "
    "per second), burst (what of them may be used later, as 1s), read-delay, write-delay, "
    "flush-delay (as 20ms, on /dev/mapper/vdb-delay), cache; "
    "FreeBSD's are /dev/vtbd1, /dev/vtbd2..., with delays too"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raises LabError. The second line of an ArgumentTypeError, if any, is the hint."""
        what, _, hint = message.partition("\n")
        raise LabError(what, hint or f"see `{self.prog} -h`", status=USAGE)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    try:
        given = parse(sys.argv[1:] if arguments is None else arguments)
        return _COMMANDS[given.action](given)
    except LabError as error:
        print(f"lab: error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except OSError as error:  # a full disk, TMPDIR that does not exist
        where = f"{error.filename}: " if error.filename else ""
        print(f"lab: error: {where}{error.strerror or error}", file=sys.stderr)
        return NOT_POSSIBLE


def parse(arguments: list[str]) -> argparse.Namespace:
    """The parsed command line; words after `--` are in `command`, untouched. Raises LabError."""
    command: list[str] = []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, command = arguments[:split], arguments[split + 1 :]
    given = _parser().parse_args(arguments)
    if given.action == "run":
        given.command = [*given.command, *command]
        if not given.command:
            raise LabError("run: COMMAND is missing", "write it after `--`", status=USAGE)
    elif command:
        raise LabError(f"{given.action} takes no COMMAND", "use `scripts/lab run`", status=USAGE)
    return given


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="scripts/lab",
        description="Virtual machines with OpenZFS: stock Debian kernels, and FreeBSD.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str, epilog: str = "") -> argparse.ArgumentParser:
        return actions.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    build = action("build", "build images that do not exist yet", _BUILD_EXAMPLES)
    build.add_argument(
        "flavours",
        nargs="*",
        metavar="FLAVOUR",
        help=f"{', '.join(recipe.FLAVOURS)} or all (default: {recipe.DEFAULT_FLAVOUR}); "
        "trixie-WORD or bookworm-WORD with --zfs-source",
    )
    build.add_argument(
        "--zfs-source",
        type=_checked(_existing),
        metavar="FILE",
        help="compile OpenZFS from this archive or tree (default: $ZFSTUNE_ZFS_SOURCE)",
    )
    build.add_argument("--again", action="store_true", help="rebuild existing images")

    run = action("run", "run a command as root in a fresh guest", _RUN_EXAMPLES)
    _machine_arguments(run)
    run.add_argument(
        "--timeout",
        type=_checked(_positive_time),
        default=session.Limits.command_s,
        metavar="TIME",
        help="how long COMMAND may take, as 90s or 5m (default: 30m)",
    )
    run.add_argument(
        "--reboots",
        type=_checked(_count),
        default=0,
        metavar="N",
        help="how often COMMAND may reboot the guest; it runs again after each, with "
        "$ZFSTUNE_LAB_BOOT one higher (default: 0)",
    )
    run.add_argument(
        "--instructions",
        type=Path,
        metavar="DIR",
        help="count the instructions between marks of COMMAND's into files in DIR (docs/lab.md); "
        "emulated only",
    )
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND...")

    _machine_arguments(action("shell", "open a shell in a fresh guest", _SHELL_EXAMPLES))
    action("list", "list the images, their versions and sizes")
    clean = action("clean", "remove images of older recipes, and leftovers")
    clean.add_argument("--all", action="store_true", help="remove all images")
    return parser


def _machine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flavour",
        default=recipe.DEFAULT_FLAVOUR,
        metavar="F",
        help=f"{', '.join(recipe.NAMES)} (default: {recipe.DEFAULT_FLAVOUR})",
    )
    parser.add_argument("--cpus", type=_checked(_cpus), default=2, metavar="N", help="default: 2")
    parser.add_argument(
        "--max-cpus",
        type=_checked(_cpus),
        default=1,
        metavar="N",
        help="possible CPUs, of which the rest can be hot-plugged (default: as --cpus)",
    )
    parser.add_argument(
        "--memory", type=_checked(_memory), default=4 << 30, metavar="SIZE", help="default: 4G"
    )
    parser.add_argument(
        "--disk",
        type=disk.parse_disk,
        action="append",
        default=[],
        metavar="SPEC",
        help=_DISK_HELP,
    )
    parser.add_argument(
        "--share", type=_checked(_directory), metavar="DIR", help="show DIR, read-only, as /share"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="directory for files that the guest leaves in /out; created if necessary",
    )
    parser.add_argument(
        "--image",
        type=_checked(_file),
        metavar="FILE",
        help="disk image of FreeBSD, for its flavours (default: $ZFSTUNE_FREEBSD_IMAGE)",
    )
    parser.add_argument("--no-zfs", action="store_true", help="do not load the zfs module")
    parser.add_argument(
        "--systemd", action="store_true", help="run COMMAND as a unit, below systemd (not FreeBSD)"
    )
    parser.add_argument(
        "--kernel-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="add ARG to the kernel command line",
    )
    parser.add_argument(
        "--accel",
        choices=("auto", "kvm", "tcg"),
        default="auto",
        help="virtualisation: auto (default) uses KVM if a test boot succeeds with it",
    )
    parser.add_argument(
        "--console", type=Path, metavar="FILE", help="write the kernel's console log to FILE"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print versions, and when the guest is ready"
    )


def _build(given: argparse.Namespace) -> int:
    names = given.flavours or [recipe.DEFAULT_FLAVOUR]
    if "all" in names:
        names = list(recipe.FLAVOURS)
    for name in names:
        recipe.flavour(name)  # reject wrong names before minutes of work
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it cleans up
    if given.zfs_source and not any(recipe.compiles(name) for name in names):
        what = "--zfs-source is for a flavour that compiles OpenZFS"
        raise LabError(what, f"call it {names[0]}-WORD, with a word of yours", status=USAGE)
    for name in names:
        built = image.build(name, given.again, given.zfs_source)
        facts = built.manifest()
        print(f"{built.flavour}: kernel {facts['kernel']}, ZFS {facts['zfs']}")
    return 0


def _run(given: argparse.Namespace) -> int:
    return _start(
        given,
        given.command,
        terminal=False,
        command_s=given.timeout,
        reboots=given.reboots,
        instructions=given.instructions,
    )


def _shell(given: argparse.Namespace) -> int:
    if not sys.stdin.isatty():
        raise LabError("shell needs a terminal", "use `scripts/lab run`", status=USAGE)
    print("lab: starting, 10 to 30 seconds under emulation", file=sys.stderr)
    shell = "sh" if given.flavour in recipe.FREEBSD else "bash"
    return _start(given, [shell, "-l"], terminal=True, command_s=0)


def _start(
    given: argparse.Namespace,
    command: list[str],
    *,
    terminal: bool,
    command_s: float,
    reboots: int = 0,
    instructions: Path | None = None,
) -> int:
    if instructions and given.accel == "kvm":
        what = "--instructions needs emulation"
        raise LabError(what, "leave --accel out, or use --accel tcg", status=USAGE)
    found = image.find(given.flavour, given.image)
    if found.system == "freebsd" and (given.kernel_arg or given.max_cpus > 1 or given.systemd):
        what = f"--kernel-arg, --max-cpus and --systemd are for Linux, not for {given.flavour}"
        raise LabError(what, status=USAGE)
    program = qemu.find()
    if given.out is not None:
        try:
            given.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"--out {given.out}: {error.strerror}", status=USAGE) from None
    accelerator = qemu.ONE_THREAD if instructions else kvm.accelerator(program, found, given.accel)
    if given.verbose:
        print(
            f"lab: {found.flavour} {found.key}, QEMU {program.shown}, {accelerator}",
            file=sys.stderr,
        )
    options = Options(
        checkout=CHECKOUT,
        cpus=given.cpus,
        possible_cpus=given.max_cpus,
        memory_bytes=given.memory,
        disks=tuple(given.disk),
        share=given.share and given.share.resolve(),
        out=given.out and given.out.resolve(),
        zfs=not given.no_zfs,
        kernel_arguments=tuple(given.kernel_arg),
        reboots=reboots,
        instructions=instructions and instructions.resolve(),
        systemd=given.systemd,
    )
    return session.run(
        program,
        accelerator,
        found,
        options,
        command,
        limits=session.Limits(_BOOT_S[found.system], command_s),
        terminal=terminal,
        verbose=given.verbose,
        console_path=given.console,
    )


def _list(given: argparse.Namespace) -> int:
    images = image.everything()
    if images:
        print(f"{'flavour':<18}{'kernel':<30}{'zfs':<22}{'size':>6}  built")
    for found in images:
        print(image.describe(found))
    missing = set(recipe.FLAVOURS) - {found.flavour for found in images if image.is_current(found)}
    for name in recipe.FLAVOURS:
        if name in missing:
            print(f"{name:<18}not built: `scripts/lab build {name}`")
    return 0


def _clean(given: argparse.Namespace) -> int:
    for name in image.clean(given.all):
        print(f"removed {name}")
    return 0


def _checked(convert: Callable[[str], _T]) -> Callable[[str], _T]:
    """Makes argparse show the text of `convert`'s ValueError."""

    def checked(text: str) -> _T:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _positive_time(text: str) -> float:
    value_s = parse_time_s(text)
    if value_s <= 0:
        raise ValueError("must be more than 0")
    return value_s


def _memory(text: str) -> int:
    value = parse_size(text)
    if value < 512 << 20:
        raise ValueError(f"{text} is too little: the guest needs 512M")
    return value


def _cpus(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise ValueError(f"{text!r} is not a number of CPUs between 1 and 64")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > 99:
        raise ValueError(f"{text!r} is not a number from 0 to 99")
    return int(text)


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"{text} is not a file")
    return path


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.exists():
        raise ValueError(f"{text} does not exist")
    return path


def _directory(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise ValueError(f"{text} is not a directory")
    return path


_COMMANDS = {"build": _build, "run": _run, "shell": _shell, "list": _list, "clean": _clean}
