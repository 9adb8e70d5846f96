"""From measurements to causes: which apply, and which share of the time each explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zfstrace import stages
from zfstrace.types import SCHEMA, Json
from zfstune.diagnose import causes
from zfstune.diagnose.causes import Cause
from zfstune.diagnose.quantities import SCOPED, SCOPES, Measurements, number, permille, show
from zfstune.errors import DONE, NEGATIVE
from zfstune.rules import language
from zfstune.rules.language import Unknown
from zfstune.rules.thresholds import threshold
from zfstune.term.units import format_percent

# Causes were found; nothing is wrong; fsyncs are slow for an unknown reason; too few fsyncs to
# judge; no fsync used the log.
VERDICTS = ("causes", "healthy", "unknown", "idle", "no_log")


@dataclass(frozen=True)
class Finding:
    """A cause that applies. Shares are per mille of the time of the slowest hundredth (None if no
    single operations were seen) and of all operations; both are None if the cause lies outside the
    time of fsyncs."""

    cause: Cause
    certainty: str
    title: str
    share_p99: int | None
    share_total: int | None
    evidence: tuple[str, ...]
    next: tuple[str, ...]
    alike: tuple[str, ...]

    @property
    def why(self) -> str:
        return self.cause.why[self.certainty]

    @property
    def rank(self) -> tuple[int, int]:
        """The smaller, the more important: by the sum of both shares, then by certainty."""
        share = (self.share_p99 or 0) + (self.share_total or 0)
        return -share, causes.CERTAINTIES.index(self.certainty)

    def to_json(self) -> Json:
        return {
            "id": self.cause.id,
            "number": self.cause.number,
            "title": self.title,
            "certainty": self.certainty,
            "why": self.why,
            "share_p99": _part(self.share_p99),
            "share_total": _part(self.share_total),
            "evidence": list(self.evidence),
            "next": list(self.next),
            "alike": list(self.alike),
        }


@dataclass(frozen=True)
class Diagnosis:
    """verdict is one of VERDICTS, summary a sentence. rest_p99 and rest_total are the per mille
    that no finding explains, owners those of rest_total by owner of the stage. not_judged are
    causes with a missing measurement, and its name."""

    measurements: Measurements
    verdict: str
    summary: str
    findings: tuple[Finding, ...]
    rest_p99: int | None
    rest_total: int | None
    owners: Mapping[str, int]
    not_judged: tuple[tuple[Cause, str], ...]

    @property
    def status(self) -> int:
        """The command's status: NEGATIVE if fsyncs are slow, for a known reason or not."""
        return NEGATIVE if self.verdict in ("causes", "unknown") else DONE

    def to_json(self) -> Json:
        """A ``diagnosis`` object of the schema; shares are 0 to 1, None = not known."""
        found = self.measurements
        return {
            "schema": SCHEMA,
            "type": "diagnosis",
            "time": found["time"],
            "pool": found["pool"],
            "pool_state": found["pool_state"],
            "duration_ns": found["duration_ns"],
            "verdict": self.verdict,
            "summary": self.summary,
            "causes": [finding.to_json() for finding in self.findings],
            "rest": {
                "share_p99": _part(self.rest_p99),
                "share_total": _part(self.rest_total),
                "owners": {name: _part(share) for name, share in self.owners.items()},
            },
            "not_judged": [{"id": c.id, "missing": name} for c, name in self.not_judged],
            "measurements": dict(found),
        }


def _part(share: int | None) -> float | None:
    return None if share is None else share / 1000


def judge(found: Measurements) -> Diagnosis:
    """The verdict on all of quantities.NAMES: the causes that apply, ranked, and the rest."""
    values = causes.values_of(found)
    enough = (number(found, "operations") or 0) >= threshold("few")
    no_log = enough and number(found, "no_zil") == number(found, "operations")
    quick = (number(found, "p99_ns") or 0) < threshold("quick")
    scopes = {scope: _Scope(scope, found, values) for scope in SCOPES}
    findings: list[Finding] = []
    not_judged: list[tuple[Cause, str]] = []
    for cause in causes.load():
        if not cause.idle and (not enough or no_log or (quick and cause.explains)):
            continue
        try:
            if not causes.applies(cause, values):
                continue
        except Unknown as error:
            not_judged.append((cause, error.args[0]))
            continue
        finding = _finding(cause, found, values, scopes, alone=cause.idle)
        if finding:
            findings.append(finding)
    findings.sort(key=lambda finding: finding.rank)
    verdict = _verdict(findings, found, enough=enough, no_log=no_log)
    total, tail = scopes["total"], scopes["tail"]
    return Diagnosis(
        found,
        verdict,
        _summary(verdict, findings, found),
        tuple(findings),
        tail.rest() if enough else None,
        total.rest() if enough else None,
        total.owners() if enough else {},
        tuple(not_judged),
    )


