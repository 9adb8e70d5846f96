"""The numbers that rule files share."""

from __future__ import annotations

import re

import pytest
from support.paths import ROOT

from zfstune.diagnose import causes
from zfstune.diagnose.quantities import NAMES
from zfstune.rules import language
from zfstune.rules.thresholds import threshold, thresholds, values
from zfstune.trace.signs import sign_rules

CONDITIONS = [
    *(text for cause in causes.load() for text in (cause.when, cause.sure, cause.likely)),
    *(text for sign in sign_rules().values() for text in (sign.when, sign.urgent)),
]
IN_CODE = {
    name
    for path in (ROOT / "tuner/zfstune").rglob("*.py")
    for name in re.findall(r'\bthreshold\("(\w+)"\)', path.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("name", thresholds())
def test_each_threshold_has_a_reason_and_a_source(name: str) -> None:
    one = thresholds()[name]
    assert one.reason and one.source
    assert threshold(name) == values()[name] == one.value
    assert name not in NAMES


def test_each_threshold_is_used() -> None:
    used = {name for text in CONDITIONS if text for name in language.names(text)}
    assert set(thresholds()) == (used | IN_CODE) & set(thresholds())
    assert set(thresholds()) >= IN_CODE
