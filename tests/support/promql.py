"""Names in PromQL: which metrics and labels a query asks for. Prometheus itself parses it in
tests/monitoring; this compares it with the exporter's table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from zfstune.exporter.metrics import COUNTER, HISTOGRAM, METRICS

TARGET = frozenset({"job", "instance"})
# What other programs have.
_OTHERS = {"up": TARGET, "node_textfile_mtime_seconds": TARGET | {"file"}}
_NAME = re.compile(r"(?<![\w:$])((?:zfstune|node)_\w+|up|\w+:\w+:\w+|\w*:\w+)\b(\{[^}]*\})?")
_SUFFIXES = ("_bucket", "_count", "_sum")


def _bare(expr: str) -> str:
    """Without the text of strings, and without comments."""
    return re.sub(r'"(?:[^"\\]|\\.)*"|#.*', '""', expr)


def _histogram(name: str) -> str:
    """The metric of the table that name is a part of; "" if of none."""
    base = next((name[: -len(end)] for end in _SUFFIXES if name.endswith(end)), "")
    return base if base in METRICS and METRICS[base].type == HISTOGRAM else ""


def labels_of(name: str, recorded: Mapping[str, str]) -> frozenset[str] | None:
    """The labels that a metric can have; recorded are expressions of recording rules. None: there
    is no such metric."""
    if name in _OTHERS:
        return _OTHERS[name]
    if name in recorded:
        return labels_in(recorded[name], recorded)
    if _histogram(name):
        end = {"le"} if name.endswith("_bucket") else set()
        return TARGET | set(METRICS[_histogram(name)].labels) | end
    if name in METRICS and METRICS[name].type != HISTOGRAM:
        return TARGET | set(METRICS[name].labels)
    return None


def labels_in(expr: str, recorded: Mapping[str, str]) -> frozenset[str]:
    """The labels that any metric of an expression can have."""
    found = (labels_of(match[1], recorded) or frozenset() for match in _NAME.finditer(_bare(expr)))
    return frozenset().union(*found)


def problems(expr: str, recorded: Mapping[str, str]) -> Iterator[str]:
    """Metrics and labels that do not exist, and counters whose rate is not taken."""
    bare = _bare(expr)
    for match in _NAME.finditer(bare):
        name, labels = match[1], labels_of(match[1], recorded)
        if labels is None:
            yield f"no metric {name}"
            continue
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", match[2] or ""):
            if label not in labels and label != "__name__":
                yield f"{name} has no label {label}"
        yield from _wrong_type(name, bare[: match.start()], bare[match.end() :])
    known = labels_in(expr, recorded)
    for names in re.findall(r"\b(?:by|without|on|ignoring|group_left)\s*\(([^)]*)\)", bare):
        for label in re.findall(r"\w+", names):
            if label not in known:
                yield f"nothing has the label {label}"


def _wrong_type(name: str, before: str, after: str) -> Iterator[str]:
    counts = _histogram(name) or (name in METRICS and METRICS[name].type == COUNTER)
    rated = re.search(r"\b(?:rate|increase)\s*\(\s*$", before)
    if counts and not rated and not re.match(r"\s*\)?\s*$", after):
        yield f"{name} is a counter: take its rate"
    if rated and not counts:
        yield f"{name} is no counter"
