"""A tuning session from its first measurement to its report."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from zfstrace.clock import iso_now, iso_utc
from zfstrace.errors import TraceError
from zfstrace.types import FsyncOptions, Json
from zfstune.changes import recovery, revert
from zfstune.changes.session import ChangeSession
from zfstune.changes.state_dir import places
from zfstune.errors import CommandError, NotPossible, RestoredError
from zfstune.experiment.blocks import BlockMeter
from zfstune.experiment.guardrails import Guardrails
from zfstune.experiment.reads import Reads, open_reads
from zfstune.experiment.runner import Disturbed, Experiment, Record, Stopped
from zfstune.term.progress import Progress
from zfstune.term.secrets import masked
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND, format_span
from zfstune.tunables.guard import Refused
from zfstune.tune import flame as session_flame
from zfstune.tune.plan import Setup
from zfstune.tune.workload import Workload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfstune.experiment.arc import ArcTuning
    from zfstune.experiment.found import Found
    from zfstune.experiment.phases import Tuning
    from zfstune.experiment.session_json import Circumstances


# the default of --max-latency
LONGEST_NS = 60 * SECOND
# a change within +-5 % counts as none
MARGIN = 0.05


@contextlib.contextmanager
def not_suspended() -> Iterator[None]:
    """Ignores Ctrl-Z, which would leave a candidate in force unwatched. So would output from the
    background of a terminal with `stty tostop`."""
    numbers = (signal.SIGTSTP, signal.SIGTTOU)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _command() -> list[str]:
    """The command line, without passwords, for the journal and the session."""
    return ["zfstune", *map(masked, sys.argv[1:])]


@dataclass
class TuningRun:
    """A session on a host, with its results so far."""

    args: argparse.Namespace
    setup: Setup
    stop: Stop
    progress: Progress
    start_ns: int
    started_ns: int
    flame: dict[str, str | None] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    experiment: Experiment | None = None

    @classmethod
    def begin(cls, args: argparse.Namespace, setup: Setup, stop: Stop) -> TuningRun:
        """A session whose time begins now."""
        now = stop.now()
        progress = Progress(sys.stderr, now + setup.request.budget_ns)
        return cls(args, setup, stop, progress, now, time.time_ns())

    def run(self) -> Json:
        """Returns the session's JSON; then better values are in force, or the previous ones.
        Raises CommandError and TraceError if the session cannot begin."""
        setup = self.setup
        command = shlex.join(_command())
        state, note, found = "finished", None, None
        try:
            # The supervisor is a fork of this process, so it comes before what needs memory. And
            # values are restored before waiting for anything else, e.g. the end of the load.
            with (
                ExitStack() as stack,
                ChangeSession(
                    setup.host, command, setup.parameters(), self.progress.line
                ) as session,
            ):
                self._require_same(session)
                found = self._found()
                try:
                    self._tune(session, stack, found)
                except Stopped:
                    unheard = self.stop.reader_gone and not self.stop.asked
                    why = "as nobody reads its messages" if unheard else "by a signal"
                    state, note = "stopped", f"stopped {why}"
                except RestoredError as error:
                    state, note = "failed", error.in_one_line()
                except (TraceError, Refused) as error:
                    if not self.records:
                        raise
                    state = "failed"
                    said = (str(error), "all parameters are restored", error.hint)
                    note = "; ".join(filter(None, said))
                in_force = state == "finished" and found.accepted
                back = session.finish(applied=in_force)
                for line in recovery.describe(back, setup.host):
                    self.progress.line(line)
                if not back.complete:
                    state, note = "failed", "not all parameters are restored; see `zfstune status`"
                overrides = session.overrides()
            self._later(found)
        finally:
            self.progress.end()
        from zfstune.experiment import session_json

        whole = session_json.session(
            self._circumstances(in_force),
            state,
            note,
            found,
            self.records,
            in_force,
            [asdict(override) for override in overrides],
        )
        return whole | {"restored": back.complete}

    def _later(self, found: Found) -> None:
        """Does the work that has waited until parameters are final."""
        for one in found.later:
            try:
                one()
            except CommandError as error:
                self.progress.line(error.in_one_line())

    def _require_same(self, session: ChangeSession) -> None:
        """Raises NotPossible when the values in force are not those of the plan."""
        for name, value in self.setup.originals().items():
            now = session.originals.get(name)
            if now != value:
                raise NotPossible(
                    f"{name} has just been changed from {value} to {now}", "run the command again"
                )

    def _found(self) -> Found:
        """Also loads the packages: doing so later would disturb the measurement."""
        from zfstune.experiment import search

        request = self.setup.request
        if not request.arc and search.by_optuna(request.storage, request.sampler):
            self.progress.line("loading optuna ...")
            import optuna  # noqa: F401

        from zfstune.experiment.found import Found

        return Found()

    def _tune(self, session: ChangeSession, stack: ExitStack, found: Found) -> None:
        """Raises Stopped, RestoredError, CommandError, TraceError; then the values of the last
        block may be in force."""
        from zfstune.experiment import search

        setup, request = self.setup, self.setup.request
        if not request.arc:
            search.require(
                request.storage,
                self.args.study,
                self._facts(),
                sampler=request.sampler,
                resume=bool(self.args.resume),
            )
        say = self.progress.line
        guards = [one for one in request.guards if one.metric.source == "reads"]
        reads = open_reads(setup.host, setup.pool, request.objective, request.limits, guards, say)
        stack.callback(reads.close)
        watch = self._guardrails(session)
        if self.args.workload:
            load = Workload(self.args.workload, self.args.user, shell=self.args.shell)
            stack.callback(load.close)
            watch.checks.append(load.check)
        self.progress.line(
            f"session on {setup.pool}, {format_span(request.budget_ns)}, seed {request.seed}; "
            "Ctrl-C ends it and restores all parameters"
        )
        for note in setup.notes():
            self.progress.line(note)
        self._warm_up(watch)
        self._flame("before", watch)
        fsyncs = setup.host.open_fsync_trace(FsyncOptions(pool=setup.pool))
        stack.callback(fsyncs.close)
        experiment = self.experiment = Experiment(
            setup.host,
            setup.pool,
            BlockMeter(setup.host, setup.pool, fsyncs, reads=reads.session),
            request.plan,
            session.apply,
            watch,
            self.stop,
            self.progress,
            self.start_ns,
            self.records,
        )
        tuning = (
            self._arc(experiment, reads, found)
            if request.arc
            else self._tuning(experiment, reads, found)
        )
        tuning.run()
        if found.accepted and found.winner:
            session.apply(setup.baseline() | found.winner.values)
            fsyncs.close()
            self._flame("after", watch)

    def _guardrails(self, session: ChangeSession) -> Guardrails:
        longest = self.args.max_latency or LONGEST_NS
        watch = Guardrails(self.setup.host, self.setup.pool, self.stop.now, longest)

        def intact() -> None:
            if not session.alive():
                raise Disturbed("the supervisor was killed or stopped; all parameters are restored")
            others = session.overrides()
            if others:
                raise Disturbed(
                    f"{others[-1]}: the baseline has changed; all other parameters are restored"
                )

        # of its traces, each second
        watch.checks += [intact, self.setup.host.tick]
        return watch

    def _warm_up(self, watch: Guardrails) -> None:
        """Waits half a block for the load to start; the ARC's settles first."""
        request = self.setup.request
        end = self.stop.now() + round(request.plan.seconds * SECOND / 2) * (not request.arc)
        while self.stop.now() < end:
            self.progress.status("waiting for the load to start")
            self._tick(watch)

    def _tick(self, watch: Guardrails) -> None:
        if self.stop.wait(SECOND):
            raise Stopped
        watch(None, measuring=False)

    def _flame(self, name: str, watch: Guardrails) -> None:
        if self.args.no_flame or self.setup.request.arc:
            return
        setup, seconds = self.setup, session_flame.seconds_of(self.setup.request.budget_ns)
        self.progress.line(f"recording where fsyncs wait, {name}, {seconds} s")
        path = setup.request.out / f"{name}.folded"
        try:
            session_flame.record(setup.host, setup.pool, path, seconds, lambda: self._tick(watch))
            self.flame[name] = path.name
        except TraceError as error:
            self.flame["note"] = error.in_one_line()
            self.progress.line(f"no flame graph: {error.in_one_line()}")

    def _tuning(self, experiment: Experiment, reads: Reads, found: Found) -> Tuning:
        from zfstune.experiment import model, search
        from zfstune.experiment import phases as tuning
        from zfstune.experiment.found import Task

        setup, request = self.setup, self.setup.request

        def look(records: Sequence[Record]) -> tuning.Search:
            vdevs = max(1, setup.host.data_vdevs(setup.pool))
            measured = model.measured(records, setup.slog, vdevs)
            names = setup.space.parameters()
            return search.Searcher(
                setup.space,
                setup.current,
                setup.facts,
                first=model.candidates(measured, setup.current, setup.facts, names),
                sampler=request.sampler,
                seed=request.seed,
                storage=request.storage,
                study=self.args.study,
                facts=self._facts(),
                resume=bool(self.args.resume),
                say=self.progress.line,
                **({"vary": request.names} if self.args.parameters else {}),
            )

        return tuning.Tuning(
            Task(
                request.objective,
                request.limits,
                MARGIN,
                request.seed,
                self.start_ns + request.budget_ns,
                0.0 if self.args.no_flame else 2.0 * session_flame.seconds_of(request.budget_ns),
                self.args.observe,
            ),
            experiment,
            setup.baseline(),
            look,
            lambda best: search.ablation(best, setup.current, setup.facts),
            self.progress,
            found,
            reads,
        )

    def _arc(self, experiment: Experiment, reads: Reads, found: Found) -> ArcTuning:
        from zfstune.experiment import arc
        from zfstune.experiment.found import Task

        setup, request = self.setup, self.setup.request
        return arc.ArcTuning(
            Task(
                request.objective,
                request.limits,
                MARGIN,
                request.seed,
                self.start_ns + request.budget_ns,
                0.0,
                self.args.observe,
            ),
            experiment,
            setup.baseline(),
            setup.arc_most(),
            request.guards,
            reads,
            self.progress,
            found,
        )

    def _facts(self) -> dict[str, str]:
        from zfstune.experiment import sharing

        setup = self.setup
        return sharing.sharing_facts(
            version=setup.host.version(),
            memory_bytes=setup.host.memory_bytes(),
            layout=",".join(sorted(setup.host.vdev_names(setup.pool).values())),
            workload=sharing.workload_name(self.args.workload),
            objective=str(setup.request.objective),
            baseline=setup.baseline(),
        )

    def _circumstances(self, in_force: bool) -> Circumstances:
        from zfstune.experiment.session_json import Circumstances

        setup, request = self.setup, self.setup.request
        return Circumstances(
            started=iso_utc(self.started_ns),
            ended=iso_now(),
            seconds=(self.stop.now() - self.start_ns) / SECOND,
            host={
                "hostname": socket.gethostname(),
                "kernel": os.uname().release,
                "zfs": setup.host.version(),
                "memory_bytes": setup.host.memory_bytes(),
                "cpus": os.cpu_count(),
            },
            pool=setup.pool,
            command=_command(),
            objective=request.objective,
            budget_s=request.budget_ns / SECOND,
            # longer than asked for where the load needs that
            block_s=(self.experiment.plan if self.experiment else request.plan).seconds,
            seed=request.seed,
            baseline=setup.baseline(),
            undo_shell=revert.commands(setup.host, places()) if in_force else [],
            flame=self.flame,
        )
