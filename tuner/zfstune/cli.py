"""The command line: parsers of all commands; the commands load when they are called."""

from __future__ import annotations

import argparse
import os
import re
import sys

from zfstune import __version__, units
from zfstune.errors import NEGATIVE, CommandError, NotPossible, UsageError

# Not from typing: that alone would be a tenth of the start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

STATUS = """\
exit status:
  0  done, also when no fsync was seen; 1  finished with a negative finding
  2  usage; 3  not possible here (no ZFS, no privilege, no BTF, library not built)"""

TOP = f"""\
examples:
  zfstune doctor                              what can be measured here, what is missing
  zfstune trace fsync                         where fsyncs spend their time, all pools
  zfstune trace fsync tank --duration 10s     one pool, ten seconds, then a table
  zfstune trace slow --over 10ms              each fsync that takes 10 ms or more

{STATUS}
"""

TRACE = f"""\
examples:
  zfstune trace fsync tank
  zfstune trace slow --over 50ms --dataset tank/db

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

FSYNC = f"""\
On a terminal the table is redrawn and counts from the start. Elsewhere --interval
prints one table (or JSON lines) for each interval, without it one at the end.
Ctrl-C ends the trace and prints what was measured.

examples:
  zfstune trace fsync
  zfstune trace fsync tank --duration 30s
  zfstune trace fsync --dataset tank/db --histogram
  zfstune trace fsync --pid $(pidof -s postgres) --interval 5s
  zfstune trace fsync tank --duration 1m --json > fsync.jsonl

{STATUS}
"""

SLOW = f"""\
Times are of the beginning, in UTC. STAGES names the largest shares.

examples:
  zfstune trace slow --over 10ms
  zfstune trace slow --over 1s tank --duration 1h
  zfstune trace slow --over 5ms --dataset tank/db --count 20
  zfstune trace slow --over 20ms --json | jq -r '[.time, .comm, .total_ns] | @tsv'

{STATUS}
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


def _time(text: str) -> int:
    try:
        return units.parse_span(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _add_trace_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL", nargs="?", help="only this pool")
    parser.add_argument("--dataset", metavar="D", help="only this dataset")
    parser.add_argument("--pid", metavar="P", type=_number, help="only this process")
    parser.add_argument(
        "--duration", metavar="T", type=_time, help="end after T (10s, 5m); default: at Ctrl-C"
    )
    parser.add_argument("--json", action="store_true", help="JSON lines, times in ns")
    parser.add_argument(
        "--no-fentry", action="store_true", help="use kprobes even where fentry is possible"
    )


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
    trace = commands.add_parser(
        "trace", help="watch fsyncs as they happen", description="Watches fsyncs.", epilog=TRACE
    )
    _add_traces(trace.add_subparsers(metavar="COMMAND", dest="what", required=True))
    return parser


def _add_traces(commands: argparse._SubParsersAction[Parser]) -> None:
    fsync = commands.add_parser(
        "fsync",
        help="in which stage fsyncs spend their time",
        description="Measures each stage of every fsync, per pool and dataset.",
        epilog=FSYNC,
    )
    _add_trace_options(fsync)
    fsync.add_argument(
        "--interval", metavar="T", type=_time, help="print every T; on a terminal default 2s"
    )
    fsync.add_argument(
        "--histogram", action="store_true", help="add the distribution of the total latency"
    )
    fsync.set_defaults(run="trace_fsync")
    slow = commands.add_parser(
        "slow",
        help="one line for each slow fsync",
        description="Prints one line for each slow fsync as it ends.",
        epilog=SLOW,
    )
    _add_trace_options(slow)
    slow.add_argument(
        "--over", metavar="T", type=_time, required=True, help="those that take T or more (10ms)"
    )
    slow.add_argument("--count", metavar="N", type=_number, help="end after N of them")
    slow.set_defaults(run="trace_slow")


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