class _Scope:
    """The time of all operations or of the slowest, from which causes take their parts."""

    def __init__(self, name: str, found: Measurements, values: Mapping[str, int]) -> None:
        self._whole = number(found, f"{name}_ns") or 0
        self._left = {stage: number(found, f"{name}_{stage}_ns") or 0 for stage in stages.NAMES}
        self._values = dict(values)
        for bare in SCOPED[1:]:
            value = number(found, f"{name}_{bare}")
            if value is not None:
                self._values[bare] = value
        operations = number(found, "operations" if name == "total" else "tail_operations")
        if operations is not None:
            self._values["scope_operations"] = operations

    def want(self, cause: Cause) -> dict[str, int]:
        """The ns of each stage that a cause explains and no earlier one has taken."""
        wanted = {}
        for stage, text in cause.explains.items():
            try:
                ns = language.evaluate(text, self._values)
            except Unknown:
                continue
            wanted[stage] = max(0, min(ns, self._left[stage]))
        return wanted

    def share(self, wanted: Mapping[str, int]) -> int | None:
        return permille(sum(wanted.values()), self._whole) if self._whole else None

    def take(self, wanted: Mapping[str, int]) -> None:
        for stage, ns in wanted.items():
            self._left[stage] -= ns

    def rest(self) -> int | None:
        return permille(sum(self._left.values()), self._whole) if self._whole else None

    def owners(self) -> dict[str, int]:
        owners = dict.fromkeys((stages.DEVICE, stages.ZFS, stages.SYSTEM, stages.UNKNOWN), 0)
        for stage in stages.STAGES:
            owners[stage.owner] += self._left[stage.name]
        return {owner: permille(ns, self._whole) for owner, ns in owners.items()}


def _finding(
    cause: Cause,
    found: Measurements,
    values: Mapping[str, int],
    scopes: Mapping[str, _Scope],
    *,
    alone: bool,
) -> Finding | None:
    """None if the cause explains too little that earlier ones have not taken."""
    shares: dict[str, int | None] = dict.fromkeys(SCOPES)
    if cause.explains:
        wanted = {name: scope.want(cause) for name, scope in scopes.items()}
        shares = {name: scope.share(wanted[name]) for name, scope in scopes.items()}
        most = max(share or 0 for share in shares.values())
        if most < threshold("least_share") and not alone:
            return None
        for name, scope in scopes.items():
            scope.take(wanted[name])
    certainty = causes.certainty(cause, values)
    titles = {one.id: one.title for one in causes.load()}
    return Finding(
        cause,
        certainty,
        causes.fill(cause.title, found) or cause.title,
        shares["tail"],
        shares["total"],
        _filled(cause.evidence, found),
        _filled(cause.next, found),
        tuple(titles.get(name, name) for name in cause.alike),
    )


def _filled(texts: tuple[str, ...], found: Measurements) -> tuple[str, ...]:
    return tuple(filled for text in texts if (filled := causes.fill(text, found)))


def _verdict(findings: list[Finding], found: Measurements, *, enough: bool, no_log: bool) -> str:
    if findings:
        return "causes"
    if not enough:
        return "idle"
    if no_log:
        return "no_log"
    slow = (number(found, "p99_ns") or 0) >= threshold("slow_fsync")
    return "unknown" if slow else "healthy"


def _summary(verdict: str, findings: list[Finding], found: Measurements) -> str:
    def shown(name: str) -> str:
        return show(name, found[name])

    if verdict == "causes":
        return _of_causes(findings)
    if verdict == "idle":
        return _idle(found)
    if verdict == "no_log":
        return (
            "All fsyncs returned without writing the log (sync=disabled): they are fast, but a "
            "crash loses the data of the last seconds"
        )
    if verdict == "unknown":
        top = max(stages.NAMES, key=lambda stage: number(found, f"total_{stage}_ns") or 0)
        return (
            f"fsyncs are slow (p99 {shown('p99_ns')}) for no known cause; "
            f"most of the time, {shown(f'total_{top}_permille')}, is in `{top}`"
        )
    flush = number(found, "device_flush_p50_ns")
    usual = f", and its flushes are not slow (p50 {shown('device_flush_p50_ns')})"
    fits = flush is not None and flush < threshold("slow_device")
    return (
        f"Nothing is wrong: p99 {shown('p99_ns')}; the device takes "
        f"{shown('device_permille')} of the time{usual if fits else ''}"
    )


def _of_causes(findings: list[Finding]) -> str:
    first = findings[0]
    parts = []
    if first.share_p99 is not None:
        parts.append(f"{format_percent(first.share_p99 / 1000)} of the p99")
    if first.share_total is not None:
        parts.append(f"{format_percent(first.share_total / 1000)} of all fsync time")
    text = f"{first.title[:1].upper()}{first.title[1:]} ({first.certainty})"
    return f"{text}: {', '.join(parts)}" if parts else text


def _idle(found: Measurements) -> str:
    count, span = number(found, "operations") or 0, show("duration_ns", found["duration_ns"])
    few = threshold("few")
    text = (
        f"Too few fsyncs to judge: {count} in {span}, {few} are needed"
        if count
        else f"No fsync in {span}: nothing to judge"
    )
    hanging = number(found, "unfinished") or 0
    if hanging:
        text += f"; {hanging} on this host have not ended"
    return text
