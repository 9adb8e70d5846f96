"""What the scenario `monitored` does to a host, and which alerts each of these causes fires.
Tests on the host import it, too."""

from __future__ import annotations

from collections.abc import Mapping

# How much faster time goes for rules: 5 minutes are a minute, and so is what is to last for 5.
FACTOR = 5
# Between two scrapes. One of all views and six pools takes seconds under emulation.
INTERVAL_S = 6
# The exporters, by what is special about them: one with all views, as on a healthy host, and two
# with one view each, which may cost next to nothing.
PORTS = {"all": 9810, "light": 9811, "fsync": 9812}
TARGETS = {name: f"127.0.0.1:{port}" for name, port in PORTS.items()}
_NAMES = {target: name for name, target in TARGETS.items()}
_SUBJECTS = ("dataset", "pool", "name", "view")

# The name of an alert, its subject if it has one, and the exporter whose metrics it is about
Alert = tuple[str, str, str]


def alert(labels: Mapping[str, str]) -> Alert:
    subject = next((labels[one] for one in _SUBJECTS if one in labels), "")
    return labels["alertname"], subject, _NAMES.get(labels.get("instance", ""), "")


def _of_all(**subjects: str) -> frozenset[Alert]:
    """Alerts about the exporter with all views, by name."""
    return frozenset((name, subject, "all") for name, subject in subjects.items())


# Each alert of alerts.yml and slo.yml has a cause here. Of ZfstuneDown it is one of five: no host
# leaves the configuration, and there is no node_exporter whose file could be old or gone.
CAUSES: dict[str, frozenset[Alert]] = {
    # a slow commit costs the objective as well, for hours after it
    "slow flushes": _of_all(
        ZfsFsyncSlow="slow", ZfsCommitBudgetFast="slow", ZfsCommitBudgetSlow="slow"
    ),
    "sync=disabled": _of_all(ZfsDurabilityOff="well/unsafe"),
    "more than a disk takes": _of_all(ZfsWritersHeld="held"),
    "slow writes": _of_all(ZfsTxgSyncLong="long"),
    "another program": _of_all(ZfsParameterChanged="zfs_txg_timeout"),
    "a log device that fails": _of_all(ZfsZilFallback=""),
    "a disk that fails": _of_all(ZfsPoolBlocked="frail"),
    "a disk that does not answer": _of_all(ZfsTxgStuck="frail"),
    "an fsync there": _of_all(ZfsFsyncHung=""),
    "more datasets than places": _of_all(ZfstuneInexact="fsync"),
    "a small budget": frozenset(
        {("ZfstuneOverBudget", "", "light"), ("ZfstuneBlind", "fsync", "fsync")}
    ),
    "kill -9": _of_all(ZfstuneDown=""),
    "a pool imported again and again": frozenset({("ZfstuneLosing", "light", "light")}),
}

# A pool of many datasets that comes again within seconds may find the places of its last import not
# free yet: an overflow, which is then true.
ALSO = frozenset({("ZfstuneInexact", "light", "light")})

# They look back on hours and days, so they go on when their cause has ended.
LASTING = ("ZfsCommitBudgetFast", "ZfsCommitBudgetSlow")

# Queries of the dashboard that are empty on a healthy host, where no alert fires, either. All
# others have an answer there, and so has each recording rule. The causes above fill each of these.
EMPTY = (
    # hosts with views that are off, and with parameters that somebody has changed
    "panel 'Hosts, slowest first' D",
    "panel 'Hosts, slowest first' F",
    "panel 'Parameters changed' A",
    "panel 'Parameters changed' B",
    "panel 'Views off, and why' A",
    "annotation 'Parameter written'",
    "annotation 'Session of zfstune tune'",
)
