"""The command line of `zfstune advise`."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# rules.LOADS; spelled here so that the start stays cheap.
LOADS = ("postgresql", "mysql", "vm", "nfs", "files")
# Other words for one of them.
ALIASES = {"mariadb": "mysql"}

_ADVISE = """\
Changes nothing: it prints commands for you to judge. Advice that lowers durability comes
last, is marked, and is never printed as a command.

examples:
  zfstune advise                                  all pools
  zfstune advise tank --for vm
  zfstune advise tank/db --for postgresql
  sudo zfstune advise --config /etc/postgresql/17/main/postgresql.conf
  zfstune advise --config /etc/mysql/my.cnf --json | jq -r '.findings[].commands[]'

exit status:
  0  no finding of severity high; 1  at least one
  2  usage error, including a pool, dataset or file that does not exist, and an error in the
     configuration
  3  not possible here (no ZFS, no pool, pool suspended, file not readable)
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `advise` to the commands."""
    parser = commands.add_parser(
        "advise",
        help="bad settings, with reason and remedy",
        description="Judges pools, datasets, parameters and a database's configuration.",
        epilog=_ADVISE,
    )
    parser.add_argument(
        "where",
        metavar="POOL|DATASET",
        nargs="?",
        help="only this one, with all its datasets; default: all pools",
    )
    parser.add_argument(
        "--for", dest="load", choices=(*LOADS, *ALIASES), help="use of the datasets"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="postgresql.conf or my.cnf, with all included files"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run="advise.command")
