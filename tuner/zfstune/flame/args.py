"""The command line of `zfstune flame`."""

from __future__ import annotations

import argparse

from zfstune.term.argtypes import positive, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# The default of a recording, in ns.
DURATION = 10_000_000_000
_KINDS = ("off-cpu", "on-cpu", "wakeup", "other")
_UNITS = ("ns", "us", "samples")

_STATUS = """\
exit status:
  0  success; 1  nothing was recorded
  2  usage error, including a file that cannot be read
  3  not possible here (no ZFS, no privilege, no BTF, library not built), including a
     file that cannot be written"""

_FORMATS = """\
The suffix of FILE determines the format: .svg (for any browser), .folded or .txt
(flamegraph.pl, inferno), .speedscope.json, .pb.gz (pprof); - is folded text on standard
output."""

_FLAME = f"""\
{_FORMATS}

examples:
  zfstune flame -o fsync.svg                        where threads in an fsync sleep, 10 s
  zfstune flame --wakeup --pool tank -o wakeup.svg  and what wakes them
  zfstune flame --on-cpu --duration 30s -o cpu.pb.gz
  zfstune flame --txg-sync -o sync.svg              the threads that sync txgs
  zfstune flame --pid $(pidof -s postgres) > postgres.folded
  zfstune flame diff before.folded after.folded -o diff.svg
  zfstune flame convert before.folded -o before.speedscope.json

{_STATUS}
"""

_DIFF = f"""\
BEFORE and AFTER are files in any format that convert reads. Each counts as shares of its
own total. FILE.svg has two graphs: one with the widths of AFTER, below it one with those
of BEFORE, where vanished frames still show; red is more, blue is less, near-white is
equal. FILE.folded has a line for each stack with both counts, as difffolded.pl writes it.

examples:
  zfstune flame diff before.folded after.folded -o diff.svg
  zfstune flame diff monday.pb.gz today.pb.gz -o diff.svg --title "since Monday"
  zfstune flame diff before.folded after.folded -o - | sort -k 3 -n

{_STATUS}
"""

_CONVERT = f"""\
IN may come from other tools: folded text, stacks as dtrace and bpftrace print them,
sampled profiles of speedscope, pprof; - is text from standard input.
{_FORMATS}
Text does not say what it counts. Output of zfstune is recognized, and so are bpftrace
maps whose names end in _ns, _us or _ms; anything else is read as samples unless --unit
and --kind are given. The output of fsyncstack.d has all kinds: --kind selects one.

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
        help="flame graphs: where threads sleep or run, and what wakes them",
        description="Records the kernel stacks of threads, and draws flame graphs.",
        epilog=_FLAME,
    )
    _add_recording(flame)
    flame.set_defaults(run="flame.command", mode="off-cpu", target="fsync", pid=None)
    more = flame.add_subparsers(metavar="COMMAND", dest="what", title="commands on files")
    _add_diff(more)
    _add_convert(more)


class _Pid(argparse.Action):
    """--pid P sets the target and the number."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        namespace.target, namespace.pid = "pid", values


def _add_recording(parser: argparse.ArgumentParser) -> None:
    mode = parser.add_argument_group("what to record").add_mutually_exclusive_group()
    for name, text in (
        ("off-cpu", "where threads sleep, in time (default)"),
        ("on-cpu", "where threads run, in samples"),
        ("wakeup", "where threads sleep, and the stacks that wake them, in time"),
    ):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name, help=text)
    group = parser.add_argument_group("which threads; default: those inside an fsync")
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
    parser.add_argument("--title", metavar="T", help="the heading; default: what was recorded")
    _add_inverted(parser, False)


def _add_inverted(parser: argparse.ArgumentParser, default: bool | str) -> None:
    parser.add_argument(
        "--inverted", action="store_true", default=default, help="SVG with the root at the top"
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    """The options of both commands on files."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the file to write, or -"
    )
    parser.add_argument("--unit", choices=_UNITS, help="what text counts")
    # the defaults must not reset options before the name of the command
    parser.add_argument(
        "--title",
        metavar="T",
        default=argparse.SUPPRESS,
        help="the heading; default: from the files",
    )
    _add_inverted(parser, argparse.SUPPRESS)


def _add_diff(commands: argparse._SubParsersAction[Any]) -> None:
    diff = commands.add_parser(
        "diff",
        help="what changed between two recordings",
        description="Compares two recordings.",
        epilog=_DIFF,
    )
    diff.add_argument("before", metavar="BEFORE", help="the file of the first recording")
    diff.add_argument("after", metavar="AFTER", help="the file of the second recording")
    _add_files(diff)
    # a difference is coloured by shares, not by kind
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
    convert.add_argument("--kind", choices=_KINDS, help="what text records; sets the colours")
    convert.set_defaults(run="flame.convert")


def _pool(text: str) -> str:
    if "/" in text:
        pool = text.partition("/")[0]
        raise argparse.ArgumentTypeError(f"{text!r} is a dataset, not a pool\ngive {pool}")
    return text
