"""`zfstune exporter`: metrics for Prometheus, for as long as it runs."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from zfstrace.host import Host
from zfstrace.types import WRITES_BLOCKED
from zfstune.errors import DONE, CommandError, NotPossible, UsageError
from zfstune.exporter.args import KSTAT
from zfstune.exporter.listen import ListenOptions
from zfstune.exporter.service import Service
from zfstune.exporter.tls import Tls, TlsOptions, tls_options
from zfstune.host import open_host
from zfstune.preflight import require_tracing
from zfstune.record.args import DEFAULT_VIEWS, INSTEAD
from zfstune.term.log import say
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND
from zfstune.trace import live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfstune.exporter.collector import Collector
    from zfstune.exporter.textfile import TextFile
    from zfstune.record.recorder import Recorder
    from zfstune.record.triggers import Trigger

_PORT = ("127.0.0.1", 9810)
_INTERVAL_NS = 15 * SECOND
_MOST_INTERVAL_NS = 3600 * SECOND
# Slots in the kernel beyond those with series of their own: a dataset that is mounted again takes
# another one, and all of them cost memory on each CPU.
_SPARE = 16
# With a recorder the counters are read even if nobody scrapes: what it keeps is of that time.
_RECORDED_NS = 5 * SECOND
_CLIENT = {
    "linux": "run `apt install python3-prometheus-client` or, with EPEL, "
    "`dnf install python3-prometheus_client`",
    "freebsd": "run `pkg install py{}{}-prometheus-client`".format(*sys.version_info),
}
# A scrape that is asked for by nobody is text.
_TEXT = "text/plain"


@dataclass(frozen=True)
class _Options:
    """What has been made of the command line."""

    tls: TlsOptions | None
    triggers: Sequence[Trigger]


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    views = views_of(args)
    options = _Options(_checked(args), _triggers(args, views))
    if args.check:
        if options.tls:
            Tls(options.tls)
        if args.textfile:
            _text_file(args)
        say("these options can be used")
        return DONE
    _require_client()
    host = open_host()
    _require_host(args, host, views)
    # a service's stdout is nobody's business: only --once writes there
    with Stop(sys.stdout if args.once else io.StringIO()) as stop:
        collector = _collector(args, host, stop, views)
        with contextlib.closing(collector):
            if args.once:
                return _print(collector)
            _serve(args, host, collector, stop, options)
    return DONE


def views_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The views that are asked for. Raises UsageError."""
    kstat = args.source == "kstat"
    for name in args.views or ():
        if kstat and name not in KSTAT:
            raise UsageError(
                f"view {name} needs BPF or DTrace: kstats do not have it",
                f"leave out --source kstat, or choose from {', '.join(KSTAT)}",
            )
    return tuple(args.views or (KSTAT if kstat else DEFAULT_VIEWS))


def _checked(args: argparse.Namespace) -> TlsOptions | None:
    """The options of TLS. Raises UsageError for options that do not fit each other."""
    given = (args.tls_cert, args.tls_key, args.tls_client_ca)
    tls = tls_options(*(Path(one) if one else None for one in given))
    if tls and (args.once or args.textfile):
        raise UsageError("--tls-cert is for a port", "leave it out, or use --listen")
    if args.interval and not args.textfile:
        raise UsageError(
            "--interval is for --textfile: Prometheus decides how often it scrapes", "leave it out"
        )
    if args.interval and not SECOND <= args.interval <= _MOST_INTERVAL_NS:
        raise UsageError("--interval is out of range", "use 1s to 1h")
    if args.trigger and not _records(args):
        raise UsageError(
            "--trigger is for the recorder",
            "leave it out, or leave out what turns the recorder off",
        )
    return tls


