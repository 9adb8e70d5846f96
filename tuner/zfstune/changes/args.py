"""The command line of `zfstune status`, `revert`, `keep` and `recover`."""

from __future__ import annotations

# In the order of formats.FORMATS
FORMATS = ("modprobe", "nix", "truenas", "ansible", "tuned", "sysctl")

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

_STATUS = """\
Changes nothing, except that like most commands it first restores what a killed session has
left. It needs the privilege to read the journal.

examples:
  zfstune status
  zfstune status --json | jq -r '.parameters[] | [.name, .before, .value] | @tsv'

exit status:
  0  no problem; 1  a session was killed and its values may be in force, or a part of the
  journal cannot be read; 2  usage; 3  not possible here (no privilege)
"""

_REVERT = """\
A parameter that another process has set since is left as it is, and named. Running it again
does nothing. A running session must end first; it restores the values itself.

examples:
  zfstune revert
  zfstune revert --print               commands for a root shell of this host

exit status:
  0  done, or set by another process; 1  something could not be restored
  2  usage; 3  not possible here (no privilege, a session is running)
"""

_KEEP = """\
Without NAME: all parameters that zfstune has set and that are in force. Other lines of the
file stay. The previous file is saved with the suffix .bak. The file is read when the zfs
module is loaded; nothing changes now. Values that would be hazardous then, with the defaults
of the other parameters, are refused: keep both of a pair.

examples:
  zfstune keep
  zfstune keep zfs_dirty_data_max zfs_txg_timeout
  zfstune keep --print                 what would be in the file
  zfstune keep --format ansible        for a playbook; changes nothing
  zfstune keep --remove                removes what zfstune has written

exit status:
  0  done; 1  there is nothing to keep; 2  usage, or refused; 3  not possible here (no privilege)
"""

_RECOVER = """\
Every zfstune command except advise, check, exporter and record does this first, and
zfstune-recover.service as soon as a session is killed. After a reboot there is nothing to
restore: values end with the module.

examples:
  zfstune recover
  zfstune recover --wait               after the running session has ended
  zfstune recover --forget             if a part of the journal cannot be read, after a
                                       look at `zfstune params list --changed`

exit status:
  0  nothing left to restore; 1  something could not be restored, or is not known
  2  usage; 3  not possible here (no privilege)
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `status`, `revert`, `keep` and `recover`."""
    status = commands.add_parser(
        "status",
        help="which parameters are changed, since when, by which command",
        description="Shows which parameters zfstune has changed and which session is running.",
        epilog=_STATUS,
    )
    status.add_argument("--json", action="store_true", help="one JSON object")
    status.set_defaults(run="changes.status")
    revert = commands.add_parser(
        "revert",
        help="restore all parameters",
        description="Restores all parameters that zfstune has changed.",
        epilog=_REVERT,
    )
    instead = revert.add_mutually_exclusive_group()
    instead.add_argument(
        "--print", action="store_true", help="only print commands that do it without zfstune"
    )
    instead.add_argument("--json", action="store_true", help="one JSON object")
    revert.set_defaults(run="changes.revert")
    keep = commands.add_parser(
        "keep",
        help="keep the present values over a reboot",
        description="Writes the values that zfstune has set to a file that the next boot reads.",
        epilog=_KEEP,
    )
    keep.add_argument("names", metavar="NAME", nargs="*", help="only these parameters")
    keep.add_argument("--print", action="store_true", help="only print what would be written")
    keep.add_argument("--remove", action="store_true", help="undo an earlier keep")
    keep.add_argument(
        "--format", choices=FORMATS, help="only print the values as this system wants them"
    )
    keep.add_argument("--json", action="store_true", help="one JSON object")
    keep.set_defaults(run="changes.keep", anywhere="names")
    recover = commands.add_parser(
        "recover",
        help="restore what a killed session has left",
        description="Restores what a killed session has left.",
        epilog=_RECOVER,
    )
    how = recover.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="wait for a running session to end")
    how.add_argument(
        "--forget",
        action="store_true",
        help="continue without the unreadable part of the journal, which is put aside",
    )
    recover.set_defaults(run="changes.recover")
