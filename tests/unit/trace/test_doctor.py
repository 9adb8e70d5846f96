"""`doctor` on fake hosts."""

from __future__ import annotations

import io
import json

import pytest
from support.fake_host import FakeHost

from zfstrace.errors import NoZfs
from zfstrace.types import Check, Probe, ProbeSurvey
from zfstune.trace.doctor import examine

OK = Check("ZFS", "zfs", "2.3.2-1")
LACK = Check("tracefs", "kernel", "not mounted", "missing", "less is seen", "mount it")
BLOCK = Check("privileges", "privilege", "insufficient", "blocking", "no BPF", "run as root")


class Complete(FakeHost):
    def survey(self) -> ProbeSurvey:
        return ProbeSurvey((Probe("zil_commit", "zil_commit_flags", "found", True, "", ""),), "btf")


class Failing(FakeHost):
    def survey(self) -> ProbeSurvey:
        raise NoZfs("ZFS is not loaded", "load it")


@pytest.mark.parametrize(
    ("host", "status", "word"),
    [
        (Complete(checks=[OK]), 0, "ok"),
        (Complete(checks=[OK, LACK]), 1, "incomplete"),
        (FakeHost(checks=[OK]), 1, "incomplete"),
        (Complete(checks=[OK, BLOCK]), 3, "impossible"),
        (Failing(checks=[OK]), 3, "impossible"),
    ],
)
def test_the_status_is_that_of_the_worst_check(host: FakeHost, status: int, word: str) -> None:
    out = io.StringIO()
    assert examine(host, out, as_json=True) == status
    found = json.loads(out.getvalue())
    assert (found["schema"], found["type"], found["status"]) == (1, "doctor", word)
    assert set(found["checks"][0]) == {"name", "kind", "status", "value", "cost", "fix"}
    assert examine(host, io.StringIO(), as_json=False) == status


def test_hint_of_a_failed_survey_is_its_fix() -> None:
    out = io.StringIO()
    examine(Failing(checks=[OK]), out, as_json=True)
    last = json.loads(out.getvalue())["checks"][-1]
    assert (last["value"], last["fix"]) == ("ZFS is not loaded", "load it")


def test_the_text_has_what_is_missing_and_what_it_costs() -> None:
    out = io.StringIO()
    examine(FakeHost(checks=[OK, LACK, BLOCK]), out, as_json=False)
    text = out.getvalue()
    assert "1 of 2 probes found" in text
    assert "`batch_wait` is part of `issue` (no symbol)" in text
    assert "less is seen; mount it" in text
    assert "MISSING" in text
    assert "FAILS" in text
    assert max(map(len, text.splitlines())) < 100


def test_the_reason_against_fentry_is_given_once() -> None:
    """Said once, and nothing is missing for it."""
    why = "the kernel's preemption is full or lazy"

    class Preemptible(FakeHost):
        def survey(self) -> ProbeSurvey:
            names = ("zil_commit", "cv_wait")
            return ProbeSurvey(tuple(Probe(n, n, "kprobe", True, "", why) for n in names), "btf")

    out = io.StringIO()
    assert examine(Preemptible(checks=[OK]), out, as_json=False) == 0
    assert out.getvalue().count(f"kprobes instead of fentry, which is cheaper: {why}") == 1
    assert "2 of 2 probes found" in out.getvalue()


def test_one_file_tools_are_named_and_change_no_status() -> None:
    out = io.StringIO()
    assert examine(Complete(checks=[OK]), out, as_json=False) == 0
    lines = out.getvalue().splitlines()
    assert lines[lines.index("one-file tools for root:") + 1] == "  txgstate.bt, zilcommit.bt"
    title = "one-file tools that would not work (Python's module bcc is not installed):"
    assert lines[lines.index(title) + 1] == "  zildist.py"
    out = io.StringIO()
    assert examine(Complete(checks=[OK]), out, as_json=True) == 0
    assert [tool["status"] for tool in json.loads(out.getvalue())["tools"]] == [
        "ok",
        "ok",
        "missing",
    ]
