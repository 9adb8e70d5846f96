"""What must be equal for the scores of a study to mean the same: compared when it is continued, or
shared by hosts."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping

from zfstrace.printable import printable
from zfstune.errors import CommandError
from zfstune.experiment.study import Study
from zfstune.term.units import format_size
from zfstune.tunables import catalogue

# Sizes of two baselines that differ by less count as the same.
_SAME_SIZE = 0.01
# How long the texts of others may be.
_MOST_TEXT = 500


def sharing_facts(
    *,
    version: str,
    memory_bytes: int,
    layout: str,
    workload: str,
    objective: str,
    baseline: Mapping[str, int],
) -> dict[str, str]:
    """What must be equal for scores to be comparable: ZFS's upstream version, memory (to a tenth),
    the pool's layout, the workload, the objective, and the baseline to which scores are ratios
    (of the parameters in the space)."""
    # a machine with 4 GiB reports a little less, and not always the same
    memory = 2 ** (round(8 * math.log2(max(1, memory_bytes))) / 8)
    return {
        "zfs": version.split("-")[0],
        "memory": f"about {format_size(round(memory))}",
        "layout": layout,
        "workload": workload,
        "objective": objective,
        "baseline": " ".join(f"{name}={value}" for name, value in sorted(baseline.items())),
    }


def workload_name(command: str | None) -> str:
    """A name for the load in a shared study: enough to tell two apart. The command may contain a
    password that masked() misses; the few bits of a slow hash do not reveal it."""
    if not command:
        return "observed"
    first = (command.split() or [""])[0]
    program = os.path.basename(first.partition("=")[0])  # noqa: PTH119
    mark = hashlib.pbkdf2_hmac("sha256", os.fsencode(command), b"zfstune", 100_000)[:2]
    return f"{program} ({mark.hex()})"


def check_facts(study: Study, name: str, facts: dict[str, str]) -> None:
    """Records the facts in a new study. Raises CommandError if it has others."""
    before = study.facts()
    if before is None:
        study.set_facts(facts)
        return
    if not isinstance(before, dict) or not all(isinstance(v, str) for v in before.values()):
        raise CommandError(f"the facts of study {name} are malformed", "use another --study")
    for key in sorted(before.keys() | facts.keys()):
        there, here = before.get(key), facts.get(key)
        if there != here and not (key == "baseline" and there and here and _alike(there, here)):
            raise CommandError(
                f"the scores of study {name} mean nothing here: its {short(key)} is {there!r}, "
                f"here it is {here!r}",
                "use another --study",
            )


def short(said: object) -> str:
    """Text of others, safe to print and not too long."""
    return printable(str(said))[:_MOST_TEXT]


def _alike(one: str, other: str) -> bool:
    """Whether two baselines are the same, sizes to a hundredth: ZFS derives limits from the size of
    memory, which may differ between boots."""
    a, b = (dict(pair.partition("=")[::2] for pair in text.split()) for text in (one, other))
    return a.keys() == b.keys() and all(
        a[name] == b[name]
        or (
            catalogue.load()[name].unit == "bytes"
            and a[name].isdecimal()
            and b[name].isdecimal()
            and math.isclose(int(a[name]), int(b[name]), rel_tol=_SAME_SIZE)
        )
        for name in a
    )
