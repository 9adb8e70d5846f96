"""All views at once, for a while: nothing is lost, and memory does not grow. `make
test-endurance` does it for ten minutes."""

from __future__ import annotations

from collections.abc import Callable

from attaching import may_skip
from lab.rows import Json


def test_memory_does_not_grow_and_nothing_is_lost(
    scenario: Callable[[str, str], Json], flavour: str
) -> None:
    found = scenario("endurance", flavour)
    assert found["status"] == 0
    assert found["lost"] == 0 or may_skip(found["host"])
    assert found["lines"] > found["seconds"]
    # since the first line; without a quarter, in which tables fill and Python warms up
    rss = found["rss_kib"][len(found["rss_kib"]) // 4 :]
    assert max(rss) - rss[0] < 5 * 1024, rss
    share = found["cpu_seconds"] / found["seconds"]
    print(
        f"\n{flavour}: all views at once for {found['seconds']} s: {share:.1%} of a CPU, "
        f"{rss[0] / 1024:.1f} to {max(rss) / 1024:.1f} MiB, lost {found['lost']}"
    )
