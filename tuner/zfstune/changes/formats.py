"""`zfstune keep --format`: the values in the form that a system wants where /etc/modprobe.d is not
the place for them. Nothing is written.

Names are those of the catalogue and values are numbers, so nothing needs quoting but what a form
itself has around them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zfstune.tunables import catalogue

# Names and values, in an order in which they can be set one by one
Values = Mapping[str, int]

_PARAMETERS = "/sys/module/zfs/parameters"
_FILE = "/etc/modprobe.d/zfstune.conf"


@dataclass(frozen=True)
class Format:
    """lines makes the output from the values; where is what to do with it. runtime: the values are
    set one by one in the running module, so what only its load can set is left out. freebsd: it is
    for FreeBSD, not for Linux."""

    lines: Callable[[Values], Sequence[str]]
    where: str
    runtime: bool = False
    freebsd: bool = False


def printed(name: str, values: Values) -> tuple[list[str], list[str]]:
    """The lines of a format, and notes on its use and on values that it cannot have."""
    form = FORMATS[name]
    there = {n: v for n, v in values.items() if not lack(form, n)}
    notes = [f"{n} is left out: {lack(form, n)}" for n in values if n not in there]
    return (list(form.lines(there)), [form.where, *notes]) if there else ([], notes)


def lack(form: Format, name: str) -> str:
    """Why a format cannot have a parameter; "" if it can."""
    parameter = catalogue.load().get(name)
    if form.freebsd and not (parameter and parameter.freebsd):
        return "FreeBSD has no sysctl for it"
    if not form.freebsd and parameter and not parameter.linux:
        return "Linux has no such parameter"
    if form.runtime and _at_load(name):
        return "it can only be set when the module is loaded"
    return ""


def _at_load(name: str) -> bool:
    parameter = catalogue.load().get(name)
    return parameter is not None and parameter.access == "load"


def _modprobe(values: Values) -> list[str]:
    return [f"options zfs {name}={value}" for name, value in sorted(values.items())]


def _nix(values: Values) -> list[str]:
    return [
        "boot.extraModprobeConfig = ''",
        *(f"  {line}" for line in _modprobe(values)),
        "'';",
    ]


def _truenas(values: Values) -> list[str]:
    """An argument of midclt(1): JSON in quotes for the shell."""
    task = {
        "type": "COMMAND",
        "command": "; ".join(f"echo {v} > {_PARAMETERS}/{n}" for n, v in values.items()),
        "when": "PREINIT",
        "enabled": True,
        "timeout": 30,
        "comment": "zfstune keep",
    }
    return [f"midclt call initshutdownscript.create {shlex.quote(json.dumps(task))}"]


def _ansible(values: Values) -> list[str]:
    return [
        "- name: Set parameters of ZFS when its module is loaded",
        "  ansible.builtin.copy:",
        f"    dest: {_FILE}",
        "    owner: root",
        "    group: root",
        '    mode: "0644"',
        "    content: |",
        *(f"      {line}" for line in _modprobe(values)),
        "  become: true",
    ]


def _tuned(values: Values) -> list[str]:
    now = {name: value for name, value in values.items() if not _at_load(name)}
    return [
        "[main]",
        "summary=Parameters of ZFS from zfstune",
        "",
        "[modules]",
        f"zfs={' '.join(f'{name}={value}' for name, value in sorted(values.items()))}",
        *(["", "[sysfs]"] if now else []),
        *(f"{_PARAMETERS}/{name}={value}" for name, value in now.items()),
    ]


def _sysctl(values: Values) -> list[str]:
    names = catalogue.freebsd_names()
    now = [f"{names[n]}={v}" for n, v in values.items() if not _at_load(n)]
    load = [f'{names[n]}="{v}"' for n, v in values.items() if _at_load(n)]
    return [
        *(["# /etc/sysctl.conf", *now] if now else []),
        *(["# /boot/loader.conf.d/zfstune.conf", *load] if load else []),
    ]


FORMATS = {
    "modprobe": Format(_modprobe, f"lines for {_FILE}"),
    "nix": Format(_nix, "for /etc/nixos/configuration.nix; then run `nixos-rebuild boot`"),
    "truenas": Format(
        _truenas,
        "run it once on TrueNAS SCALE; the task is then in System, Advanced, Init/Shutdown Scripts",
        runtime=True,
    ),
    "ansible": Format(_ansible, "a task for a playbook"),
    "tuned": Format(
        _tuned,
        "for /etc/tuned/zfstune/tuned.conf; then run `tuned-adm profile` with the present profile "
        "and zfstune",
    ),
    "sysctl": Format(_sysctl, "for FreeBSD, in the files that the comments name", freebsd=True),
}
