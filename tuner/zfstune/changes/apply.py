"""Writing parameters: the only code that does.

Each write is announced in the journal, done, read back and compared; for the ARC's limits
(in_force in the catalogue) it is arcstats that tells whether they are in force, since the kernel
accepts and then ignores an illegal one (module/zfs/arc.c, arc_tuning_update()). What somebody
else has written is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from zfstrace.clock import iso_second
from zfstrace.errors import ParameterError
from zfstrace.host import Host
from zfstrace.params import LOADED_ANEW, Change, Watch
from zfstune.changes.journal import Journal
from zfstune.changes.records import APPLIED, GONE, RESTORED, Layer, Original, Override
from zfstune.errors import NotPossible, RestoredError
from zfstune.tunables import guard, planner
from zfstune.tunables.catalogue import Parameter
from zfstune.tunables.guard import Facts
from zfstune.tunables.planner import Write, plan

# A write that must not meet a writer in the throttle waits until the throttle has stood
# still for so long, but not forever: the order of writes is what makes it safe.
_STILL_S, _STILL_AT_MOST_S = 0.3, 3.0
_THROTTLE = ("dmu_tx_dirty_delay", "dmu_tx_wrlog_delay")

# An event may come that late after the write that it tells of.
_LATE_S = 0.2

# So often a restore begins again when somebody else comes in between.
_PASSES = 5


class ApplyError(RestoredError):
    """Values could not be set; those of before are in force again."""


class Overridden(ApplyError):
    """Somebody else has written one of the parameters; names are those that are theirs now."""

    def __init__(self, message: str, names: Iterable[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)


@dataclass(frozen=True)
class Restored:
    """A parameter that was put back: its value before that and after it."""

    name: str
    before: int
    value: int


@dataclass(frozen=True)
class RestoreReport:
    """What a restore did. kept are those that others have set; gone, with their values, as
    the module was loaded anew or the parameter is not there any more; failed with the reason."""

    restored: tuple[Restored, ...] = ()
    kept: tuple[Override, ...] = ()
    gone: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    # the module was loaded anew: all that is gone is there, with the values of the new one
    stale: bool = False

    @property
    def complete(self) -> bool:
        """Whether all that could be put back was: nothing failed."""
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
        # called before each write of apply(): raises ApplyError when it must not go on
        self.before_write: Callable[[], None] = lambda: None
        self._wrote: dict[str, float] = {}

    # --- what is there

    def state(self) -> dict[str, int]:
        """The present values, by name, of what the catalogue knows and what the journal has."""
        return guard.state(self.params, self._journal.history.base)

    def originals(self, names: Iterable[str]) -> dict[str, Original]:
        """The present values of these, as the journal wants them; without those that are
        not there."""
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

    # --- others

    def notice(self) -> list[Override]:
        """What others have done since the last call to parameters of the layer; recorded in the
        journal."""
        changes = self.watch.poll() if self.watch else []
        return [found for change in changes if (found := self._override(change)) is not None]

    def reconcile(self) -> None:
        """Before a new layer: what others have set since the last one is theirs."""
        history = self._journal.history
        for name in list(history.base):
            value = self.params.read(name)
            if value is not None:
                self._theirs(name, value)

    def _override(self, change: Change) -> Override | None:
        """Records it; None when the parameter is none of ours."""
        name, history = change.name, self._journal.history
        if name not in history.base:
            return None
        value = self.params.read(name)
        # ours although somebody else has just written it: this program was a moment later
        lost = (
            value in history.expected[name]
            and time.monotonic() - self._wrote.get(name, -_LATE_S) < _LATE_S
        )
        override = Override(name, value, change.pid, change.comm, iso_second(), lost)
        self._journal.override(override)
        self._say(f"{override}, " + ("set it again" if lost else "it is left as it is"))
        return override

    def _theirs(self, name: str, value: int) -> bool:
        """Whether somebody else wrote it, by its value; recorded then."""
        history = self._journal.history
        # to go back, what it goes back to is no stranger
        ours = history.ours(name) if self._journal.tolerant else history.expected.get(name, ())
        if name in history.base and value not in ours:
            self._override(self._writer_of(name, _LATE_S) or Change(name))
            return True
        return False

    # --- apply

    def apply(self, wanted: Mapping[str, int], *, force: bool = False) -> list[Write]:
        """Sets values, in the guard's order; returns the writes. Raises guard.Refused before
        the first write, Overridden or another ApplyError after having put back."""
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
            raise ApplyError(f"cannot set parameters, {LOADED_ANEW}")

    def _stale(self) -> bool:
        return self.params.identity() != self._journal.layer.identity

    def _require_ours(self, names: Iterable[str]) -> None:
        """A parameter that somebody else has set during the layer is not touched again."""
        theirs = {o.name: o for o in self._journal.layer.overrides if not o.lost}
        found = [theirs[name] for name in names if name in theirs]
        if found:
            raise Overridden(
                f"cannot go on, {found[0]}, leave it out or begin again",
                (override.name for override in found),
            )

    def _write(self, write: Write, *, limit: bool = True) -> None:
        """One write; limit: an ARC limit must be in force then. Raises ParameterError,
        NotPossible (no journal), _Failed."""
        name, value = write.name, write.value
        if write.quiet:
            self._wait_still()
        old = self.params.read(name)
        if old is None:
            raise _Failed(f"cannot set {name}, it is not there any more")
        if name not in self._journal.history.base or self._theirs(name, old):
            raise _Failed(f"cannot set {name}, somebody else has just set it to {old}", name)
        self._journal.intend(name, old, value)
        # the journal took its time: look once more, right before
        writer, now = self._writer_of(name), self.params.read(name)
        if now != old or writer:
            self._override(writer or self._writer_of(name, _LATE_S) or Change(name))
            raise _Failed(f"cannot set {name}, somebody else has just set it to {now}", name)
        self._wrote[name] = time.monotonic()
        self.params.write(name, value, self._journal.layer.identity)
        seen = self.params.read(name)
        self._journal.wrote(name, value)
        writer = self._writer_of(name)
        if writer:
            self._override(writer)
        if seen != value:
            if writer:
                raise _Failed(f"cannot set {name}, somebody else has just set it to {seen}", name)
            raise _Failed(f"cannot set {name} to {value}, it reads {seen} afterwards")
        if limit:
            self._check_limit(name, value)

    def _writer_of(self, name: str, wait_s: float = 0.0) -> Change | None:
        """The last other process that wrote it just now; waits for the word of it so long at
        most. What was done to others is recorded."""
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
                    f"cannot set {name} to {value}, ZFS ignores it and stays at {limit} "
                    "(see `dmesg`), choose a value between the other limit and the memory"
                )

    def _wait_still(self) -> None:
        """Until the write throttle holds nobody up. What others do meanwhile is told."""
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

    def _put_back(self, before: Mapping[str, Original], error: Exception) -> None:
        """To the state before apply(). Raises ApplyError."""
        message = str(error)
        if self._stale():
            raise ApplyError(message) from None
        self._journal.tolerant = True
        try:
            report = self._back(before)
        finally:
            self._journal.tolerant = False
        if report.failed:
            name, reason = report.failed[0]
            message += f"; {name} could not be put back: {reason}"
        if isinstance(error, _Failed) and error.overridden:
            raise Overridden(message, [error.overridden]) from None
        kind = type(error) if isinstance(error, ApplyError) else ApplyError
        raise kind(message) from None

    def applied(self, layer: Layer) -> None:
        """What was set stays. Raises ApplyError when there is no room to say so."""
        try:
            self._journal.end(layer, APPLIED)
        except NotPossible as error:
            raise ApplyError(f"cannot keep the values in force, {error}") from None

    # --- restore

    def restore(self, layer: Layer) -> RestoreReport:
        """Back to the state at the begin of the layer, which ends; needs no room on any disk.
        It does not end when something failed."""
        return self.back_to(layer.originals, [layer])

    def revert(self) -> RestoreReport:
        """Back to the values from before all layers, which end."""
        return self.back_to(dict(self._journal.history.base), self._journal.history.in_force)

    def back_to(self, originals: Mapping[str, Original], layers: Iterable[Layer]) -> RestoreReport:
        """Back to these values, and the end of these layers. What others have set is left alone;
        where something failed the layers stay open. Needs no room on any disk."""
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
                # the last first: what is left then is always a stack of layers
                for layer in reversed(layers):
                    self._journal.end(layer, GONE if stale else RESTORED)
        finally:
            self._journal.tolerant = False
        return report

    def planned(
        self, originals: Mapping[str, Original]
    ) -> tuple[list[Write], list[Override], list[str]]:
        """What a restore would write now, what others have set, what is not there."""
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
        """Whether the limit is what it was as well; True where there is no such limit."""
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
            # the order of writes is what makes them safe: after a failure there is a new plan
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
            name: "another value was needed for a moment, and could not be taken back"
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
        """Whether putting back one parameter passes by another one."""
        if self.params.read(name) == original.value:
            return False
        return any(write.name == other for write in self._order(self.state(), {name: original}))

    def _restore_all(
        self,
        writes: Iterable[Write],
        originals: Mapping[str, Original],
        passing: dict[str, Original],
    ) -> tuple[str, str] | None:
        """The name of the first write that failed, and why. A step of the safe order may pass by
        a parameter that is not ours: it gets back what it had, as the journal then knows."""
        for write in writes:
            if write.name not in self._journal.history.base:
                for name, found in self.originals([write.name]).items():
                    self._journal.original(name, found)
                    passing[name] = found
            original = originals.get(write.name)
            # a limit that was not in force with this value need not be now
            asked_only = original is not None and (
                original.value == write.value and original.effective not in (None, write.value)
            )
            try:
                self._write(write, limit=not asked_only)
            except (ParameterError, _Failed) as error:
                return write.name, str(error)
        return None


class _Failed(Exception):
    """A write did not do what it should; overridden is the name if somebody else was faster."""

    def __init__(self, message: str, overridden: str = "") -> None:
        super().__init__(message)
        self.overridden = overridden


def way_back(
    now: Mapping[str, int], originals: Mapping[str, Original], facts: Facts
) -> list[Write]:
    """The writes that put these back; [] when there are none."""
    if not originals:
        return []
    # 0 in a limit of the ARC means "not set", and writing it changes nothing: the limit that was
    # in force comes first
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
