"""The files tools.json and licences.json of an installation or the one file, or the checkout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from zfstrace import packaged
from zfstune import __version__
from zfstune.errors import NotPossible
from zfstune.inside import collect

Rows = list[dict[str, str]]


def tools() -> Rows:
    """As collect.tools(). Raises NotPossible if there are none, or they are damaged."""
    return _held("tools", collect.tools)


def licences() -> Rows:
    """As collect.licences(), with what is linked into the library. Raises NotPossible as tools()
    does."""
    return _held("licences", lambda root: collect.licences(root, __version__))


def _held(what: str, of_checkout: Callable[[Path], Rows]) -> Rows:
    try:
        found: Rows = json.loads(packaged.read("zfstune.inside", f"{what}.json"))
    except ValueError as error:
        raise NotPossible(
            f"cannot read the {what}: {packaged.archive('zfstune')} is damaged ({error})",
            "copy the file again, and compare it with SHA256SUMS",
        ) from None
    except OSError:
        found = of_checkout(Path(__file__).resolve().parents[3])
    if not found:
        raise NotPossible(
            f"no {what}: this copy of zfstune came without them", "use the one file, or install it"
        )
    return found
