"""Facts of a pool, of its vdevs and of their disks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from zfstrace.disk import Disk
from zfstrace.zpool.properties import Properties
from zfstrace.zpool.status import Vdev
from zfstune.advise.subjects import Facts, Subject, known
from zfstune.rules.language import Fact

# As `zpool get` names them, with pool_ before it.
_POOL = ("size", "free", "capacity", "fragmentation", "health", "autotrim")
_Disks = Mapping[str, Disk]


def look(
    pool: str,
    properties: Properties,
    vdevs: Sequence[Vdev],
    of_vdevs: Mapping[str, Properties],
    disk: Callable[[str], Disk | None],
    host: Facts,
) -> tuple[Facts, list[Subject]]:
    """The facts that the pool's datasets share, and the pool, its vdevs and disks as subjects.
    of_vdevs are properties by vdev (2.2 and later), disk describes a disk by path."""
    leaves = [leaf for vdev in vdevs for leaf in vdev.leaves()]
    disks = {leaf.path: disk(leaf.path) or Disk() for leaf in leaves if leaf.path}
    facts = dict(host) | known(pool=pool) | _of_properties(properties)
    if vdevs:
        facts |= _of_vdevs(vdevs, disks, of_vdevs)
    subjects = [Subject("pool", pool, facts)]
    for vdev in vdevs:
        mine = facts | _of_vdev(vdev, of_vdevs)
        subjects.append(Subject("vdev", f"{pool} {vdev.name}", mine))
        subjects += _leaves(pool, vdev, mine, disks)
    return facts, subjects


def _of_properties(properties: Properties) -> dict[str, Fact]:
    # ZFS prints "-" for a missing value
    given = {name: properties[name].value for name in _POOL if name in properties}
    return {f"pool_{name}": value for name, value in given.items() if value != "-"}


def _of_vdevs(
    vdevs: Sequence[Vdev], disks: _Disks, of_vdevs: Mapping[str, Properties]
) -> dict[str, Fact]:
    data = [vdev for vdev in vdevs if vdev.group == "data"]
    # ZFS chooses the ashift of a vdev by the largest sector of its disks
    sectors = [_largest([disk.physical_bytes for disk in _of([vdev], disks)]) for vdev in data]
    shifts = [_ashift(vdev, of_vdevs) for vdev in data]
    return known(
        redundant=bool(data) and all(vdev.redundant for vdev in data),
        raidz=any(vdev.kind in ("raidz", "draid") for vdev in data),
        slogs=sum(vdev.group == "log" for vdev in vdevs),
        rotating=_any([disk.rotational for disk in _of(data, disks)]),
        specials=sum(vdev.group == "special" for vdev in vdevs),
        caches=sum(vdev.group == "cache" for vdev in vdevs),
        sector_min=min(n for n in sectors if n) if sectors and all(sectors) else None,
        sector_max=_largest(sectors),
        block_min=1 << min(n for n in shifts if n) if shifts and all(shifts) else None,
        block_max=1 << shift if (shift := _largest(shifts)) else None,
    )


def _of(vdevs: Sequence[Vdev], disks: _Disks) -> list[Disk]:
    return [disks.get(leaf.path, Disk()) for vdev in vdevs for leaf in vdev.leaves()]


def _any(values: Sequence[bool | None]) -> bool | None:
    """True if any is; None if none is but some are not known."""
    return True if any(values) else None if None in values else False


def _largest(values: Sequence[int | None]) -> int | None:
    """None if any is not known."""
    return max(n for n in values if n) if values and all(values) else None


def _ashift(vdev: Vdev, of_vdevs: Mapping[str, Properties]) -> int | None:
    """Of a top-level vdev; None where vdevs have no properties (2.1)."""
    found = of_vdevs.get(vdev.name, {}).get("ashift")
    if found and isinstance(found.value, int) and 0 < found.value < 32:
        return found.value
    shifts = [leaf.configured.bit_length() - 1 for leaf in vdev.leaves() if leaf.configured]
    return shifts[0] if shifts else None


def _of_vdev(vdev: Vdev, of_vdevs: Mapping[str, Properties]) -> dict[str, Fact]:
    shift = _ashift(vdev, of_vdevs)
    return known(
        group=vdev.group,
        kind=vdev.kind,
        vdev_redundant=vdev.redundant,
        ashift=shift,
        block=1 << shift if shift else None,
        disks=sum(1 for _ in vdev.leaves()),
    )


def _leaves(pool: str, vdev: Vdev, facts: Facts, disks: _Disks) -> Iterator[Subject]:
    for leaf in vdev.leaves():
        disk = disks.get(leaf.path, Disk())
        physical = leaf.native or disk.physical_bytes
        block = facts.get("block")
        below: bool | None = None
        if leaf.configured:
            below = True
        elif physical and isinstance(block, int):
            below = block < physical
        elif leaf.state == "ONLINE" and leaf.group in ("data", "log", "special", "dedup"):
            # zpool status would report it (print_status_config() in cmd/zpool/zpool_main.c)
            below = False
        mine = known(
            block=leaf.configured or None,
            physical=physical,
            logical=disk.logical_bytes,
            disk_rotating=disk.rotational,
            disk_volatile=disk.volatile,
            below_native=below,
            state=leaf.state,
        )
        yield Subject("disk", f"{pool} {leaf.name}", {**facts, **mine})
