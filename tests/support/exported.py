"""An exporter on a fake host, and its scrapes taken apart again by Prometheus' own parsers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from support.fake_host import FakeHost, FakeStop

from zfstune.changes.state_dir import Places
from zfstune.exporter.bounded import Names
from zfstune.exporter.collector import Collector
from zfstune.exporter.kstats import KstatView
from zfstune.exporter.views import Setup
from zfstune.term.units import SECOND

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Key = tuple[str, frozenset[tuple[str, str]]]


class Exported:
    """A collector with a clock that a test moves. where is the place of the journal."""

    def __init__(
        self,
        host: FakeHost,
        *views: str,
        where: Path | None = None,
        names: Names | None = None,
        budget: float = 0.01,
        instead: Mapping[str, str] | None = None,
        **setup: Any,
    ) -> None:
        self.host, self.stop = host, FakeStop()
        self.wall = 1_700_000_000.0
        root = where or Path("/nonexistent")
        made = Setup(host, self.stop, names=names or Names(), wall=lambda: self.wall, **setup)
        self.kstats = KstatView(made, Places(root / "state", root / "run/zfstune"))
        self.collector = Collector(made, views, budget, instead, self.kstats)

    def tick(self, seconds: int = 1) -> None:
        """As the main loop does it, for so many seconds."""
        for _ in range(seconds):
            self.collector.tick()
            self.stop.clock += SECOND
            self.wall += 1

    def text(self, accept: str = "") -> str:
        return self.collector.encoded(accept)[0].decode()

    def scrape(self, seconds: int = 1) -> Scrape:
        """After so many ticks."""
        self.tick(seconds)
        return Scrape(self.text())


class Scrape:
    """The samples of a scrape in the text format."""

    def __init__(self, text: str) -> None:
        self.families = list(parser.text_string_to_metric_families(text))
        self.samples: dict[Key, float] = {}
        for family in self.families:
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.samples, f"twice: {sample}"
                self.samples[key] = sample.value

    def get(self, name: str, /, **labels: str) -> float | None:
        return self.samples.get((name, frozenset(labels.items())))

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        """The series of a metric: label values in the order of the labels' names."""
        found = {}
        for (mine, labels), value in self.samples.items():
            if mine == name:
                found[tuple(text for _, text in sorted(labels))] = value
        return found

    def rising(self) -> dict[Key, float]:
        """All that must never go back."""
        names = {
            sample.name
            for family in self.families
            if family.type in ("counter", "histogram")
            for sample in family.samples
        }
        return {key: value for key, value in self.samples.items() if key[0] in names}

    def values(self) -> set[str]:
        """All label values."""
        return {text for _, labels in self.samples for _, text in labels}


def exemplars(text: str) -> list[Any]:
    """The samples with an exemplar, of a scrape in OpenMetrics."""
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return [sample for family in families for sample in family.samples if sample.exemplar]


def gone_back(before: Scrape, after: Scrape) -> list[Key]:
    """What is less than it was, or is there no more."""
    later = after.rising()
    return [key for key, value in before.rising().items() if later.get(key, -1.0) < value]


def buckets(scrape: Scrape, name: str, /, **labels: str) -> Sequence[float]:
    """The cumulative counts of a histogram, by rising bound."""
    found = {}
    for (mine, having), value in scrape.samples.items():
        given = dict(having)
        if mine == f"{name}_bucket" and {k: v for k, v in given.items() if k != "le"} == labels:
            found[float(given["le"])] = value
    return [found[le] for le in sorted(found)]
