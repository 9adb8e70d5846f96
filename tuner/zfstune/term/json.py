"""JSON without NaN and infinity."""

from __future__ import annotations

import math
from typing import Any


def clean(value: Any) -> Any:
    """The same without what JSON cannot say: not a number and infinity become None."""
    if isinstance(value, dict):
        return {str(key): clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [clean(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
