"""The sentences about a session that the report and the table on the terminal share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zfstrace.types import Json
from zfstune.experiment import objective
from zfstune.report import data
from zfstune.report.data import finite, listed, mapped
from zfstune.term.units import SECOND, format_count, format_percent, format_span, format_time
from zfstune.tunables import catalogue

# Metrics of a block that cannot be an objective.
_MORE = {
    "fsync.rate": "fsyncs",
    "read.rate": "reads",
    "txg.sync": "sync time of a txg",
    "throttle.delays": "delayed writers",
}
METRICS = (*objective.METRICS, *_MORE)

_SOURCES = {
    "model": "model of the write path",
    "local": "search (local)",
    "tpe": "search (TPE)",
    "random": "random",
    "grid": "grid",
    "ablation": "ablation",
    "ghosts": "ghost lists of the ARC",
}


_KINDS = {
    "better": "Better",
    "worse": "Worse",
    "equivalent": "No difference that matters",
    "inconclusive": "Not decided",
}


@dataclass(frozen=True)
class Finding:
    """The verdict for people: its kind or ``none``, a word for it, and sentences: the result with
    its interval, the evidence, and the outcome for the parameters."""

    kind: str
    word: str
    sentence: str
    evidence: str
    outcome: str

    @property
    def headline(self) -> str:
        """The result of the session in one sentence."""
        return f"{self.word}: {self.sentence}."


def metric_name(name: str) -> str:
    """A metric for people: ``p99 of fsync`` of "fsync.p99"."""
    known = objective.METRICS.get(name)
    return known.words if known else _MORE.get(name, name)


def goal(session: Json) -> str:
    """The objective: ``p99 of fsync``, or ``70 % p99 of fsync and 30 % median fsync``."""
    wanted = data.objective(session)
    if wanted is None:
        return str(session.get("objective"))
    if len(wanted.weights) == 1:
        return wanted.weights[0][0].words
    return " and ".join(f"{100 * weight:.0f} % {one.words}" for one, weight in wanted.weights)


def metric_value(name: str, value: float | None) -> str:
    """With its unit; ``-`` for None."""
    if value is None:
        return "-"
    if name == "write.throughput":
        return f"{size(round(value))}/s"
    if name == "arc.miss":
        return format_percent(value)
    if name in ("fsync.rate", "read.rate", "throttle.delays"):
        return f"{value:,.0f}/s" if value >= 100 else f"{value:.1f}/s"
    return format_time(round(value))


def goal_metric(session: Json) -> str | None:
    """A metric with the unit of the objective; None for weights of different units."""
    wanted = data.objective(session)
    if wanted is None or len({one.unit for one, _ in wanted.weights}) != 1:
        return None
    return wanted.weights[0][0].name


def goal_value(session: Json, value: float | None) -> str:
    """A value of the objective with its unit."""
    metric = goal_metric(session)
    if metric is None:
        return "-" if value is None else f"{value:.3g}"
    return metric_value(metric, value)


def size(value: int) -> str:
    """Bytes for people: ``512 B``, ``32 MiB``, ``1.5 GiB``."""
    part, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if part < 999.5 or unit == "TiB":
            break
        part /= 1024
    text = f"{part:.2f}" if part < 9.995 else f"{part:.1f}" if part < 99.95 else f"{part:.0f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def change(value: float | None) -> str:
    """A change (ratio minus 1): ``62 % lower``, ``2.4 times as high``."""
    if value is None:
        return "unknown"
    if value >= 1:
        return f"{1 + value:.1f} times as high"
    text = percent(value)
    if text == "0 %":
        return "unchanged"
    return f"{text} {'lower' if value < 0 else 'higher'}"


def percent(value: float) -> str:
    """The amount of a change without its sign: ``0.4 %``, ``62 %``, ``99.6 %``."""
    points = 100 * abs(value)
    if points < 0.05:
        return "0 %"
    return f"{points:.1f} %" if points < 9.95 or 99 < points < 99.95 else f"{points:.0f} %"


def interval(low: float | None, high: float | None) -> str:
    """``50 % to 70 % lower``, smallest effect first; ``from 12 % lower to 5 % higher``."""
    if low is None or high is None:
        return "no interval"
    if low <= high < 0:
        return f"{percent(high)} to {change(low)}"
    if 0 < low <= high < 1:
        return f"{percent(low)} to {change(high)}"
    return f"from {change(low)} to {change(high)}"


def finding(session: Json) -> Finding:
    """The verdict, for the head of the report and the table."""
    verdict = session.get("verdict")
    if not isinstance(verdict, dict) or finite(verdict.get("change")) is None:
        return _no_verdict(session)
    name = goal(session)
    moved = finite(verdict.get("change"))
    span = interval(finite(verdict.get("low")), finite(verdict.get("high")))
    kind = str(verdict.get("kind"))
    if kind not in _KINDS:
        kind = "inconclusive"
    chance = ", but that may be chance" if kind == "inconclusive" else ""
    sentence = f"{name} is {change(moved)}{chance} ({span})"
    return Finding(kind, _KINDS[kind], sentence, _evidence(session, verdict), _outcome(session))


def _no_verdict(session: Json) -> Finding:
    state = session.get("state")
    word = "No verdict"
    if state == "failed":
        sentence = "the session failed before a result was confirmed"
    elif state == "stopped":
        sentence = "the session was stopped before a result was confirmed"
    else:
        word = "Nothing better found"
        sentence = f"no trial changed {goal(session)} enough to be worth a confirmation"
    return Finding("none", word, sentence, _seen(session), _outcome(session))


def _evidence(session: Json, verdict: Json) -> str:
    pairs, p = finite(verdict.get("pairs")), finite(verdict.get("p"))
    block_s = finite(session.get("block_s"))
    of = f" of {block_s:g} s" if block_s else ""
    text = f"Confirmed in {pairs or 0:.0f} pairs of fresh blocks{of}, old and new values in turn."
    if verdict.get("kind") not in ("better", "worse", "equivalent"):
        text = text.replace("Confirmed", "Compared")
    if p is not None and verdict.get("kind") == "better" and p > 0:
        text += (
            f" If the new values had no effect, chance alone would look like this "
            f"in about 1 of {1 / p:,.0f} sessions (p = {p:.2g})."
        )
    if verdict.get("kind") in ("equivalent", "inconclusive"):
        text += f" {_seen(session)}"
    text += few_fsyncs(session)
    soak = mapped(session, "soak")
    if soak.get("ok"):
        later = plural(int(finite(soak.get("blocks")) or 0), "later block")
        text += f" {later} showed nothing else."
    return text.strip()


def _seen(session: Json) -> str:
    noise = mapped(session, "noise")
    effect = finite(noise.get("effect"))
    if effect is None or not noise.get("pairs"):
        return ""
    return (
        f"Under this load the pool varies so much that only changes of {percent(effect)} or more "
        "can be detected."
    )


def few_fsyncs(session: Json) -> str:
    """What p99 of a block with few fsyncs really is, or p99.9 if that is the objective, with a
    space before it; "" if it is itself."""
    wanted, fewest = data.objective(session), finite(mapped(session, "tails").get("fewest"))
    names = [one.name for one, _ in wanted.weights] if wanted else []
    permille = max([990, *(_QUANTILES.get(name, 0) for name in names)])
    # the slowest of n is on average the quantile n / (n + 1)
    if not fewest or fewest < 0 or (really := 1000 * fewest / (fewest + 1)) >= permille:
        return ""
    shown = f"p{permille / 10:g} is the slowest of them, really about p{math.floor(really) / 10:g}"
    return f" A block had only {plural(int(fewest), 'fsync')}: there {shown}."


def more(session: Json) -> str:
    """What it would do with more time, or what would have to change for it to find something; ""
    if that is not known."""
    said = session.get("more")
    return f"Next: {str(said).rstrip('. ')}." if said else ""


def _outcome(session: Json) -> str:
    count = len(mapped(session, "winner"))
    if session.get("in_force") and count:
        return f"{plural(count, 'parameter')} changed, in force now."
    if not whole_again(session):
        return "Not all parameters are restored: see `zfstune status`."
    if session.get("state") == "failed":
        return "No new value is in force."
    return "All parameters have their previous values."


def whole_again(session: Json) -> bool:
    """Whether everything was restored that is not in force."""
    return session.get("restored") is not False


def plural(count: int, noun: str) -> str:
    """A count with its noun: ``1 block``, ``2 blocks``."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


