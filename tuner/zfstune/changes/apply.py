"""Writing parameters: the only code that does.

Each write is announced in the journal, done, read back and compared. For the ARC's limits (in_force
in the catalogue) arcstats shows whether they are in force: the kernel accepts an illegal limit and
then ignores it (module/zfs/arc.c, arc_tuning_update()). What another process has written is left
alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from zfstrace.clock import iso_second
from zfstrace.errors import Hinted, ParameterError
from zfstrace.host import Host
from zfstrace.params import LOADED_ANEW, Change, Watch
from zfstune.changes.journal import Journal
from zfstune.changes.records import APPLIED, GONE, RESTORED, Layer, Original, Override
from zfstune.errors import NotPossible, RestoredError
from zfstune.tunables import catalogue, guard, planner
from zfstune.tunables.catalogue import Parameter
from zfstune.tunables.guard import Facts
from zfstune.tunables.planner import Write, plan

# A write that must not meet a writer in the throttle waits until the throttle has been still for
# this long, with a limit: it is the order of writes that makes it safe.
_STILL_S, _STILL_AT_MOST_S = 0.3, 3.0
_THROTTLE = ("dmu_tx_dirty_delay", "dmu_tx_wrlog_delay")

# How late an event may arrive after its write.
_LATE_S = 0.2

# How often a restore is retried when another process interferes.
_PASSES = 5


class ApplyError(RestoredError):
    """Values could not be set; the previous ones are restored."""


class Overridden(ApplyError):
    """Another process has written one of the parameters; names are those that are now theirs."""

    def __init__(self, message: str, names: Iterable[str], hint: str = "") -> None:
        super().__init__(message, hint)
        self.names = tuple(names)


@dataclass(frozen=True)
class Restored:
    """A restored parameter: its value before the restore and after it."""

    name: str
    before: int
    value: int


@dataclass(frozen=True)
class RestoreReport:
    """What a restore did. kept: parameters that another process has set; gone: those that a reload
    of the module has reset, or that do not exist any more; failed: names with the reason."""

    restored: tuple[Restored, ...] = ()
    kept: tuple[Override, ...] = ()
    gone: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    # the module was reloaded: what is gone exists, with the values of the new module
    stale: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing failed."""
        return not self.failed


