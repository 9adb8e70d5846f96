"""The command line of `zfstune flame`."""

from __future__ import annotations

import argparse

from zfstune.term.argtypes import positive, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Of a recording, in ns.
DURATION = 10_000_000_000
_KINDS = ("off-cpu", "on-cpu", "wakeup", "other")
_UNITS = ("ns", "us", "samples")

_STATUS = """\
exit status:
  0  done; 1  nothing was recorded
  2  usage, also a file that cannot be read; 3  not possible here (no ZFS, no privilege,
     no BTF, library not built, or the file cannot be written)"""

_FORMATS = """\
The end of FILE tells the format: .svg (a page of its own, for any browser), .folded or
.txt (flamegraph.pl, inferno), .speedscope.json, .pb.gz (pprof); - is folded text on
standard output."""

_FLAME = f"""\
{_FORMATS}

examples:
  zfstune flame -o fsync.svg                        where threads in an fsync sleep, 10 s
  zfstune flame --wakeup --pool tank -o wakeup.svg  and who wakes them
  zfstune flame --on-cpu --duration 30s -o cpu.pb.gz
  zfstune flame --txg-sync -o sync.svg              the threads that sync the txgs
  zfstune flame --pid $(pidof -s postgres) > postgres.folded
  zfstune flame diff before.folded after.folded -o diff.svg
  zfstune flame convert before.folded -o before.speedscope.json

{_STATUS}
"""

_DIFF = f"""\
BEFORE and AFTER are any files that convert reads. Each counts as shares of its own total.
FILE.svg has two graphs: the widths of after, below it those of before, where what has
vanished still shows; red is more, blue is less, near-white is equal. FILE.folded has a
line for each stack with both counts, as difffolded.pl has it.

examples:
  zfstune flame diff before.folded after.folded -o diff.svg
  zfstune flame diff monday.pb.gz today.pb.gz -o diff.svg --title "since Monday"
  zfstune flame diff before.folded after.folded -o - | sort -k 3 -n

{_STATUS}
"""

_CONVERT = f"""\
IN may be of any tool: folded text, stacks as dtrace and bpftrace print them, speedscope's
sampled profiles, pprof; - is text from standard input.
{_FORMATS}
Text does not say what it counts: --unit and --kind tell it. Without them what zfstune
wrote is recognised, and maps of bpftrace whose name ends in _ns, _us or _ms; anything else
is taken as samples. Of the output of fsyncstack.d --kind chooses the part.

examples:
  zfstune flame convert fsync.folded -o fsync.svg
  zfstune flame convert fsync.pb.gz -o fsync.speedscope.json
  offcputime-bpfcc -f 10 | zfstune flame convert - --unit us -o offcpu.svg
  timeout -s INT 10 fsyncstack.d | zfstune flame convert - -o offcpu.svg
  zfstune flame convert fsync.pb.gz -o - | grep zil_commit

{_STATUS}
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `flame` and its subcommands."""
    flame = commands.add_parser(
        "flame",
        help="flame graphs: where threads sleep or run, and who wakes them",
        description="Records the stacks of threads inside an fsync, and draws flame graphs.",
        epilog=_FLAME,
    )
    _add_recording(flame)
    flame.set_defaults(run="flame.command", mode="off-cpu", target="fsync", pid=None)
    more = flame.add_subparsers(metavar="COMMAND", dest="what", title="commands on files")
    _add_diff(more)
    _add_convert(more)


class _Pid(argparse.Action):
    """--pid P is a target and a number."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        namespace.target, namespace.pid = "pid", values


def _add_recording(parser: argparse.ArgumentParser) -> None:
    mode = parser.add_argument_group("what is recorded").add_mutually_exclusive_group()
    for name, text in (
        ("off-cpu", "where threads sleep, in time (default)"),
        ("on-cpu", "where threads run, in samples"),
        ("wakeup", "where threads sleep, and the stack of who wakes them, in time"),
    ):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name, help=text)
    group = parser.add_argument_group("of whom; default: threads that are inside an fsync")
    target = group.add_mutually_exclusive_group()
    target.add_argument(
        "--txg-sync",
        dest="target",
        action="store_const",
        const="txg-sync",
        help="the threads that sync the transaction groups",
    )
    target.add_argument(
        "--pid", metavar="P", type=positive, action=_Pid, help="this process, all its threads"
    )
    target.add_argument(
        "--all-zfs",
        dest="target",
        action="store_const",
        const="zfs",
        help="every thread with a function of ZFS in its stack",
    )
    group.add_argument("--pool", metavar="POOL", type=_pool, help="only this pool")
    parser.add_argument(
        "--duration",
        metavar="T",
        type=span,
        default=DURATION,
        help="record for T (5s, 1m); default: 10s",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="default: folded text to stdout"
    )
    parser.add_argument("--title", metavar="T", help="the heading; default: says what it is")
    _add_inverted(parser)


def _add_inverted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inverted", action="store_true", help="SVG with the root at the top")


def _add_files(parser: argparse.ArgumentParser) -> None:
    """The options of both commands on files."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the file to write, or -"
    )
    parser.add_argument("--unit", choices=_UNITS, help="what text counts")
    parser.add_argument("--title", metavar="T", help="the heading; default: from the files")
    _add_inverted(parser)


def _add_diff(commands: argparse._SubParsersAction[Any]) -> None:
    diff = commands.add_parser(
        "diff",
        help="what changed between two recordings",
        description="Compares two recordings: red is more, blue is less.",
        epilog=_DIFF,
    )
    diff.add_argument("before", metavar="BEFORE", help="the file of the first recording")
    diff.add_argument("after", metavar="AFTER", help="the file of the second recording")
    _add_files(diff)
    # differences have colours of their own
    diff.set_defaults(run="flame.diff", kind=None)


def _add_convert(commands: argparse._SubParsersAction[Any]) -> None:
    convert = commands.add_parser(
        "convert",
        help="a recording in another format",
        description="Writes a recording in another format.",
        epilog=_CONVERT,
    )
    convert.add_argument("input", metavar="IN", help="the file to read, or -")
    _add_files(convert)
    convert.add_argument("--kind", choices=_KINDS, help="what was recorded; tells the colours")
    convert.set_defaults(run="flame.convert")


def _pool(text: str) -> str:
    if "/" in text:
        pool = text.partition("/")[0]
        raise argparse.ArgumentTypeError(f"{text!r} is a dataset, stacks are per pool, give {pool}")
    return text
