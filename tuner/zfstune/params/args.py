"""The command line of `zfstune params` and its subcommands."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STATUS = """\
exit status:
  0  done; 2  usage; 3  not possible here (no ZFS)"""

_PARAMS = """\
Without COMMAND: list. Names are those of Linux; OIDs of FreeBSD are also accepted.

examples:
  zfstune params                             parameters that matter for writes and fsyncs
  zfstune params list --changed              only what is not at its default
  zfstune params get zfs_dirty_data_max      the value in the kernel's unit
  zfstune params explain zfs_delay_scale     everything known about it, and its value here
  zfstune params set zfs_txg_timeout=10s     through guard and journal; `zfstune revert` undoes it

exit status:
  0  done; 2  usage, or a value that the guard refuses
  3  not possible here (no ZFS, no privilege); 4  `set` failed; the previous values are restored
"""

_LIST = f"""\
IN FORCE is what ZFS uses instead of the value: 0 often stands for a built-in default, and ZFS
ignores limits of the ARC that are out of bounds.

examples:
  zfstune params list
  zfstune params list --all | grep vdev
  zfstune params list --changed --json | jq -r '.parameters[] | [.name, .value] | @tsv'

{_STATUS}
"""

_GET = """\
Prints NAME=VALUE in the kernel's unit, which `zfstune params set` accepts.

examples:
  zfstune params get zfs_txg_timeout zfs_dirty_data_max
  zfstune params get --value zfs_dirty_data_max
  zfstune params get vfs.zfs.txg.timeout

exit status:
  0  done; 2  usage, or an unknown name; 3  not possible here (no ZFS)
"""

_EXPLAIN = """\
Also works without ZFS, but then says nothing about this host.

examples:
  zfstune params explain zfs_dirty_data_max
  zfstune params explain zil_slog_bulk zfs_commit_timeout_pct
  zfstune params explain zil_maxblocksize --json | jq -r '.parameters[].remains'

exit status:
  0  done; 2  usage, or an unknown name
"""

_SET = """\
Sizes are written 64M, 1.5G or 10% (of memory), times 500us, 300ms or 5s, percents 30 or
30%; a number without a unit is in the unit of the kernel. Several are written in an order in
which no intermediate state is dangerous. Values stay until `zfstune revert` or a reboot.

examples:
  zfstune params set zfs_txg_timeout=10s
  zfstune params set zfs_dirty_data_max=256M zfs_wrlog_data_max=512M --dry-run
  zfstune params set zfs_vdev_async_write_max_active=5

exit status:
  0  done, or already set; 2  usage, or a value that the guard refuses
  3  not possible here (no ZFS, no privilege); 4  it failed; the previous values are restored
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `params` and its subcommands."""
    params = commands.add_parser(
        "params",
        help="show module parameters, and set them safely",
        description="Shows, explains and sets module parameters of ZFS.",
        epilog=_PARAMS,
    )
    _add_list(params)
    params.set_defaults(run="params.command")
    below = params.add_subparsers(metavar="COMMAND", dest="what")
    listing = below.add_parser(
        "list",
        help="parameters with value and default",
        description="Lists parameters with their values and defaults, and those that break a rule.",
        epilog=_LIST,
    )
    _add_list(listing, default=argparse.SUPPRESS)
    get = below.add_parser(
        "get", help="values for scripts", description="Prints values.", epilog=_GET
    )
    get.add_argument("names", metavar="NAME", nargs="+", help="a parameter")
    get.set_defaults(anywhere="names")
    form = get.add_mutually_exclusive_group()
    form.add_argument("--value", action="store_true", help="only the values, one per line")
    _add_json(form)
    explain = below.add_parser(
        "explain",
        help="what parameters do, their bounds and couplings",
        description="Explains parameters: bounds and their source, effect, what remains, hazard.",
        epilog=_EXPLAIN,
    )
    explain.add_argument("names", metavar="NAME", nargs="+", help="a parameter")
    explain.set_defaults(anywhere="names")
    _add_json(explain)
    setting = below.add_parser(
        "set",
        help="set parameters, through guard and journal",
        description="Sets parameters in a safe order, if the guard considers them safe.",
        epilog=_SET,
    )
    setting.add_argument("values", metavar="NAME=VALUE", nargs="+", help="what to set")
    setting.set_defaults(anywhere="values")
    setting.add_argument(
        "--dry-run", action="store_true", help="print the writes in order; write nothing"
    )
    setting.add_argument(
        "--force", action="store_true", help="override rules that are only about good sense"
    )
    _add_json(setting)


def _add_list(parser: argparse.ArgumentParser, default: object = False) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", default=default, help="all of the module")
    which.add_argument(
        "--changed", action="store_true", default=default, help="only those not at their default"
    )
    parser.add_argument("--json", action="store_true", default=default, help="one JSON object")


def _add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object"
    )