class Applier:
    """Writes parameters of a host for the journal's last layer."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        catalogue: Mapping[str, Parameter],
        say: Callable[[str], None],
        still_s: float = _STILL_S,
    ) -> None:
        self._host, self._journal, self._say = host, journal, say
        self.params = host.parameters()
        self._limiting = {name for name, p in catalogue.items() if p.in_force}
        self._still_s = still_s
        self.watch: Watch | None = None
        # called before each write of apply(): raises ApplyError if it must not go on
        self.before_write: Callable[[], None] = lambda: None
        self._wrote: dict[str, float] = {}

    # --- the present values

    def state(self) -> dict[str, int]:
        """The present values, by name, of parameters in the catalogue or the journal."""
        return guard.state(self.params, self._journal.history.base)

    def originals(self, names: Iterable[str]) -> dict[str, Original]:
        """The present values of these parameters, as originals for the journal; without those that
        do not exist."""
        found = {}
        limits = guard.lasting(self._host.kstat("arcstats"))
        for name in names:
            value = self.params.read(name)
            if value is not None:
                found[name] = Original(value, limits.get(name))
        return found

    def _limits(self) -> dict[str, int]:
        """The limits of the ARC in force."""
        return guard.limits(self._host.kstat("arcstats"))

    # --- writes by other processes

    def notice(self) -> list[Override]:
        """The writes by other processes to parameters of the layer since the last call; also
        records them in the journal."""
        changes = self.watch.poll() if self.watch else []
        return [found for change in changes if (found := self._override(change)) is not None]

    def starting_point(self, names: Iterable[str]) -> tuple[str, dict[str, Original]]:
        """Identity and originals for a new layer, read in this order: the originals of one module
        must not be restored in another. What other processes have set since the last layer is
        recorded last: a value that comes in between would pass for one of an earlier layer."""
        identity, originals = self.params.identity(), self.originals(names)
        self._reconcile()
        return identity, originals

    def _reconcile(self) -> None:
        """Records what other processes have set since the last layer."""
        history = self._journal.history
        for name in list(history.base):
            value = self.params.read(name)
            if value is not None:
                self._theirs(name, value)

    def _override(self, change: Change) -> Override | None:
        """Records a write by another process; None if the parameter is not ours."""
        name, history = change.name, self._journal.history
        if name not in history.base:
            return None
        value = self.params.read(name)
        # our value is there, although another process has just written: this program came later
        lost = (
            value in history.expected[name]
            and time.monotonic() - self._wrote.get(name, -_LATE_S) < _LATE_S
        )
        override = Override(name, value, change.pid, change.comm, iso_second(), lost)
        self._journal.override(override)
        self._say(f"{override}" + ("; set it again" if lost else " and is left as it is"))
        return override

    def _theirs(self, name: str, value: int) -> bool:
        """Whether another process wrote it, judged by its value; if so, records that."""
        history = self._journal.history
        # in a restore, the values that it restores are ours
        ours = history.ours(name) if self._journal.tolerant else history.expected.get(name, ())
        if name in history.base and value not in ours:
            self._override(self._writer_of(name, _LATE_S) or Change(name))
            return True
        return False

    # --- apply

    def apply(self, wanted: Mapping[str, int], *, force: bool = False) -> list[Write]:
        """Sets values in the safe order; returns the writes. Raises guard.Refused before the first
        write, Overridden or another ApplyError after restoring the previous values."""
        self._require_same_module()
        self.notice()
        state = self.state()
        for name in wanted:
            if name in state:
                self._theirs(name, state[name])
        self._require_ours(wanted)
        writes = planner.plan(state, wanted, guard.facts(self._host), force=force)
        self._require_ours(write.name for write in writes)
        before = self.originals(write.name for write in writes)
        try:
            for name, original in before.items():
                if name not in self._journal.layer.originals:
                    self._journal.original(name, original, sync=False)
            for write in writes:
                self.before_write()
                self._write(write)
        except (ParameterError, NotPossible, ApplyError, _Failed) as error:
            self._put_back(before, error)
        return writes

    def _require_same_module(self) -> None:
        if self._stale():
            raise ApplyError(f"cannot set parameters: {LOADED_ANEW}")

    def _stale(self) -> bool:
        return self.params.identity() != self._journal.layer.identity

    def _require_ours(self, names: Iterable[str]) -> None:
        """A parameter that another process has set during the layer is not touched again."""
        theirs = {o.name: o for o in self._journal.layer.overrides if not o.lost}
        found = [theirs[name] for name in names if name in theirs]
        if found:
            raise Overridden(
                f"cannot go on: {found[0]}",
                (override.name for override in found),
                "leave it out or begin again",
            )

    def _write(self, write: Write, *, limit: bool = True, back: Collection[str] = ()) -> None:
        """One write; limit: an ARC limit must be in force afterwards; back: what a restore brings
        back, as it was together. Raises ParameterError, NotPossible (no journal), _Failed."""
        name, value = write.name, write.value
        if write.quiet:
            self._wait_still()
        old = self.params.read(name)
        if old is None:
            raise _Failed(f"cannot set {name}: it does not exist any more")
        if name not in self._journal.history.base or self._theirs(name, old):
            raise _Failed(f"cannot set {name}: another process has just set it to {old}", name)
        self._journal.intend(name, old, value)
        # the journal took time: judge and look again, right before the write
        if limit:
            self._judge(name, value, back)
        writer, now = self._writer_of(name), self.params.read(name)
        if now != old or writer:
            self._override(writer or self._writer_of(name, _LATE_S) or Change(name))
            raise _Failed(f"cannot set {name}: another process has just set it to {now}", name)
        self._wrote[name] = time.monotonic()
        self.params.write(name, value, self._journal.layer.identity)
        seen = self.params.read(name)
        self._journal.wrote(name, value)
        writer = self._writer_of(name)
        if writer:
            self._override(writer)
        if seen != value:
            if writer:
                raise _Failed(f"cannot set {name}: another process has just set it to {seen}", name)
            raise _Failed(f"cannot set {name} to {value}: it reads {seen} afterwards")
        if limit:
            self._check_limit(name, value)

    def _judge(self, name: str, value: int, back: Collection[str]) -> None:
        """Raises _Failed if the value would break a hard rule that holds: since the guard has
        judged it, or since the value was there, another process may have set its counterpart."""
        facts = guard.facts(self._host)
        now = guard.in_force(self.state(), facts)
        before, after = guard.values(now, facts), guard.values({**now, name: value}, facts)
        for rule in catalogue.rules():
            others = [other for other in rule.names if other != name]
            if not rule.hard or name not in rule.names or {*others} <= {*back}:
                continue
            if rule.holds(before) and not rule.holds(after):
                raise _Failed(
                    f"cannot set {name} to {value}: {rule.text} must hold, {rule.reason}",
                    hint=f"change {' or '.join(others)} first",
                )

    def _writer_of(self, name: str, wait_s: float = 0.0) -> Change | None:
        """The last write to it by another process; waits for the event at most wait_s. Records
        writes to other parameters."""
        found, end = None, time.monotonic() + wait_s
        while self.watch:
            for change in self.watch.poll():
                if change.name == name:
                    found = change
                else:
                    self._override(change)
            if found or time.monotonic() >= end:
                break
            time.sleep(0.005)
        return found

    def _check_limit(self, name: str, value: int) -> None:
        if value and name in self._limiting:
            limit = self._limits().get(name, value)
            if limit != value:
                raise _Failed(
                    f"cannot set {name} to {value}: ZFS ignores it and stays at {limit} (see "
                    "`dmesg`)",
                    hint="choose a value between the other limit and the memory",
                )

    def _wait_still(self) -> None:
        """Waits until the write throttle delays no writer; reports writes by other processes."""
        end = time.monotonic() + _STILL_AT_MOST_S
        before, since = self._throttled(), time.monotonic()
        while time.monotonic() < end and time.monotonic() - since < self._still_s:
            time.sleep(min(0.05, self._still_s))
            self.notice()
            now = self._throttled()
            if now != before:
                before, since = now, time.monotonic()

    def _throttled(self) -> tuple[int, ...]:
        stats = self._host.kstat("dmu_tx")
        return tuple(stats.get(name, 0) for name in _THROTTLE)

    def _put_back(self, before: Mapping[str, Original], error: Hinted) -> None:
        """Restores the state before apply(). Raises ApplyError."""
        message = str(error)
        if self._stale():
            raise ApplyError(message, error.hint) from None
        self._journal.tolerant = True
        try:
            report = self._back(before)
        finally:
            self._journal.tolerant = False
        if report.failed:
            name, reason = report.failed[0]
            message += f"; {name} could not be restored: {reason}"
        if isinstance(error, _Failed) and error.overridden:
            raise Overridden(message, [error.overridden], error.hint) from None
        kind = type(error) if isinstance(error, ApplyError) else ApplyError
        raise kind(message, error.hint) from None

    def applied(self, layer: Layer) -> None:
        """Ends a layer whose values stay. Raises ApplyError if there is no room for the record."""
        try:
            self._journal.end(layer, APPLIED)
        except NotPossible as error:
            raise ApplyError(f"cannot keep the values in force: {error}", error.hint) from None

    # --- restore

    def restore(self, layer: Layer) -> RestoreReport:
        """Restores the state at the beginning of the layer and ends it, unless something failed.
        Needs no room on any disk."""
        return self.back_to(layer.originals, [layer])

    def revert(self) -> RestoreReport:
        """Restores the values from before all layers, and ends them."""
        return self.back_to(dict(self._journal.history.base), self._journal.history.in_force)

    def back_to(self, originals: Mapping[str, Original], layers: Iterable[Layer]) -> RestoreReport:
        """Restores these values and ends these layers, unless something failed. What other
        processes have set is left alone. Needs no room on any disk."""
        layers = list(layers)
        self._journal.tolerant = True
        try:
            here = self.params.identity()
            stale = any(layer.identity != here for layer in layers)
            if stale:
                report = RestoreReport(gone=tuple(originals), stale=True)
            else:
                self.notice()
                report = self._back(originals)
            if report.complete:
                # the last first, so that a stack of layers remains at any time
                for layer in reversed(layers):
                    self._journal.end(layer, GONE if stale else RESTORED)
        finally:
            self._journal.tolerant = False
        return report

    def planned(
        self, originals: Mapping[str, Original]
    ) -> tuple[list[Write], list[Override], list[str]]:
        """What a restore would write now, what other processes have set, what does not exist."""
        state = self.state()
        history = self._journal.history
        kept, gone, targets = [], [], {}
        last = {o.name: o for layer in history.in_force for o in layer.overrides if not o.lost}
        for name, original in originals.items():
            now = state.get(name)
            if now is None:
                gone.append(name)
            elif name not in history.base:
                found = last.get(name, Override(name, now))
                kept.append(replace(found, value=now, original=original.value))
            elif now not in history.ours(name):
                kept.append(Override(name, now, original=original.value))
            elif now != original.value or not self._in_force(name, original):
                targets[name] = original
        return self._order(state, targets), kept, gone

    def _in_force(self, name: str, original: Original) -> bool:
        """Whether the limit in force is the original one; True if there is none."""
        if original.effective is None or name not in self._journal.history.written:
            return True
        return self._limits().get(name) == original.effective

    def _order(self, state: Mapping[str, int], targets: Mapping[str, Original]) -> list[Write]:
        return way_back(state, targets, guard.facts(self._host))

    def _back(self, originals: Mapping[str, Original]) -> RestoreReport:
        originals = dict(originals)  # a layer's own may grow meanwhile
        first = {name: self.params.read(name) for name in originals}
        failed: dict[str, str] = {}
        kept: dict[str, Override] = {}
        passing: dict[str, Original] = {}
        gone: list[str] = []
        hindered = 0
        while True:
            ours = {name: one for name, one in originals.items() if name not in kept}
            ours = {name: one for name, one in (ours | passing).items() if name not in failed}
            writes, theirs, gone = self.planned(ours)
            for override in theirs:
                kept[override.name] = override
                if override.name in self._journal.history.base:
                    self._journal.override(override)
            problem = self._restore_all(writes, originals, passing)
            if problem is None:
                break
            # the order of writes makes them safe, so a failure needs a new plan
            name, text = problem
            hindered += 1
            if name in originals and name not in kept and name in self._journal.history.base:
                failed[name] = text
            elif hindered > _PASSES:
                needing = [other for other in ours if self._needs(other, ours[other], name)]
                failed |= dict.fromkeys(needing, text)
                if not needing:
                    break
        failed |= {
            name: "it was changed in passing, and could not be restored"
            for name, one in passing.items()
            if self.params.read(name) != one.value and name in self._journal.history.base
        }
        done = [
            Restored(name, before, original.value)
            for name, original in originals.items()
            if (before := first[name]) is not None and name not in {*failed, *kept, *gone}
        ]
        return RestoreReport(
            tuple(one for one in done if one.before != one.value),
            tuple(kept.values()),
            tuple(gone),
            tuple(failed.items()),
        )

    def _needs(self, name: str, original: Original, other: str) -> bool:
        """Whether restoring one parameter needs a write of another one."""
        if self.params.read(name) == original.value:
            return False
        return any(write.name == other for write in self._order(self.state(), {name: original}))

    def _restore_all(
        self,
        writes: Iterable[Write],
        originals: Mapping[str, Original],
        passing: dict[str, Original],
    ) -> tuple[str, str] | None:
        """The name of the first write that failed, and why."""
        for write in writes:
            self._pass(write.name, originals, passing)
            original = originals.get(write.name)
            # a limit that was not in force with this value need not be in force now
            asked_only = original is not None and (
                original.value == write.value and original.effective not in (None, write.value)
            )
            ours = originals.keys() & self._journal.history.base.keys()
            try:
                self._write(write, limit=not asked_only, back=ours)
            except (ParameterError, _Failed) as error:
                return write.name, error.in_one_line()
        return None

    def _pass(
        self, name: str, originals: Mapping[str, Original], passing: dict[str, Original]
    ) -> None:
        """A step of the safe order may change a parameter that is not ours, or only an earlier
        layer's: then the journal gets its value, and it is restored, too."""
        base = self._journal.history.base
        if name in base and (name in originals or name in passing):
            return
        for found in self.originals([name]).values():
            theirs = name not in base or self._theirs(name, found.value)
            if theirs or name not in self._journal.layer.originals:
                self._journal.original(name, found)
            passing[name] = found


class _Failed(Hinted):
    """A write failed; overridden is the name if another process was faster."""

    def __init__(self, message: str, overridden: str = "", hint: str = "") -> None:
        super().__init__(message, hint)
        self.overridden = overridden


def way_back(
    now: Mapping[str, int], originals: Mapping[str, Original], facts: Facts
) -> list[Write]:
    """The writes that restore these originals, in order; [] if there are none."""
    if not originals:
        return []
    # a limit of 0 means "not set", and writing it changes nothing: the limit in force comes first
    numbers = {
        name: original.value if original.effective is None else original.effective
        for name, original in originals.items()
    }
    writes = plan(now, numbers, facts, back=True)
    return writes + [
        Write(name, original.value)
        for name, original in originals.items()
        if original.value != numbers[name]
    ]
