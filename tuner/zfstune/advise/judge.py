"""Judges subjects by rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zfstrace import version as zfstrace_version
from zfstune.advise.rules import Rule, fill, load
from zfstune.advise.subjects import Subject
from zfstune.rules import language
from zfstune.rules.language import Unknown

# A dataset is one of these.
_KINDS = ("filesystem", "volume")


@dataclass(frozen=True)
class Finding:
    """A rule that holds, with its texts filled in; where names all subjects with the same texts."""

    rule: Rule
    where: tuple[str, ...]
    what: str
    why: str
    effect: str
    risk: str
    commands: tuple[str, ...]
    how: str


@dataclass(frozen=True)
class Verdict:
    """findings by effect, those that lower durability last; unjudged has the missing facts of each
    rule that could not be judged for at least one subject."""

    findings: tuple[Finding, ...]
    unjudged: dict[str, tuple[str, ...]]

    @property
    def high(self) -> int:
        """The number of findings of severity high."""
        return sum(finding.rule.severity == "high" for finding in self.findings)


def judge(subjects: Iterable[Subject], version: str, rules: Sequence[Rule] = ()) -> Verdict:
    """The verdict of the rules for a version of ZFS, by default those of advice.toml."""
    everything = list(subjects)
    findings: list[Finding] = []
    unjudged: dict[str, tuple[str, ...]] = {}
    for rule in rules or load():
        if not _of_version(rule, version):
            continue
        held: list[Subject] = []
        for subject in everything:
            if not _applies(rule, subject):
                continue
            try:
                if language.holds(rule.when, subject.facts):
                    held.append(subject)
            except Unknown as unknown:
                missing = unjudged.get(rule.id, ())
                unjudged[rule.id] = tuple(dict.fromkeys((*missing, str(unknown))))
        findings += _merged(rule, held)
    findings.sort(key=lambda finding: finding.rule.lowers_durability)
    return Verdict(tuple(findings), unjudged)


def _of_version(rule: Rule, version: str) -> bool:
    here = zfstrace_version.version_key(version)
    if not here:
        return True
    late = bool(rule.since) and here < zfstrace_version.version_key(rule.since)
    # until is a series: 2.2 has all of 2.2.x
    until = zfstrace_version.version_key(rule.until)[:2]
    return not late and not (until and here[:2] > until)


def _applies(rule: Rule, subject: Subject) -> bool:
    scopes = _KINDS if rule.scope == "dataset" else (rule.scope,)
    return subject.scope in scopes and (not rule.loads or subject.load in rule.loads)


def _merged(rule: Rule, held: Sequence[Subject]) -> list[Finding]:
    """One finding for all subjects with the same texts."""
    found: dict[tuple[str, str, str, str, str], list[Subject]] = {}
    for subject in held:
        here = subject.facts
        texts = (fill(rule.what, here), fill(rule.why, here), fill(rule.effect, here))
        found.setdefault((*texts, fill(rule.risk, here), fill(rule.how, here)), []).append(subject)
    return [
        Finding(
            rule,
            tuple(subject.name for subject in subjects),
            what,
            why,
            effect,
            risk,
            _commands(rule, subjects),
            how,
        )
        for (what, why, effect, risk, how), subjects in found.items()
    ]


def _commands(rule: Rule, subjects: Sequence[Subject]) -> tuple[str, ...]:
    """An inherited value is changed where it was set, if that dataset is judged, too."""
    if not rule.command or rule.lowers_durability:
        return ()
    names = {subject.name for subject in subjects}
    found = []
    for subject in subjects:
        origin = subject.origins.get(rule.property_, subject.name)
        name = origin if origin in names else subject.name
        parent = subject.name
        # a default is changed at the top, too
        while subject.origins.get(rule.property_) == "" and parent.rpartition("/")[0] in names:
            parent = parent.rpartition("/")[0]
            name = parent
        found.append(fill(rule.command, {**subject.facts, "name": quoted(name or subject.name)}))
    return tuple(dict.fromkeys(found))


def quoted(name: str) -> str:
    """A name for the shell: names of datasets may have blanks."""
    import shlex

    return shlex.quote(name)
