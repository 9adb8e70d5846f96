#!/usr/bin/env python3
"""Checks the subjects of commits: `area: what`, imperative, at most 72 columns; called by
`make lint`.

    scripts/check_subjects.py [RANGE]
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Older commits are not checked.
SINCE = "f572c59"
LONGEST = 72

_SUBJECT = re.compile(r"[a-z][\w/.+-]*(?:, [a-z][\w/.+-]*)*: (\S+)(.*)")
# How subjects of this project began when they were statements: articles, question words, numbers,
# participles. No dictionary of verbs is needed.
_NO_VERB = re.compile(
    r"(?:a|an|the|how|what|where|why|which|one|two|no|all|now|fewer|\w+(?:ed|ing))"
)
_VERBS = frozenset({"bring", "embed", "feed", "need", "seed", "shed", "speed", "string"})


def problem(subject: str) -> str:
    """What is wrong with a subject; "" if nothing."""
    match = _SUBJECT.fullmatch(subject)
    if len(subject) > LONGEST:
        return f"has {len(subject)} columns: shorten it to {LONGEST}"
    if not match:
        return "is not of the form `area: what`"
    if match[1] not in _VERBS and _NO_VERB.fullmatch(match[1]):
        return f"begins with {match[1]!r}: begin with a verb in the imperative"
    return "ends with a period" if subject.endswith(".") else ""


def problems(subjects: Iterable[str]) -> list[str]:
    """A line for each wrong subject."""
    return [f"{one!r} {why}" for one in subjects if (why := problem(one))]


def subjects(span: str) -> list[str]:
    """Subjects of the commits of a range, newest first, without merges; [] in a tarball or a
    shallow clone, whose history does not reach back that far. Raises CalledProcessError if the
    range does not exist otherwise."""
    if git("rev-parse", "--is-shallow-repository", check=False).strip() != "false":
        return []
    return git("log", "--no-merges", "--format=%s", span).splitlines()


def git(*words: str, check: bool = True) -> str:
    done = subprocess.run(("git", *words), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=check)
    return done.stdout


if __name__ == "__main__":
    found = problems(subjects(sys.argv[1] if sys.argv[1:] else f"{SINCE}..HEAD"))
    sys.exit("\n".join(f"commit {line}" for line in found) or None)
