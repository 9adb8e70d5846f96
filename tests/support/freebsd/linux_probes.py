"""The table of probes and the options for DTrace on Linux, by which the lab tests the FreeBSD code
with the Linux variants of the D scripts. Probes that differ between freebsd.toml and linux.toml are
exchanged."""

from __future__ import annotations

import tomllib
from dataclasses import replace

from support.paths import ROOT

from zfs_freebsd.dtrace.probes import NEEDS, Need

# Instead of zfs_freebsd.dtrace.process.OPTIONS: DTrace 2.0 has the built-in variables in a library.
OPTIONS = ()

_DTRACE = ROOT / "tracers/dtrace"


def _words(system: str) -> dict[str, list[str]]:
    table = tomllib.loads((_DTRACE / f"{system}.toml").read_text())
    return {word: _any_module(text).replace(",", " ").split() for word, text in table.items()}


def _any_module(text: str) -> str:
    """The scripts for Linux do not name OpenZFS's."""
    return text.replace(":zfs:", "::")


def needs() -> tuple[Need, ...]:
    """Use it as zfs_freebsd.probes.NEEDS."""
    freebsd, linux = _words("freebsd"), _words("linux")
    other: dict[str, tuple[str, ...]] = {}
    for word, probes in freebsd.items():
        if not any(":" in probe for probe in probes):
            continue
        only_here = [probe for probe in probes if probe not in linux[word]]
        other |= dict.fromkeys(only_here, tuple(linux[word]))
    return tuple(
        replace(
            need,
            any_of=tuple(
                dict.fromkeys(p for q in map(_any_module, need.any_of) for p in other.get(q, (q,)))
            ),
        )
        for need in NEEDS
    )
