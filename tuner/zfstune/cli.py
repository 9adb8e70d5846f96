"""The command line: its top level and its errors; the commands load when they are called."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys

from zfstune import __version__
from zfstune.errors import NOT_POSSIBLE, CommandError, NotPossible, UsageError

# As everywhere: typing would be a tenth of the start of `zfstune --version`, and its constant says
# no more. What stands below it is either for types alone, or loaded where it is needed.
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
  zfstune params list                         the parameters, and what they are here
  zfstune advise tank                         what is set up badly, and what would change it
  zfstune bench tank/db                       what a synchronous write costs here
  zfstune tune tank --observe --dry-run       how better ones would be searched
  zfstune revert                              all parameters as they were before

exit status:
  0  done; 1  finished with a negative finding, or something could not be put back
  2  usage, or a value that the guard refuses
  3  not possible here (no ZFS, no privilege, no BTF, library not built)
  4  it failed after parameters had been changed; all is as it was before
"""

# The commands in the order of `zfstune -h`, by the package whose args.py adds them.
_COMMANDS = {
    "trace": ("doctor", "trace"),
    "diagnose": ("diagnose",),
    "flame": ("flame",),
    "params": ("params",),
    "advise": ("advise",),
    "bench": ("bench",),
    "tune": ("tune",),
    "changes": ("status", "revert", "keep", "recover"),
    "report": ("report",),
}


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, and help under 100 columns."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", _formatter)
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError, where argparse would print its usage and exit. The second line of an
        ArgumentTypeError, if it has one, is the hint."""
        what, _, hint = message.partition("\n")
        raise UsageError(_plain(what), hint or f"see `{self.prog} -h`")


def _formatter(prog: str) -> argparse.HelpFormatter:
    columns = os.environ.get("COLUMNS", "")
    width = min(int(columns), 98) if columns.isdigit() and int(columns) > 40 else 90
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=width)


def _plain(message: str) -> str:
    """argparse's message without its word "argument", and with a guess at a typing error."""
    choice = re.match(r"argument COMMAND: invalid choice: '([^']*)' \(choose from (.*)\)", message)
    if choice:
        import difflib

        names = choice[2].replace("'", "")
        near = difflib.get_close_matches(choice[1], names.split(", "), 1)
        guess = f"did you mean {near[0]}?" if near else f"there are: {names}"
        return f"no command {choice[1]!r}: {guess}"
    if message.startswith("the following arguments are required: "):
        what = message.partition(": ")[2]
        return "no command given" if what == "COMMAND" else f"{what} is missing"
    return " ".join(message.removeprefix("argument ").split())


def build_parser(first: str = "") -> Parser:
    """The command line; all of it, or as much as it takes when its first word is known: the parser
    of a command takes a millisecond or two."""
    parser = Parser(
        prog="zfstune",
        description="Finds out where an fsync on OpenZFS spends its time, and makes it shorter.",
        epilog=TOP,
    )
    parser.add_argument("--version", action="version", version=f"zfstune {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    wanted = [package for package, names in _COMMANDS.items() if first in names]
    for package in () if first == "--version" else wanted or _COMMANDS:
        importlib.import_module(f"zfstune.{package}.args").add(commands)
    return parser


def _check_names(args: argparse.Namespace) -> None:
    """What can be told about POOL and --dataset without a look at the host."""
    pool, dataset = getattr(args, "pool", None), getattr(args, "dataset", None)
    for given in filter(None, (pool, dataset)):
        if not (given.isascii() and given.isprintable()):
            raise UsageError(f"{given!r}: no pool or dataset has such a name, see `zfs list`")
    if pool is not None and "/" in pool and args.command in ("tune", "diagnose"):
        name = pool.split("/", 1)[0]
        what = "session" if args.command == "tune" else "diagnosis"
        raise UsageError(f"{pool!r} is a dataset, a {what} is for a whole pool, write {name}")
    if pool is not None and "/" in pool:
        raise UsageError(f"{pool!r} is a dataset, not a pool, write --dataset {pool}")
    if pool == "" or dataset == "":
        raise UsageError("the name of a pool or dataset is empty, leave it out for all")
    if dataset is not None:
        if "@" in dataset:
            raise UsageError(f"{dataset!r} is a snapshot, nothing is written there, name a dataset")
        if pool is not None and dataset.split("/", 1)[0] != pool:
            raise UsageError(f"dataset {dataset!r} is not in pool {pool!r}, leave the pool out")


def _check_first(argv: Sequence[str]) -> None:
    """argparse would only say that there is no command."""
    first = argv[0] if argv else ""
    if first.startswith("-") and first not in ("-", "--", "-h", "--help", "--version"):
        raise UsageError(f"no option {_shown(first)}", "see `zfstune -h`")


def _shown(*words: str) -> str:
    """Words of the command line, without passwords."""
    from zfstune.term.secrets import masked

    return " ".join(map(masked, words))


def _one_line(text: str) -> str:
    from zfstrace.printable import printable

    return " ".join(printable(text).split())


def _run(argv: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        # a dataset may have a name that the locale cannot write
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    _check_first(argv)
    args, unknown = build_parser(argv[0] if argv else "").parse_known_args(argv)
    if unknown:
        name = " ".join(filter(None, (args.command, getattr(args, "what", None))))
        raise UsageError(f"unrecognized arguments: {_shown(*unknown)}", f"see `zfstune {name} -h`")
    _check_names(args)
    from zfstrace.errors import TraceError, UnknownName
    from zfstune.changes.recovery import if_needed

    command = importlib.import_module(f"zfstune.{args.run}")
    # advise promises to change nothing
    if args.run not in ("changes.recover", "advise.command"):
        if_needed(f"zfstune {args.command}")
    try:
        status: int = command.run(args)
    except UnknownName as error:
        raise UsageError(str(error), error.hint) from None
    except TraceError as error:
        raise NotPossible(str(error), error.hint) from None
    sys.stdout.flush()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status; an error goes to stderr, and a hint below it."""
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except CommandError as error:
        print(f"zfstune: error: {_one_line(_shown(str(error)))}", file=sys.stderr)
        if error.hint:
            print(f"hint: {_one_line(_shown(error.hint))}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        # The reader has what it wanted. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        why = _one_line(f"{what}{error.strerror or error}")
        print(f"zfstune: error: cannot go on: {why}", file=sys.stderr)
        return NOT_POSSIBLE
