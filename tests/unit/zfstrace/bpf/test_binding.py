"""The binding: structures laid out as in zfstrace.h, errors as exceptions."""

from __future__ import annotations

import ctypes
import errno
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.paths import ROOT

from zfstrace import device, errors, read, recording, stages, throttle
from zfstrace.bpf import binding, pools, stacks
from zfstrace.bpf.fsync import FsyncTrace

HEADER = ROOT / "tracers/libzfstrace/zfstrace.h"
TABLES = HEADER.with_name("zfstrace_tables.h")
LIBRARY = ROOT / "tracers/libzfstrace/libzfstrace.so"

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "opts": binding._Opts,
    "probe": binding._Probe,
    "hist": binding.CHist,
    "dataset": binding.CDataset,
    "reads": binding.CReads,
    "losses": binding._Losses,
    "cost": binding.CCost,
    "slow": binding.CSlow,
    "stack": stacks.CStack,
    "stack_losses": stacks.CStackLosses,
    "table_hist": pools.KernelHist,
    "txg": pools.TxgEvent,
    "waiter": pools.Waiter,
    "throttle_params": pools.ThrottleParams,
    "io": pools.IoClass,
    "vdev": pools.VdevSlot,
    "arc": pools.ArcTable,
}


def test_structures_are_those_of_the_header(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler is needed, as for `make`"
    lines = ['#include "zfstrace.h"', "#include <stdio.h>", "int main(void) {"]
    want = []
    for name, mirror in STRUCTS.items():
        struct = f"struct zfstrace_{name}"
        lines.append(f'printf("%zu\\n", sizeof({struct}));')
        want.append(ctypes.sizeof(mirror))
        for field in mirror._fields_:
            lines.append(f'printf("%zu\\n", offsetof({struct}, {field[0]}));')
            want.append(getattr(mirror, field[0]).offset)
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run([compiler, f"-I{HEADER.parent}", source, "-o", program], check=True)
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    assert [int(line) for line in done.stdout.split()] == want


def test_every_function_of_the_header_is_bound() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    declared = set(re.findall(r"\b(zfstrace_\w+)\(", text))
    assert declared == set(binding.PROTOTYPES)


def test_abi_is_that_of_the_header() -> None:
    text = HEADER.read_text(encoding="utf-8") + TABLES.read_text(encoding="utf-8")
    assert f"#define ZFSTRACE_ABI {binding.ABI}\n" in text
    assert f"#define ZFSTRACE_STAGES {len(stages.NAMES)}\n" in text
    assert f"#define ZFSTRACE_KINDS {len(stages.KINDS)}\n" in text


def test_numbers_are_those_of_the_header() -> None:
    text = TABLES.read_text(encoding="utf-8")
    classes = [name.lower() for name in re.findall(r"\bZFSTRACE_IO_(\w+),", text)]
    assert classes == [*device.CLASSES, "classes"]
    assert len(re.findall(r"\bZFSTRACE_WAIT_\w+,", text)) == len(throttle.KINDS)
    ops = re.findall(r"\bZFSTRACE_READ_(\w+),", HEADER.read_text(encoding="utf-8"))
    assert [name.lower() for name in ops] == [*read.OPS, "ops"]
    modes = [int(mode, 16) for mode in re.findall(r"#define ZFSTRACE_STACKS_\w+ (0x\w+)", text)]
    assert modes == [*stacks.KINDS.values(), *stacks.TARGETS.values()]
    beyond = [name.lower() for name in re.findall(r"\bZFSTRACE_STAGE_(\w+)", text)]
    assert [*stages.NAMES, *beyond] == [*recording.STAGES]


def test_names_are_in_the_order_of_the_kernel_side() -> None:
    text = (ROOT / "tracers/bpf/fsync.h").read_text(encoding="utf-8")
    order = [name.lower() for name in re.findall(r"\bSTAGE_([A-Z_]+),", text)]
    assert tuple(order[: len(stages.NAMES)]) == stages.NAMES
    kinds = [name.lower() for name in re.findall(r"\bKIND_([A-Z_]+),", text)]
    assert tuple(kinds[: len(stages.KINDS)]) == stages.KINDS


def test_every_probe_says_what_its_absence_costs() -> None:
    probes = binding.survey().probes
    for probe in probes:
        assert probe.cost
        assert set(probe.merges) <= set(stages.NAMES)
    costs = {probe.merges[0]: probe.cost for probe in probes if probe.merges}
    assert costs["batch_wait"] == "`batch_wait` is part of `issue`"
    assert costs["txg_fallback"] == "`txg_fallback` is part of `issue` or `other`"


def test_the_checkout_has_its_own_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZFSTUNE_LIB", raising=False)
    assert LIBRARY.exists(), f"{LIBRARY.name} is not built, run `make`"
    assert binding.find_library() == str(LIBRARY)


def test_a_named_library_must_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZFSTUNE_LIB", str(tmp_path / "none.so"))
    with pytest.raises(errors.LibraryMissing, match="does not exist"):
        binding.load()
    (tmp_path / "none.so").write_text("no library")
    with pytest.raises(errors.LibraryMissing, match="does not load"):
        binding.load()


def test_another_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZFSTUNE_LIB", ctypes.__spec__.origin or "")
    with pytest.raises(errors.LibraryMissing) as caught:
        binding.load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-errno.EPERM, errors.NoPrivilege),
        (-errno.EACCES, errors.NoPrivilege),
        (-errno.ENOENT, errors.NoZfs),
        (-errno.ENOTSUP, errors.NotSupported),
        (-errno.EIO, errors.TraceError),
    ],
)
def test_errno_becomes_an_exception(code: int, kind: type[errors.TraceError]) -> None:
    assert type(binding._error(code, "")) is kind
    error = binding._error(code, "what: why\nwhat to do")
    assert (str(error), error.hint) == ("what: why", "what to do")


def test_without_zfs_a_trace_is_an_error() -> None:
    if Path("/sys/module/zfs").exists():
        pytest.skip("ZFS is loaded here")
    with pytest.raises(errors.TraceError) as caught:
        FsyncTrace(pool="tank")
    assert "\n" not in str(caught.value)
    assert str(caught.value)


def test_the_library_runs_on_debian_12() -> None:
    """Wherever it was built: no symbol newer than glibc 2.36 or libbpf 1.1."""
    text = subprocess.run(
        ["objdump", "-T", LIBRARY], check=True, capture_output=True, text=True
    ).stdout
    needed = {
        name: max(tuple(map(int, v.split("."))) for v in re.findall(rf"{name}_([0-9.]+)", text))
        for name in ("GLIBC", "LIBBPF")
    }
    assert needed["GLIBC"] <= (2, 36)
    assert needed["LIBBPF"] <= (1, 1)
