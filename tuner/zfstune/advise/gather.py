"""Reads the state that rules judge, by zpool(8), zfs(8), kstats and parameters. Changes nothing."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from zfstrace import processes
from zfstrace import version as zfstrace_version
from zfstrace.disk import dev_of
from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstrace.types import TraceOptions
from zfstrace.zpool import properties, status
from zfstrace.zpool.properties import Properties
from zfstrace.zpool.status import Vdev
from zfstune.advise import pool_facts
from zfstune.advise.database import PAGES, Database
from zfstune.advise.subjects import Facts, Subject, known
from zfstune.changes.journal import Journal
from zfstune.changes.state_dir import places
from zfstune.errors import NotPossible, UsageError
from zfstune.preflight import require_names
from zfstune.rules.language import Fact
from zfstune.tunables import guard, values
from zfstune.tunables.survey import dangerous, require_module
from zfstune.tunables.survey import look as survey_of

Run = Callable[[Sequence[str], float], str]

_ZPOOL_S = 10
# thousands of datasets have a hundred properties each
_ZFS_S = 60

# Of arcstats; the limits come with the parameters.
_ARCSTATS = ("size", "l2_size", "l2_asize", "l2_hdr_size", "l2_hits", "l2_misses")


@dataclass(frozen=True)
class Asked:
    """where is a pool or dataset, None for all pools; load is that of --for, or ""."""

    where: str | None = None
    load: str = ""
    database: Database | None = None


@dataclass(frozen=True)
class State:
    """The subjects of rules; notes are lines for the user."""

    version: str
    pools: tuple[str, ...]
    subjects: tuple[Subject, ...]
    notes: tuple[str, ...] = ()


def gather(host: Host, asked: Asked, run: Run = processes.output) -> State:
    """Reads the state. Raises UsageError for an unknown name, NotPossible."""
    pools = _pools(host, asked.where)
    here, subjects = _host(host, asked)
    notes: list[str] = []
    datasets: list[Subject] = []
    for pool in pools:
        if _suspended(host, pool):
            facts = {**here, **known(pool=pool, pool_health="SUSPENDED")}
            subjects.append(Subject("pool", pool, facts))
            continue
        shared, found = _pool(host, pool, here, run)
        subjects += found
        if not any(subject.scope == "vdev" for subject in found):
            notes.append(f"`zpool status {pool}` cannot be read; vdevs of the pool were not judged")
        datasets += _datasets(asked.where or pool, pool, shared, run)
    notes += asked.database.notes if asked.database else ()
    loaded, said = _with_load(host, datasets, asked)
    notes += said
    return State(host.version(), tuple(pools), (*subjects, *loaded), tuple(notes))


def _pools(host: Host, where: str | None) -> list[str]:
    """Raises UsageError, NotPossible."""
    if not host.loaded():
        loading = host.parameters().loading()
        raise NotPossible("cannot look at pools: ZFS is not loaded", f"run `{loading}`")
    pools = host.pools()
    if where is not None:
        require_names(host, TraceOptions(pool=where.split("/", 1)[0]))
        pools = [where.split("/", 1)[0]]
    if not pools:
        raise NotPossible("cannot look at pools: none is imported", "see `zpool import`")
    if all(_suspended(host, pool) for pool in pools):
        pool = pools[0]
        raise NotPossible(
            f"cannot look at pool {pool}: its I/O is suspended",
            f"see `zpool status {pool}` and `zpool clear`",
        )
    return pools


def _suspended(host: Host, pool: str) -> bool:
    """zfs(8) would wait until the pool resumes."""
    return host.pool_state(pool) == "SUSPENDED"


# --- host, parameters


def _host(host: Host, asked: Asked) -> tuple[Facts, list[Subject]]:
    """The facts of the host, which all subjects share, and the host, its parameters and the
    database as subjects."""
    survey = survey_of(host)
    require_module(survey)
    now = guard.in_force(survey.state, survey.facts)
    arc = host.kstat("arcstats")
    version = zfstrace_version.version_key(survey.version)
    facts: dict[str, Fact] = {
        **guard.values(now, survey.facts),
        **{name if "_" in name else f"arc_{name}": arc[name] for name in _ARCSTATS if name in arc},
        **known(
            pools=len(host.pools()),
            load=asked.load,
            zfs_version=version[0] * 100 + version[1] if version else None,
        ),
    }
    if asked.database:
        facts |= asked.database.facts
    subjects = [Subject("host", "this host", facts, load=asked.load)]
    if asked.database:
        subjects.append(Subject("database", str(facts["config"]), facts, load=asked.load))
    ours = _ours(host)
    for row in survey.rows.values():
        if row.parameter is None or row.value is None or not (row.changed or row.ignored):
            continue
        mine = known(
            parameter=row.name,
            value=values.show(row.value, row.unit),
            default=None if row.default is None else values.show(row.default, row.unit),
            in_force=None if row.in_force is None else values.short(row.in_force, row.unit),
            default_number=row.default,
            writable=row.parameter.access == "rw",
            changed=row.changed,
            ignored=row.ignored,
            dangerous=dangerous(row),
            hazard=row.parameter.hazard or None,
            ours=None if ours is None else ours.get(row.name) == row.value,
        )
        subjects.append(Subject("parameter", row.name, {**facts, **mine}))
    for violation in survey.violations:
        mine = known(
            broken=guard.broken(violation, survey.state, survey.facts),
            advice=guard.advice(violation, violation.names[0]),
            hard=violation.hard,
        )
        subjects.append(Subject("coupling", ", ".join(violation.names), {**facts, **mine}))
    return facts, subjects


def _ours(host: Host) -> dict[str, int] | None:
    """Values by parameter that zfstune has set or keeps for the next load; None if not readable."""
    try:
        found = dict(host.parameters().boot().values())
        journal = Journal(places(), write=False)
    except (NotPossible, TraceError, OSError):
        return None
    try:
        params = host.parameters()
        for name in journal.history.base:
            value = params.read(name)
            if value is not None and value in journal.history.expected.get(name, ()):
                found[name] = value
    finally:
        journal.close()
    return found


# --- pools


def _pool(host: Host, pool: str, here: Facts, run: Run) -> tuple[Facts, list[Subject]]:
    """Raises NotPossible."""
    text = run(properties.command("zpool", "all", pool), _ZPOOL_S)
    found = properties.parse(text).get(pool)
    if not found:
        raise NotPossible(
            f"cannot look at pool {pool}: `zpool get all {pool}` fails or takes longer than "
            f"{_ZPOOL_S} s",
            "run it to see why",
        )
    of_vdevs: dict[str, Properties] = properties.parse(
        run(properties.command("zpool", "ashift", pool, "all-vdevs"), _ZPOOL_S)
    )
    return pool_facts.look(pool, found, _vdevs(pool, run), of_vdevs, host.disk, here)


def _vdevs(pool: str, run: Run) -> list[Vdev]:
    """From JSON (2.3 and later), or from text."""
    vdevs = status.parse_json(run(["zpool", "status", "-j", pool], _ZPOOL_S), pool)
    if vdevs:
        return vdevs
    named = status.parse_text(run(["zpool", "status", pool], _ZPOOL_S))
    return status.with_paths(
        named, status.parse_text(run(["zpool", "status", "-P", pool], _ZPOOL_S))
    )


# --- datasets


def _datasets(where: str, pool: str, shared: Facts, run: Run) -> list[Subject]:
    """A dataset and its descendants. Raises UsageError, NotPossible."""
    what = ["-r", "-t", "filesystem,volume", "all"]
    found = properties.parse(run(properties.command("zfs", *what, where), _ZFS_S))
    if not found:
        raise _no_datasets(where, pool, run)
    subjects = []
    for name, given in found.items():
        scope = str(given["type"].value) if "type" in given else ""
        if scope not in ("filesystem", "volume"):
            continue
        facts = {key: one.value for key, one in given.items() if one.value != "-"}
        facts |= known(dataset=name)
        # FreeBSD has no relatime
        facts.setdefault("relatime", "off")
        origins = {
            key: "" if one.source == "default" else properties.origin(name, one.source)
            for key, one in given.items()
        }
        # names of the pool's facts differ from those of properties
        subjects.append(Subject(scope, name, {**facts, **shared}, origins))
    return subjects


def _no_datasets(where: str, pool: str, run: Run) -> Exception:
    listed = run(["zfs", "list", "-H", "-o", "name", "-r", pool], _ZFS_S).splitlines()
    if listed and where not in listed:
        near = difflib.get_close_matches(where, listed, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"see `zfs list -r {pool}`"
        return UsageError(f"no dataset {where!r}", hint)
    return NotPossible(
        f"cannot look at {where}: `zfs get all {where}` fails or takes longer than {_ZFS_S} s",
        "run it to see why",
    )


def _with_load(
    host: Host, datasets: list[Subject], asked: Asked
) -> tuple[list[Subject], list[str]]:
    """The datasets, and notes. The load of --for is given to all, or with --config and without a
    dataset to those that have the database's files (has_data) or its log (has_log)."""
    chosen = {subject.name: known(has_data=1, has_log=1) for subject in datasets if asked.load}
    notes = []
    database = asked.database
    if database and (asked.where is None or "/" not in asked.where):
        home, logs = (
            _holder(host, path, datasets) if path else ""
            for path in (database.directory, database.logs)
        )
        if home:
            # where a link that cannot be read leads to is not known
            here = None if database.hidden and logs == home else logs == home
            chosen = {home: known(has_data=1, has_log=here)}
            notes.append(f"{database.directory} is on {home}")
        else:
            chosen = {}
            notes.append(
                f"{database.directory}, the database's directory, is on none of these datasets and "
                "was not judged; name its dataset if it is elsewhere"
            )
        if logs and logs != home:
            chosen[logs] = known(has_data=0, has_log=1)
            notes.append(f"{database.logs}, its log, is on {logs}")
    page = known(page=PAGES.get(asked.load))
    found = []
    for subject in datasets:
        if subject.name in chosen:
            facts = {**page, **subject.facts, **chosen[subject.name]}
            found.append(replace(subject, facts=facts, load=asked.load))
        else:
            found.append(subject)
    return found, notes


def _holder(host: Host, path: str, datasets: Sequence[Subject]) -> str:
    """The one of these datasets that has a directory; "" if none has. By its device number or, if
    that is not accessible, by the longest mount point above it."""
    try:
        name = host.dataset_name("", 0, dev_of(path))
    except OSError:
        return _by_mount_point(path, datasets)
    return name if name in {subject.name for subject in datasets} and name else ""


def _by_mount_point(path: str, datasets: Sequence[Subject]) -> str:
    best = ("", "")
    for subject in datasets:
        point = subject.facts.get("mountpoint")
        if not isinstance(point, str) or not point.startswith("/"):
            continue
        if subject.facts.get("mounted") != "yes":
            continue
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, subject.name)
    return best[1]
