"""The command line of `zfstune report`."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REPORT = """\
A session of `zfstune tune` leaves session.json and report.html in its directory; this command
writes the page again. It looks for before.folded and after.folded beside session.json.

examples:
  zfstune report zfstune-tank                    zfstune-tank/report.html again
  zfstune report session.json -o /tmp/report.html

exit status:
  0  done; 2  usage, including a file that is not a session; 3  the page cannot be written
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `report` to the commands."""
    parser = commands.add_parser(
        "report",
        help="write the HTML report of a tuning session again",
        description="Writes the HTML report of a session from its session.json.",
        epilog=_REPORT,
    )
    parser.add_argument(
        "session", metavar="DIR|FILE", help="a session's directory, or its session.json"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="default report.html beside the session; - is stdout",
    )
    parser.set_defaults(run="report.command")
