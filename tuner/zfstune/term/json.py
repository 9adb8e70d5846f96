"""JSON without NaN and infinity."""

from __future__ import annotations

import math
from typing import Any


def clean(value: Any) -> Any:
    """A copy that JSON can express: keys are strings, NaN and infinity are None."""
    if isinstance(value, dict):
        return {str(key): clean(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
