"""The command line of `zfstune report`."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REPORT = """\
A session of `zfstune tune` leaves session.json and report.html in its directory; this command
writes the page again. It looks for before.folded and after.folded beside session.json.

With --from it writes the page of an incident that `zfstune record` kept: a timeline, the causes,
the slowest fsyncs, and what changed.

examples:
  zfstune report zfstune-tank                    zfstune-tank/report.html again
  zfstune report session.json -o /tmp/report.html
  zfstune report --from incident-db1-20261127T031500Z.jsonl.gz -o incident.html

exit status:
  0  done; 2  usage, including a file of another kind; 3  the page cannot be written
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `report` to the commands."""
    parser = commands.add_parser(
        "report",
        help="write the HTML report of a tuning session, or of an incident",
        description="Writes the HTML report of a session from its session.json, or of an incident.",
        epilog=_REPORT,
    )
    parser.add_argument(
        "session", metavar="DIR|FILE", nargs="?", help="a session's directory, or its session.json"
    )
    parser.add_argument(
        "--from",
        metavar="FILE",
        dest="file",
        help="an incident that `zfstune record` wrote, in place of a session; - is stdin",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="with --from: the moment, UTC (03:05, 2026-11-27T03:05Z); default the worst",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="default report.html beside the session, or the incident's name; - is stdout",
    )
    parser.set_defaults(run="report.command")