def _require_client() -> None:
    """Raises NotPossible."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise NotPossible(
            "cannot export metrics: the Python module prometheus_client is not installed",
            _CLIENT.get(sys.platform.rstrip("0123456789"), _CLIENT["linux"]),
        )


def _require_host(args: argparse.Namespace, host: Host, views: tuple[str, ...]) -> None:
    """Raises NotPossible for what will not come while it runs: privilege, the library, a kernel
    that can. ZFS may."""
    checks = host.checks()
    if args.once:
        require_tracing(checks, "zfs")
    needs = [view for view in views if args.source == "bpf" or view not in KSTAT]
    if needs:
        try:
            require_tracing([check for check in checks if check.kind != "zfs"])
        except NotPossible as error:
            if args.source == "auto":
                error.hint += "; or add --source kstat, for what needs no privilege"
            raise
    for pool in host.pools():
        state = host.pool_state(pool)
        if state in WRITES_BLOCKED:
            say(f"pool {pool} is {state}: no commit ends there; see `zpool status {pool}`")


def _collector(
    args: argparse.Namespace, host: Host, stop: Stop, views: tuple[str, ...]
) -> Collector:
    from zfstune.exporter.bounded import Names
    from zfstune.exporter.collector import Collector
    from zfstune.exporter.views import Setup

    patterns = [pattern for given in args.datasets for pattern in given]
    setup = Setup(
        host,
        stop,
        no_fentry=args.no_fentry,
        kstat=args.source == "kstat",
        fallback=args.source == "auto",
        recorded=_records(args),
        max_datasets=args.max_datasets + _SPARE,
        names=Names(args.max_datasets, patterns),
    )
    return Collector(setup, views, args.budget, {} if args.views else INSTEAD)


def _print(collector: Collector) -> int:
    """--once. Raises NotPossible if no view could be opened."""
    collector.tick()
    body, _kind = collector.encoded(_TEXT)
    failure = collector.failure()
    if failure:
        raise NotPossible(*failure)
    sys.stdout.write(body.decode())
    return DONE


def _records(args: argparse.Namespace) -> bool:
    """Whether it is to be a flight recorder, too."""
    if args.record is not None:
        return bool(args.record)
    return not args.once and args.source != "kstat"


def _triggers(args: argparse.Namespace, views: Sequence[str]) -> list[Trigger]:
    """Raises UsageError."""
    if not args.trigger:
        return []
    from zfstune.record import triggers

    wanted = [triggers.parse(text) for text in args.trigger]
    triggers.require_views(wanted, views)
    return wanted


def _recorder(
    args: argparse.Namespace, host: Host, collector: Collector, wanted: Sequence[Trigger]
) -> Recorder | None:
    """The connection with zfstune.record: a recorder that the collector feeds, open; None without
    one. Raises CommandError."""
    if not _records(args):
        return None
    from zfstune.record.recorder import Recorder, Settings, begun

    made = Recorder(
        host,
        collector.rows,
        Settings(args.dump_dir, wanted, args.budget),
        open_host=open_host,
        off=collector.in_words,
        lost=collector.lost,
        writes=collector.writes,
    )
    try:
        made.open()
    except CommandError as error:
        if args.record is None:
            error.hint = f"{error.hint}; or add --no-record".removeprefix("; or ")
        raise
    say(f"{begun(made)}; see `zfstune record status`")
    return made


def _serve(
    args: argparse.Namespace,
    host: Host,
    collector: Collector,
    stop: Stop,
    options: _Options,
) -> None:
    service = Service()
    with ExitStack() as stack:
        asked = stack.enter_context(_dumps_asked_for())
        # the first scrape waits until the views are open
        with collector.lock:
            show, every = stack.enter_context(_outlet(args, host, collector, options.tls))
            recorder = _recorder(args, host, collector, options.triggers)
            if recorder:
                collector.expect_errors("recorder")
                # scrapes go on until the port is closed
                stack.callback(collector.survive, "recorder", recorder.close)
            collector.tick()
        show()
        service.ready()

        def tick() -> bool:
            collector.tick()
            if recorder:
                collector.read(_RECORDED_NS)
                collector.survive("recorder", functools.partial(recorder.tick, stop.now()))
            elif asked:
                asked.clear()
                say("no incident file for SIGUSR1: this exporter does not record (--record)")
            service.tick(collector.status())
            return False

        live.loop(stop, None, every, tick, show)
        service.stopping()


@contextmanager
def _dumps_asked_for() -> Iterator[list[int]]:
    """Collects SIGUSR1, which would end the process, but for the time that a recorder is open: that
    has a handler of its own."""
    asked: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: asked.append(number))
    try:
        yield asked
    finally:
        signal.signal(signal.SIGUSR1, before)


def _text_file(args: argparse.Namespace) -> TextFile:
    """Writes nothing yet. Raises UsageError."""
    from zfstune.exporter.textfile import TextFile

    return TextFile(Path(args.textfile))


@contextmanager
def _outlet(
    args: argparse.Namespace, host: Host, collector: Collector, tls: TlsOptions | None
) -> Iterator[tuple[Callable[[], bool], int | None]]:
    """What to call once and each interval, and the interval, None for never. Raises
    CommandError."""
    if args.textfile:
        from zfstune.exporter.textfile import refuse_zfs

        file = _text_file(args)
        refuse_zfs(file.path, host)
        collector.expect_errors("textfile")

        def write() -> bool:
            if not file.write(collector.encoded(_TEXT)[0]):
                collector.count_error("textfile")
            return False

        with contextlib.closing(file):
            yield write, args.interval or _INTERVAL_NS
        return
    from zfstune.exporter.server import ERRORS, serve

    address, port = args.listen or _PORT
    collector.expect_errors(*ERRORS)
    server = serve(collector, ListenOptions(address, port, tls), collector.count_error)
    with contextlib.closing(server):
        shown = f"[{address}]" if ":" in address else address or "all addresses"

        def tell() -> bool:
            # it may end before that, as without a directory for the recorder
            say(f"serving {'https' if tls else 'http'} on {shown}, port {server.port}: /metrics")
            return False

        yield tell, None