_QUANTILES = {"fsync.p50": 500, "fsync.p99": 990, "fsync.p999": 999}


def before_after(session: Json) -> tuple[str, str] | None:
    """The objective before and after in the confirmation, with units: of all fsyncs together if
    possible, else of the median block. None if either is unknown."""
    wanted, metric = data.objective(session), goal_metric(session)
    if wanted is None or metric is None:
        return None
    hists = [data.histogram(session, side) for side, _ in data.SIDES]
    if len(wanted.weights) == 1 and metric in _QUANTILES and all(hist.count for hist in hists):
        before, after = (format_time(hist.quantile(_QUANTILES[metric])) for hist in hists)
        return before, after
    values = data.typical(session)
    if None in values:
        return None
    return goal_value(session, values[0]), goal_value(session, values[1])


def value(name: str, number: object) -> str:
    """The value of a parameter with its unit: ``32 MiB``, ``30 %``, ``5 s``."""
    if isinstance(number, bool) or not isinstance(number, int) or finite(number) is None:
        return str(number)
    known = catalogue.load().get(name)
    kind = known.unit if known else "count"
    if kind == "bytes":
        return size(number)
    if kind == "percent":
        return f"{number} %"
    if kind == "ns":
        return format_time(number) if number >= 0 else f"{number} ns"
    if kind in ("ms", "s"):
        return f"{number:,} {kind}"
    return format_count(number)


