"""Which runs of a guest are repeated: those that only the emulation can have ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lab import guests
from lab.guests import ATTEMPTS, CALLERS, NEVER, again, count_boots, emulated, fault_of, fell_at
from support.paths import ROOT

# Recorded: QEMU's gdb stub put a breakpoint at the first instruction of a function with a kprobe,
# as the race of the emulation does.
RECORDED = sorted((ROOT / "tests/data/lab").glob("*.log"))
NOT_BOOTED = """\
lab: trixie 0123456789ab, QEMU 10.0.2, tcg,thread=multi
lab: the guest was not ready after 3m00s
lab: nothing has run in it, so it is booted again
"""


def function(recorded: Path) -> str:
    return recorded.stem.partition("-")[2]


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_crashes_of_trixie_are_recorded() -> None:
    assert {path.stem.partition("-")[0] for path in RECORDED} >= {"trixie"}


def test_a_crash_at_a_probe_is_repeated(recorded: Path) -> None:
    log = recorded.read_text()
    assert emulated(log)
    assert function(recorded) in (fell_at(log) or "").split(" or ")
    assert fault_of("robust", log) == f"the guest's kernel fell at the probe of {fell_at(log)}"


@pytest.mark.parametrize("scenario", sorted(NEVER))
def test_no_scenario_that_must_hold_is_repeated(recorded: Path, scenario: str) -> None:
    assert fault_of(scenario, recorded.read_text()) is None


def test_nothing_is_repeated_under_kvm(recorded: Path) -> None:
    log = recorded.read_text().replace("tcg,thread=multi", "kvm")
    assert fault_of("robust", log) is None


def test_nothing_is_repeated_under_an_unknown_accelerator(recorded: Path) -> None:
    log = recorded.read_text()
    assert fault_of("robust", log[log.index("\n") + 1 :]) is None


def test_a_null_call_of_the_code_is_a_failure(recorded: Path) -> None:
    """In a thread, with interrupts on: through a parameter that makes a pointer 0, say."""
    log = re.sub(
        r"EFLAGS: ([0-9a-f]{8})",
        lambda m: f"EFLAGS: {int(m[1], 16) | 0x200:08x}",
        recorded.read_text(),
    )
    assert fault_of("robust", log) is None


def test_a_trace_without_a_caller_of_a_probed_function_is_a_failure(recorded: Path) -> None:
    log = re.sub(
        r"(Call Trace:\n.*<TASK>\n[^\n]*\]  )\w+", r"\1param_attr_store", recorded.read_text()
    )
    assert "param_attr_store+0x" in log
    assert fault_of("robust", log) is None


def test_a_crash_at_another_address_is_a_failure(recorded: Path) -> None:
    log = recorded.read_text().replace("RIP: 0010:0x0\n", "RIP: 0010:zio_done+0x12/0x10a0 [zfs]\n")
    assert fault_of("robust", log) is None


def test_output_of_the_command_is_not_the_console(recorded: Path) -> None:
    """A scenario that shows such a log, as dmesg would."""
    log = recorded.read_text().replace("\n  | ", "\n")
    assert fault_of("robust", log) is None


def test_a_run_that_takes_too_long_is_a_failure() -> None:
    assert fault_of("robust", "lab: timeout: the command took longer than 15m00s\n") is None


def test_each_boot_that_the_lab_repeated_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "REPEATED", [])
    count_boots("faults", "bookworm", NOT_BOOTED * 2 + "lab: guest ready after 20.1s\n")
    assert guests.REPEATED == ["faults on bookworm: the guest was booted again"] * 2


def test_each_repeat_is_counted_and_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(guests, "REPEATED", [])
    log = RECORDED[0].read_text()
    fault = f"views on trixie: {fault_of('views', log)}"
    asked = [again(n, "views", "trixie", log) for n in range(1, ATTEMPTS + 1)]
    assert asked == [True] * (ATTEMPTS - 1) + [False]
    assert len(guests.REPEATED) == ATTEMPTS - 1
    assert set(guests.REPEATED) == {fault}
    assert capsys.readouterr().err.count(f"{fault}, see docs/lab.md; again:\n") == ATTEMPTS - 1


def test_callers_belong_to_probed_functions() -> None:
    probed = set(re.findall(r'"(\w+)"', (ROOT / "tracers/libzfstrace/tables.c").read_text()))
    for tool in (ROOT / "tracers/bpftrace").glob("*.bt"):
        probed |= set(re.findall(r"kr?e?t?probe:(\w+)", tool.read_text()))
    assert set(CALLERS) <= probed
