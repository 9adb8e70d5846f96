"""Values for the next boot: /etc/sysctl.conf for what can be set at run time,
/boot/loader.conf.d/zfstune.conf for what only the loader can set.

The loader reads /boot/loader.conf, /boot/loader.conf.d/*.conf and /boot/loader.conf.local before
the module starts (loader.conf(5)); rc.d/sysctl then applies /etc/sysctl.conf and
/etc/sysctl.conf.local line by line (sysctl.conf(5)), and rc.d/sysctl_lastload applies them again at
the end of the boot. So the later of two settings wins, and pools may already be in use between two
lines of sysctl.conf: our lines are in a safe order.

Our lines end with a tag. As long as one exists, any other line for the same sysctl is a comment, so
that each sysctl is set once.
"""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from zfstrace.errors import ParameterError
from zfstrace.files import replace_text
from zfstrace.params import Kept

SYSCTL_CONF = "etc/sysctl.conf"
LOADER_CONF = "boot/loader.conf.d/zfstune.conf"
_LOADER_FIRST, _LOADER_DIRECTORY = "boot/loader.conf", "boot/loader.conf.d"
_AFTER_DIRECTORY = ("boot/loader.conf.local", SYSCTL_CONF, "etc/sysctl.conf.local")

_TAG = "# zfstune keep"
_ASIDE = "#zfstune-aside# "
# sysctl(8) takes a colon, too (parse() in sbin/sysctl/sysctl.c)
_SETTING = re.compile(r"\s*([\w.%-]+)\s*[=:]\s*([^#]*?)\s*(?:#.*)?")
_SUFFIXES = {"k": 10, "m": 20, "g": 30, "t": 40}

# Linux names in the order in which their lines come
Order = Callable[[Mapping[str, int]], Sequence[str]]


@dataclass
class _Plan:
    """The new contents of a file."""

    path: Path
    before: list[str]
    lines: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)

    @property
    def after(self) -> list[str]:
        return [*self.lines, *self.ours]