def values(wanted: Json) -> str:
    """``NAME VALUE, NAME VALUE`` of several parameters."""
    return ", ".join(f"{name} {value(name, one)}" for name, one in wanted.items())


def source(name: object) -> str:
    """The origin of a trial."""
    return _SOURCES.get(str(name), str(name))


def limit_result(limit: Json) -> str:
    """Whether a limit was kept, and the change: ``kept, 1 % lower``."""
    moved = finite(limit.get("change"))
    state = "kept" if limit.get("ok") else "NOT PROVED" if unproved(limit) else "MISSED"
    return f"{state}, {change(moved)}" if moved is not None else f"{state}, not measured"


def override(one: Json) -> str:
    """``NAME was set to VALUE by COMM (PID) at TIME``: a foreign write during the session."""
    name = str(one.get("name"))
    pid, comm = one.get("pid"), one.get("comm")
    who = f"{comm or 'process'} ({pid})" if pid is not None else "an unknown process"
    if pid is None and comm:
        who = str(comm)
    when = f" at {one['time']}" if one.get("time") else ""
    return f"{name} was set to {value(name, one.get('value'))} by {who}{when}"


def duration(session: Json) -> str:
    """The duration of the session; "" if unknown."""
    seconds = finite(session.get("seconds"))
    return format_span(round(seconds * SECOND)) if seconds else ""


def closing(session: Json) -> list[tuple[str, str]]:
    """The last three lines, as (title, text): the changes, how to undo them, how to keep them."""
    winner, base = mapped(session, "winner"), mapped(session, "baseline")
    if not (winner and session.get("in_force")):
        return [
            ("changed", "nothing"),
            ("undo", "not needed"),
            ("keep", "nothing to keep"),
        ]
    changed = ", ".join(
        f"{name} {value(name, base.get(name))} -> {value(name, new)}"
        for name, new in winner.items()
    )
    return [
        ("changed", changed),
        ("undo", str(session.get("undo") or "zfstune revert")),
        ("keep", str(session.get("keep") or "zfstune keep")),
    ]


def unproved(limit: Json) -> bool:
    """Whether a limit may be kept or missed."""
    return limit.get("state") == "unknown"


def missed(session: Json) -> list[Json]:
    """The limits that were missed, or may have been."""
    return [one for one in listed(session, "limits") if not one.get("ok")]
