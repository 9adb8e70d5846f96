"""The top level of the command line, and its errors; a command's code loads when it is called."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys

from zfstune import __version__
from zfstune.errors import CommandError, NotPossible, UsageError

# Importing typing would take a tenth of the time of `zfstune --version`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

TOP = """\
examples:
  zfstune doctor                              what can be measured here, what is missing
  zfstune trace                               all views on one screen: open it first
  zfstune trace fsync                         where fsyncs spend their time, all pools
  zfstune trace fsync tank --duration 10s     one pool, ten seconds, then a table
  zfstune trace slow --over 10ms              each fsync that takes 10 ms or more
  zfstune diagnose                            why fsyncs are slow, and what to do
  zfstune check tank --warn fsync.p99=20ms    for a monitoring system
  zfstune exporter                            metrics for Prometheus, for weeks
  zfstune params list                         the parameters and their values here
  zfstune advise tank                         bad settings, with reason and remedy
  zfstune bench tank/db                       what a synchronous write costs here
  zfstune tune tank --observe --dry-run       what a session would do
  zfstune revert                              restores all parameters
  zfstune tools extract /root                 tools for bpftrace, bcc and dtrace

exit status:
  0  done; 1  finished with a negative finding, or something could not be restored
  2  usage, or a value that the guard refuses
  3  not possible here (no ZFS, no privilege, no BTF, library not built)
  4  it failed after changing parameters; their previous values are restored
"""

# The commands in the order of `zfstune -h`, by the package whose args.py adds them.
COMMANDS = {
    "trace": ("doctor", "trace"),
    "diagnose": ("diagnose",),
    "check": ("check",),
    "exporter": ("exporter",),
    "record": ("record",),
    "flame": ("flame",),
    "params": ("params",),
    "advise": ("advise",),
    "bench": ("bench",),
    "tune": ("tune",),
    "changes": ("status", "revert", "keep", "recover"),
    "report": ("report",),
    "inside": ("tools", "licences"),
}


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line and a hint, and help of less than 100 columns."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", _formatter)
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError, where argparse would print its usage and exit. The second line of the
        message, if there is one, is the hint."""
        what, _, hint = _plain(message).partition("\n")
        raise UsageError(what, hint or f"see `{self.prog} -h`")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """After -h and --version; an error of stdout is one of the command."""
        sys.stdout.flush()
        super().exit(status, message)


def _formatter(prog: str) -> argparse.HelpFormatter:
    columns = os.environ.get("COLUMNS", "")
    width = min(int(columns), 98) if columns.isdigit() and int(columns) > 40 else 90
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=width)


def _plain(message: str) -> str:
    """argparse's message without its word "argument", and with a hint for a mistyped command."""
    choice = re.match(r"argument COMMAND: invalid choice: '([^']*)' \(choose from (.*)\)", message)
    if choice:
        import difflib

        names = choice[2].replace("'", "")
        near = difflib.get_close_matches(choice[1], names.split(", "), 1)
        guess = f"did you mean {near[0]}?" if near else f"choose from: {names}"
        return f"no command {choice[1]!r}\n{guess}"
    if message.startswith("the following arguments are required: "):
        what = message.partition(": ")[2]
        return "no command given" if what == "COMMAND" else f"{what} is missing"
    return message.removeprefix("argument ")


