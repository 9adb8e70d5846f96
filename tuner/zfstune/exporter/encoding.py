"""A scrape as bytes: the text format of Prometheus, or OpenMetrics for who asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

_OPENMETRICS = "application/openmetrics-text"
# What choose_encoder() is asked for: it takes headers apart less carefully, and what others write
# into theirs must not become our content type.
_ACCEPT = {True: f"{_OPENMETRICS}; version=1.0.0", False: "text/plain; version=0.0.4"}


class _Collected:
    """What an encoder takes for a registry."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def wanted(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics rather than for text. Text is for everybody
    else, and for a header that cannot be read."""
    weights = {True: 0.0, False: 0.0}
    for part in accept[:1000].split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        openmetrics = kind == _OPENMETRICS
        if openmetrics or kind in ("text/plain", "text/*", "*/*"):
            weights[openmetrics] = max(weights[openmetrics], _weight(parameters))
    return weights[True] > 0 and weights[True] >= weights[False]


def _weight(parameters: Sequence[str]) -> float:
    """q of a part of the header, 0 to 1; 0 if it is no number."""
    found = [word[2:] for word in parameters if word.startswith("q=")]
    try:
        return min(1.0, max(0.0, float(found[0]))) if found else 1.0
    except ValueError:
        return 0.0


def encode(
    families: Sequence[Metric], openmetrics: bool, failed: Callable[[str], None]
) -> tuple[bytes, str]:
    """The scrape and its content type. A family that cannot be encoded is left out, and failed gets
    its name."""
    encoder, kind = choose_encoder(_ACCEPT[openmetrics])
    try:
        return encoder(_Collected(families)), kind
    except Exception:
        return encoder(_Collected(_good(families, encoder, failed))), kind


def _good(
    families: Sequence[Metric],
    encoder: Callable[..., bytes],
    failed: Callable[[str], None],
) -> list[Metric]:
    good = []
    for family in families:
        try:
            encoder(_Collected([family]))
        except Exception:
            failed(family.name)
        else:
            good.append(family)
    return good
