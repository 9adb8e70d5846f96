"""What zpool(8) and zfs(8) printed in the lab (tests/lab/guest/advise.py), read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from support.fake_advise import AdviseHost
from support.paths import DATA

from zfstrace.zpool import status
from zfstune.advise.gather import Asked, gather
from zfstune.advise.judge import judge

RECORDED = sorted((DATA).glob("*/advise.json"))
Raw = dict[str, dict[str, Any]]


def states() -> list[Any]:
    found: list[Any] = []
    for path in RECORDED:
        for name, raw in json.loads(path.read_text()).items():
            found.append(pytest.param(raw, id=f"{path.parent.name}-{name}"))
    return found


class Replay:
    """Answers with the recording, "" for a command that failed then."""

    def __init__(self, raw: Raw) -> None:
        self.said = {one["command"]: "" if one["status"] else one["stdout"] for one in raw.values()}

    def __call__(self, argv: Sequence[str], timeout_s: float) -> str:
        return str(self.said.get(" ".join(argv), ""))


def pool_of(raw: Raw) -> str:
    return str(raw["zpool_status"]["command"].split()[-1])


class Host(AdviseHost):
    def __init__(self, pool: str) -> None:
        super().__init__()
        self.pool = pool

    def pools(self) -> list[str]:
        return [self.pool]


@pytest.mark.parametrize("raw", states())
def test_recorded_output_is_read_completely(raw: Raw) -> None:
    pool = pool_of(raw)
    state = gather(Host(pool), Asked(pool), Replay(raw))
    scopes = {subject.scope for subject in state.subjects}
    assert {"host", "pool", "vdev", "disk", "filesystem"} <= scopes
    (facts,) = [subject.facts for subject in state.subjects if subject.scope == "pool"]
    assert {"pool_capacity", "pool_health", "redundant", "slogs"} <= facts.keys()
    judge(state.subjects, state.version)


@pytest.mark.parametrize("raw", states())
def test_json_and_text_give_the_same_vdevs(raw: Raw) -> None:
    if raw["zpool_status_json"]["status"]:
        pytest.skip("no JSON in this version")
    text = status.parse_text(raw["zpool_status"]["stdout"])
    pathed = status.parse_text(raw["zpool_status_paths"]["stdout"])
    by_json = status.parse_json(raw["zpool_status_json"]["stdout"], pool_of(raw))
    both = status.with_paths(text, pathed)
    assert [(v.name, v.group, v.kind) for v in both] == [(v.name, v.group, v.kind) for v in by_json]
    leaves = [leaf for vdev in both for leaf in vdev.leaves()]
    others = [leaf for vdev in by_json for leaf in vdev.leaves()]
    assert [(v.name, v.native, v.path) for v in leaves] == [
        (v.name, v.native, v.path) for v in others
    ]
