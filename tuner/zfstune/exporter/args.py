"""The command line of `zfstune exporter`."""

from __future__ import annotations

import argparse

from zfstune.changes.paths import INCIDENTS
from zfstune.record.args import DEFAULT_VIEWS, TRIGGER_HELP, budget, views
from zfstune.term.argtypes import names, positive, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VIEWS = ("light", "fsync", "txg", "throttle", "arc", "device", "read")
# those that kstats suffice for
KSTAT = ("txg", "arc")
MOST_DATASETS = 64

_EXPORTER = """\
Serves metrics of ZFS for Prometheus, for as long as it runs: how long commits and fsyncs
take and where, txgs, waits of writers, the cache, and which module parameters change.
It changes nothing, waits while ZFS is not loaded, and ends only by a signal.

views, by what they cost:
  txg, throttle, arc  next to nothing
  light               commits exactly, the stages of fsyncs estimated from windows
  read, fsync         each read and write, each fsync with all its stages
  device              each I/O

examples:
  sudo zfstune exporter                                 http://127.0.0.1:9810/metrics
  sudo zfstune exporter --listen :9810 --tls-cert host.pem --tls-key host.key
  sudo zfstune exporter --textfile /var/lib/prometheus/node-exporter/zfstune.prom
  sudo zfstune exporter --views fsync,txg,throttle,arc --datasets 'tank/db/*' --budget 2%
  zfstune exporter --source kstat                       without privilege
  sudo zfstune exporter --once                          prints the metrics and ends
  sudo zfstune exporter --trigger 'fsync.p99>200ms for 30s'    keeps what led to it
  zfstune exporter --check --listen :9810 --views light,txg    before they are in force

exit status:
  0  ended by a signal, printed once, or checked; 2  usage
  3  not possible here (no privilege, no prometheus_client, the port is in use)
"""


def datasets(text: str) -> int:
    """A number of datasets."""
    found = positive(text)
    if found > MOST_DATASETS:
        raise argparse.ArgumentTypeError(
            f"{found} is too many\nuse {MOST_DATASETS} at most, and --datasets to choose them"
        )
    return found


def _listen(text: str) -> tuple[str, int]:
    from zfstune.exporter.listen import parse_listen  # socket is slow to load

    return parse_listen(text)


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `exporter` to the commands."""
    parser = commands.add_parser(
        "exporter",
        help="metrics for Prometheus, and a flight recorder",
        description="Exports metrics of ZFS for Prometheus.",
        epilog=_EXPORTER,
    )
    _add_outlets(parser)
    parser.add_argument(
        "--views",
        metavar="NAMES",
        type=views(VIEWS),
        help=f"what to trace; default {','.join(DEFAULT_VIEWS)}",
    )
    parser.add_argument(
        "--source",
        choices=("auto", "bpf", "kstat"),
        default="auto",
        help="auto: kstats for what cannot be traced; bpf: no kstats instead; "
        "kstat: only what needs no privilege",
    )
    parser.add_argument(
        "--max-datasets",
        metavar="N",
        type=datasets,
        default=16,
        help="datasets with series of their own; the rest are summed; default 16",
    )
    parser.add_argument(
        "--datasets",
        metavar="PATTERNS",
        type=names,
        action="append",
        default=[],
        help="only datasets that match have series of their own; * matches anything, / included",
    )
    parser.add_argument(
        "--budget",
        metavar="SHARE",
        type=budget,
        default=0.01,
        help="detach views when their programs take more of one CPU than this; default 1%%",
    )
    parser.add_argument(
        "--no-fentry", action="store_true", help="use kprobes even where fentry is possible"
    )
    _add_recorder(parser)
    parser.add_argument(
        "--check",
        action="store_true",
        help="say whether these options can be used, and end; nothing is traced or served",
    )
    parser.set_defaults(run="exporter.command")


def _add_outlets(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        type=_listen,
        help="serve the metrics there; default 127.0.0.1:9810",
    )
    where.add_argument(
        "--textfile", metavar="FILE", help="write them to FILE, for node_exporter, instead"
    )
    where.add_argument("--once", action="store_true", help="print them once and end")
    parser.add_argument(
        "--interval",
        metavar="T",
        type=span,
        help="how often --textfile is written; default 15s",
    )
    for name, what in (
        ("cert", "the server's certificate: serve with TLS"),
        ("key", "its key"),
        ("client-ca", "answer only clients with a certificate of this CA"),
    ):
        parser.add_argument(f"--tls-{name}", metavar="FILE", help=what)


def _add_recorder(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--record",
        action="store_true",
        default=None,
        help="keep the last hours in memory, for `zfstune record dump`; "
        "default unless --once or --source kstat",
    )
    which.add_argument(
        "--no-record", action="store_false", dest="record", help="keep nothing in memory"
    )
    parser.add_argument("--trigger", metavar="EXPR", action="append", default=[], help=TRIGGER_HELP)
    parser.add_argument(
        "--dump-dir",
        metavar="DIR",
        default=INCIDENTS,
        help=f"where incident files go; default {INCIDENTS}",
    )