class BootFiles:
    """Implements zfstrace.params.BootConfig.

    names has the sysctls of this host by Linux name, aliases the current names of older ones;
    tunable_only tells whether only the loader can set a parameter, given its Linux name.
    """

    def __init__(
        self,
        root: Path,
        names: Mapping[str, str],
        aliases: Mapping[str, str],
        tunable_only: Callable[[str], bool],
        order: Order,
    ) -> None:
        self._root, self._names, self._aliases = root, names, aliases
        self._tunable_only, self._order = tunable_only, order
        self._linux = {aliases.get(oid, oid): name for name, oid in names.items()}

    def values(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for path in (self._root / LOADER_CONF, self._root / SYSCTL_CONF):
            found |= self._ours(path, _read(path))
        return found

    def preview(self, values: Mapping[str, int], drop: Collection[str] = ()) -> Kept:
        plans = self._plans(values, drop)
        # sysctl.conf comes first, and alone if the other has no line of ours and does not change
        shown = [plan for plan in plans if plan.ours or plan.after != plan.before] or plans[:1]
        main, *others = (Kept(str(plan.path), tuple(plan.ours)) for plan in shown)
        notes, given = tuple(self._notes(plans, values)), self._given(plans)
        return replace(main, notes=notes, given=given, more=tuple(others))

    def update(self, values: Mapping[str, int], drop: Collection[str] = ()) -> Kept:
        kept = self.preview(values, drop)
        changed = [plan for plan in self._plans(values, drop) if plan.after != plan.before]
        backups: dict[str, str] = {}
        for i, plan in enumerate(changed):
            try:
                backups |= _write(plan)
            except OSError as error:
                with contextlib.suppress(OSError):
                    for done in changed[:i]:
                        _put(done.path, done.before)
                raise ParameterError(
                    f"cannot write {plan.path}: {error.strerror}; nothing was changed",
                    "run as root" if isinstance(error, PermissionError) else "make room",
                ) from None
        more = tuple(replace(one, backup=backups.get(one.path)) for one in kept.more)
        return replace(kept, backup=backups.get(kept.path), more=more)

    # --- lines

    def _plans(self, values: Mapping[str, int], drop: Collection[str]) -> list[_Plan]:
        loader = {name for name in values if self._tunable_only(name)}
        here = {name: value for name, value in values.items() if name not in loader}
        there = {name: values[name] for name in loader}
        return [
            self._plan(SYSCTL_CONF, here, {*drop, *loader}, "{}={}  " + _TAG),
            self._plan(LOADER_CONF, there, {*drop, *here}, '{}="{}"  ' + _TAG),
        ]

    def _plan(
        self, file: str, values: Mapping[str, int], drop: Collection[str], form: str
    ) -> _Plan:
        path = self._root / file
        plan = _Plan(path, _read_own(path))
        before = self._ours(path, plan.before)
        ours = {n: v for n, v in before.items() if n not in drop} | dict(values)
        ours = {name: value for name, value in ours.items() if name in self._names}
        plan.ours = [form.format(self._names[name], ours[name]) for name in self._order(ours)]
        for line in plan.before:
            bare = line.removeprefix(_ASIDE)
            name = self._name_in(bare)
            if _is_ours(line):
                continue
            if name in ours:
                plan.lines.append(_ASIDE + bare)
                plan.aside += [line] if line == bare else []  # else it was set aside before
            elif name is not None:
                plan.lines.append(bare)
            else:
                plan.lines.append(line)
        return plan

    def _ours(self, path: Path, lines: Sequence[str]) -> dict[str, int]:
        return dict(self._settings(path, [line for line in lines if _is_ours(line)]))

    def _settings(self, path: Path, lines: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Linux names and values in a file, numbers only."""
        loader = path.parent != self._root / "etc"
        for line in lines:
            name, match = self._name_in(line), _SETTING.fullmatch(line)
            value = _number(match[2], loader=loader) if match else None
            if name is not None and value is not None:
                yield name, value

    def _name_in(self, line: str) -> str | None:
        """The Linux name of the parameter that a line sets; None if it sets no known one."""
        match = _SETTING.fullmatch(line)
        return self._linux.get(self._aliases.get(match[1], match[1])) if match else None

    # --- other files

    def _files(self) -> list[Path]:
        """All files read at boot, in that order."""
        between = {*(self._root / _LOADER_DIRECTORY).glob("*.conf"), self._root / LOADER_CONF}
        first, *others = (self._root / name for name in (_LOADER_FIRST, *_AFTER_DIRECTORY))
        return [first, *sorted(between), *others]

    def _notes(self, plans: Sequence[_Plan], values: Mapping[str, int]) -> Iterator[str]:
        for plan in plans:
            for line in plan.aside:
                if self._name_in(line) in values:
                    yield (
                        f"the line `{line.strip()}` of {plan.path} becomes a comment; "
                        "`zfstune keep --remove` restores it"
                    )
        files, own = self._files(), [plan.path for plan in plans]
        for path in (path for path in files if path not in own):
            for name, value in self._settings(path, _read(path)):
                if name in values:
                    ours = own[self._tunable_only(name)]
                    last = max(path, ours, key=files.index)
                    which = f"{ours} is read later" if last == ours else "it is read later"
                    yield f"{path} also sets {self._names[name]}={value}; {which} and wins"

    def _given(self, plans: Sequence[_Plan]) -> dict[str, int]:
        """The values that these files set at boot."""
        planned = {plan.path: plan.after for plan in plans}
        found: dict[str, int] = {}
        for path in self._files():
            found |= self._settings(path, planned[path] if path in planned else _read(path))
        return found


def by_name(values: Mapping[str, int]) -> list[str]:
    """An arbitrary order."""
    return sorted(values)


def _is_ours(line: str) -> bool:
    return line.rstrip().endswith(_TAG) and not line.startswith("#")


def _number(text: str, *, loader: bool) -> int | None:
    """Decimal, 0x, or octal with a leading 0. The kernel reads the suffixes K, M, G and T in a
    tunable of the loader (getenv_quad() in sys/kern/kern_environment.c), sysctl(8) refuses them."""
    text = text.strip().strip("\"'").lower()
    shift = _SUFFIXES.get(text[-1:], 0) if loader else 0
    digits = text[:-1] if shift else text
    octal = len(digits) > 1 and digits.startswith("0") and digits.isdigit()
    try:
        return int(digits, 8 if octal else 0) << shift
    except ValueError:
        return None


def _read(path: Path) -> list[str]:
    try:
        # not read_text(), to which \r is the end of a line
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return []
    return text.removesuffix("\n").split("\n") if text else []


def _read_own(path: Path) -> list[str]:
    """A file that will be replaced, so it must be readable. Raises ParameterError."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror}", "run as root") from None
    return _read(path)


def _write(plan: _Plan) -> dict[str, str]:
    """Replaces the file; returns {file: backup}, {} if it is new. Raises OSError."""
    if not plan.path.exists():
        _put(plan.path, plan.after)
        return {}
    backup = plan.path.with_name(plan.path.name + ".zfstune.bak")
    _put(backup, plan.before)
    # this file is ours alone
    if not plan.after and plan.path.name == Path(LOADER_CONF).name:
        plan.path.unlink()
    else:
        _put(plan.path, plan.after)
    return {str(plan.path): str(backup)}


def _put(path: Path, lines: Sequence[str]) -> None:
    """Writes the file, with its previous mode; follows a symbolic link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    real = path.resolve()
    mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o644
    replace_text(real, "".join(f"{line}\n" for line in lines), mode)
