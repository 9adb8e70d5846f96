"""The command line: its top level and its errors; the commands load when they are called."""

from __future__ import annotations

import argparse
import os
import re
import sys

from zfstune import __version__
from zfstune.errors import NEGATIVE, CommandError, NotPossible, UsageError
from zfstune.flame_args import add_flame
from zfstune.trace_args import STATUS, add_trace, number, span

# Not from typing: that alone would be a tenth of the start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

TOP = f"""\
examples:
  zfstune doctor                              what can be measured here, what is missing
  zfstune trace                               all views on one screen: open it first
  zfstune trace fsync                         where fsyncs spend their time, all pools
  zfstune trace fsync tank --duration 10s     one pool, ten seconds, then a table
  zfstune trace slow --over 10ms              each fsync that takes 10 ms or more

{STATUS}
"""

DOCTOR = """\
Loads and attaches nothing. Works without privilege as far as that goes.

examples:
  zfstune doctor
  sudo zfstune doctor
  zfstune doctor --json | jq '.checks[] | select(.status != "ok")'

exit status:
  0  all there; 1  something cannot be measured; 3  tracing is not possible here
"""


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, and help under 100 columns."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", _formatter)
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{_plain(message)}, see `{self.prog} -h`")


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
        return f"no command {choice[1]!r}, {guess}"
    if message.startswith("the following arguments are required: "):
        what = message.partition(": ")[2]
        return "no command given" if what == "COMMAND" else f"{what} is missing"
    return " ".join(message.removeprefix("argument ").split())


def build_parser() -> Parser:
    """All of the command line."""
    parser = Parser(
        prog="zfstune",
        description="Finds out where an fsync on OpenZFS spends its time.",
        epilog=TOP,
    )
    parser.add_argument("--version", action="version", version=f"zfstune {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    doctor = commands.add_parser(
        "doctor",
        help="what this host can measure, and what is missing",
        description="Tells what this host can measure, what is missing, and what that costs.",
        epilog=DOCTOR,
    )
    doctor.add_argument("--json", action="store_true", help="one JSON object")
    doctor.set_defaults(run="doctor")
    add_trace(commands)
    add_flame(commands, span, number)
    return parser


def _check_names(args: argparse.Namespace) -> None:
    """What can be told about POOL and --dataset without a look at the host."""
    pool, dataset = getattr(args, "pool", None), getattr(args, "dataset", None)
    if pool is not None and "/" in pool:
        raise UsageError(f"{pool!r} is a dataset, not a pool, write --dataset {pool}")
    if pool == "" or dataset == "":
        raise UsageError("the name of a pool or dataset is empty, leave it out for all")
    if dataset is not None:
        if "@" in dataset:
            raise UsageError(f"{dataset!r} is a snapshot, nothing is written there, name a dataset")
        if pool is not None and dataset.split("/", 1)[0] != pool:
            raise UsageError(f"dataset {dataset!r} is not in pool {pool!r}, leave the pool out")


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else "?" for c in text).split())


def _run(argv: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        # a dataset may have a name that the locale cannot write
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    args = build_parser().parse_args(argv)
    _check_names(args)
    import importlib

    from zfstrace.errors import TraceError, UnknownName

    command = importlib.import_module(f"zfstune.{args.run}")
    try:
        status: int = command.run(args)
    except UnknownName as error:
        raise UsageError(str(error)) from None
    except TraceError as error:
        raise NotPossible(str(error)) from None
    sys.stdout.flush()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status; errors go to stderr as one line."""
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except CommandError as error:
        print(f"zfstune: {_one_line(str(error))}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        # The reader has what it wanted. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"zfstune: cannot go on, {_one_line(str(error))}", file=sys.stderr)
        return NEGATIVE