def build_parser(first: str = "") -> Parser:
    """The command line's parser. With its first word, only the parser of that command is made,
    since each takes a millisecond or two."""
    parser = Parser(
        prog="zfstune",
        description="Shows where an fsync on OpenZFS spends its time, and reduces it.",
        epilog=TOP,
    )
    parser.add_argument("--version", action="version", version=f"zfstune {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    wanted = [package for package, names in COMMANDS.items() if first in names]
    for package in () if first == "--version" else wanted or COMMANDS:
        importlib.import_module(f"zfstune.{package}.args").add(commands)
    return parser


# Commands for whole pools, and what each makes
_WHOLE = {"tune": "session", "diagnose": "diagnosis", "check": "check"}


def _check_names(args: argparse.Namespace) -> None:
    """Checks POOL and --dataset as far as possible without a look at the host."""
    pool, dataset = getattr(args, "pool", None), getattr(args, "dataset", None)
    for given in filter(None, (pool, dataset)):
        if not (given.isascii() and given.isprintable()):
            raise UsageError(f"no pool or dataset can have the name {given!r}", "see `zfs list`")
    if pool is not None and "/" in pool and args.command in _WHOLE:
        name = pool.split("/", 1)[0]
        raise UsageError(
            f"{pool!r} is a dataset: a {_WHOLE[args.command]} is for a whole pool", f"write {name}"
        )
    if pool is not None and "/" in pool:
        raise UsageError(f"{pool!r} is a dataset, not a pool", f"write --dataset {pool}")
    if pool == "" or dataset == "":
        raise UsageError("the name of a pool or dataset is empty", "leave it out for all of them")
    if dataset is not None:
        if "@" in dataset:
            raise UsageError(f"{dataset!r} is a snapshot: nothing writes to it", "name a dataset")
        if pool is not None and dataset.split("/", 1)[0] != pool:
            raise UsageError(f"dataset {dataset!r} is not in pool {pool!r}", "leave the pool out")


def _check_first(argv: Sequence[str]) -> None:
    """An unknown option before the command, for which argparse would only say "no command"."""
    first = argv[0] if argv else ""
    if first.startswith("-") and first not in ("-", "--", "-h", "--help", "--version"):
        raise UsageError(f"no option {_shown(first)}", "see `zfstune -h`")


def _shown(*words: str) -> str:
    """Words of the command line with passwords masked."""
    from zfstune.term.secrets import masked

    return " ".join(map(masked, words))


def _one_line(text: str) -> str:
    from zfstrace.printable import printable

    return " ".join(printable(text).split())


# zfstune.changes.recover does it itself; the others promise to change nothing
_NO_RECOVERY = (
    "changes.recover",
    "advise.command",
    "check.command",
    "exporter.command",
    "record.command",
)


def _run(argv: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        # a dataset's name may not be encodable in the locale
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    _check_first(argv)
    args, unknown = build_parser(argv[0] if argv else "").parse_known_args(argv)
    if hasattr(args, "anywhere") and not any(word.startswith("-") for word in unknown):
        # argparse takes the words of an argument from one place only: none after an option
        setattr(args, args.anywhere, [*getattr(args, args.anywhere), *unknown])
    elif unknown:
        name = " ".join(filter(None, (args.command, getattr(args, "what", None))))
        raise UsageError(f"unrecognized arguments: {_shown(*unknown)}", f"see `zfstune {name} -h`")
    _check_names(args)
    from zfstrace.errors import TraceError, UnknownName
    from zfstune.changes.recovery import if_needed

    command = importlib.import_module(f"zfstune.{args.run}")
    if args.run not in _NO_RECOVERY:
        if_needed(f"zfstune {args.command}")
    try:
        status: int = command.run(args)
    except UnknownName as error:
        raise UsageError(str(error), error.hint) from None
    except TraceError as error:
        raise NotPossible(str(error), error.hint) from None
    sys.stdout.flush()
    return status


def _fail(error: CommandError, argv: Sequence[str]) -> int:
    """Prints an error and its hint on stderr, that of a plugin as its line on stdout; returns the
    exit status."""
    what, hint = _one_line(_shown(str(error))), _one_line(_shown(error.hint))
    if argv and argv[0] == "check":
        from zfstune.check.judge import failed

        return failed(f"{what}; {hint}" if hint else what, as_json="--json" in argv)
    print(f"zfstune: error: {what}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    for line in error.more:
        print(line, file=sys.stderr)
    return error.status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status; prints errors and their hints."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        return _run(argv)
    except CommandError as error:
        return _fail(error, argv)
    except BrokenPipeError:
        # the reader has what it wanted
        _give_up_stdout()
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        why = _one_line(f"{what}{error.strerror or error}")
        _give_up_stdout()
        return _fail(NotPossible(f"cannot go on: {why}"), argv)


def _give_up_stdout() -> None:
    """Discards what stdout cannot take: Python would try again at exit, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
