"""The command lines of `zfstune tools` and `zfstune licences`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

_TOOLS = """\
Each tool is one file for bpftrace(8), bcc or dtrace(1), and needs nothing of zfstune: for hosts
where the library or BTF is missing. `zfstune doctor` says which would work here.

examples:
  zfstune tools list
  zfstune tools extract /root/tools
  zfstune tools extract . zilcommit.bt zilslower.bt
  zfstune tools extract freebsd --system freebsd

exit status:
  0  done; 2  usage error, including a tool that does not exist
  3  not possible here (a file is in the way, or cannot be written)
"""

_LICENCES = """\
The one file of `make dist` has libraries inside; a checkout or an installation has none.

examples:
  zfstune licences
  zfstune licences --json | jq -r '.parts[] | [.name, .version, .licence] | @tsv'

exit status:
  0  done; 2  usage error; 3  this copy of zfstune has no licences with it
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `tools` and `licences`."""
    tools = commands.add_parser(
        "tools",
        help="tools of one file for bpftrace, bcc and dtrace: list them, copy them out",
        description="Lists the one-file tools that come with zfstune, or copies them out.",
        epilog=_TOOLS,
    )
    whats = tools.add_subparsers(metavar="COMMAND", dest="what", required=True)
    listed = whats.add_parser(
        "list", help="name, program and purpose of each", description="Lists the tools.",
        epilog=_TOOLS,
    )  # fmt: skip
    extract = whats.add_parser(
        "extract", help="write them into a directory", description="Writes tools into a directory.",
        epilog=_TOOLS,
    )  # fmt: skip
    extract.add_argument("directory", metavar="DIR", help="made if it does not exist")
    extract.add_argument(
        "names", metavar="NAME", nargs="*", default=[], help="default: all of the system"
    )
    extract.set_defaults(anywhere="names")
    extract.add_argument("--force", action="store_true", help="replace files that differ")
    for parser in (listed, extract):
        parser.add_argument(
            "--system", choices=("linux", "freebsd"), help="only of it; for extract: this one"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object")
        parser.set_defaults(run="inside.tools")
    licences = commands.add_parser(
        "licences",
        help="licences of what is inside",
        description="Prints the licence of each part of this copy of zfstune.",
        epilog=_LICENCES,
    )
    licences.add_argument("--json", action="store_true", help="one JSON object")
    licences.set_defaults(run="inside.licences")
