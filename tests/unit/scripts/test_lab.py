"""The parts of scripts/lab that need no virtual machine."""

from __future__ import annotations

import json
import lzma
import os
import re
import signal
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.fake_lab import fake_image
from support.paths import ROOT

from zfslab import (
    cli,
    console,
    cpio,
    disk,
    image,
    initrd,
    instructions,
    kvm,
    machine,
    process,
    qemu,
    recipe,
    script,
    units,
)
from zfslab.errors import LabError

SYSRQ = b"""\
Starting systemd-udevd version 257.13-1~deb13u1\r
[   11.469130] Kernel panic - not syncing: sysrq triggered crash\r
[   11.469483] CPU: 1 UID: 0 PID: 345 Comm: sh Tainted: P           OE\r
[   11.469930] Call Trace:\r
[   11.475929] Kernel Offset: 0xa200000 from 0xffffffff81000000\r
"""

OOPS = b"""\
[   13.100000] oops: loading out-of-tree module taints kernel.\r
[   13.123456] BUG: kernel NULL pointer dereference, address: 08\r
[   13.123999] #PF: supervisor read access in kernel mode\r
[   13.124999] Oops: Oops: 0000 [#1] PREEMPT SMP PTI\r
[   13.130000] Kernel panic - not syncing: Fatal exception\r
"""

FREEBSD = b"""\
Starting local daemons:VZFS-JOB-BEGIN\r
panic: kdb_sysctl_panic\r
cpuid = 0\r
KDB: stack backtrace:\r
Uptime: 27s\r
"""

QUIET = b"""\
[    5.700745] spl: loading out-of-tree module taints kernel.\r
[    6.318646] zfs: module license 'CDDL' taints kernel.\r
[   40.000000] WARNING: CPU: 0 PID: 7 at kernel/some/file.c:12 something+0x1/0x2\r
"""


ONE_ERROR = r"lab: error: [^\n]+\nhint: [^\n]+\n"


def lab(*arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if cache is not None:
        environment["XDG_CACHE_HOME"] = str(cache)
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/lab"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("512", 512), ("4k", 4096), ("30M", 31457280), ("8GiB", 8 << 30)]
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("500ms", 0.5), ("1.5h", 5400)]
)
def test_times_are_parsed(text: str, seconds: float) -> None:
    assert units.parse_time_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "M", "-1G", "1.5G", "8X", "8 G"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        units.parse_size(text)


@pytest.mark.parametrize("text", ["", "s", "-1s", "5d", "1m30s"])
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        units.parse_time_s(text)


def test_a_disk_is_neither_limited_nor_delayed_by_default() -> None:
    plain = disk.parse_disk("size=4G")
    assert plain == disk.Disk(size_bytes=4 << 30)
    assert plain.throttling() == ""
    assert plain.delay_legs() == ""


def test_limits_and_delays_of_a_disk_reach_qemu() -> None:
    slow = disk.parse_disk("size=1G,write-bps=30M,read-iops=600,flush-delay=20ms,cache=unsafe")
    assert slow.throttling() == ",throttling.bps-write=31457280,throttling.iops-read=600"
    assert disk.parse_disk("bps=1M,burst=1500ms").throttling() == (
        ",throttling.bps-total=1048576,throttling.bps-total-max=1572864"
    )
    assert slow.delay_legs() == "0 0 20"
    assert slow.cache == "unsafe"
    assert slow.sectors() == ""
    assert disk.parse_disk("sector=4K").sectors() == ",physical_block_size=4096"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("size", "has no value; write it as KEY=VALUE"),
        ("size=1M", "at least 64M"),
        ("size=8X", "is not a size"),
        ("speed=9", "speed: unknown key; use size"),
        ("cache=fast", "unknown mode 'fast'; use writeback"),
        ("iops=0", "at least 1"),
        ("iops=5,write-iops=6", "iops limits both directions"),
        ("iops=5,burst=500ms", "must be at least 1s"),
        ("burst=1s", "burst: there is no limit; add write-bps=30M"),
        ("sector=3K", "sector: must be a power of two from 512 to 32K"),
        ("flush-delay=20", "has no unit; write 20ms"),
        ("flush-delay=300us", "whole milliseconds"),
    ],
)
def test_invalid_disks_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(LabError) as caught:
        disk.parse_disk(text)
    assert caught.value.status == 2
    said = f"{caught.value}; {caught.value.hint}"
    assert complaint in said
    assert "\n" not in said


def test_options_end_at_the_dashes() -> None:
    given = cli.parse(
        [
            *("run", "--flavour", "bookworm", "--disk", "size=1G", "--disk", "iops=9"),
            *("--timeout", "5m", "--", "sh", "-c", "a -- b", "--timeout"),
        ]
    )
    assert given.command == ["sh", "-c", "a -- b", "--timeout"]
    assert given.flavour == "bookworm"
    assert given.timeout == 300
    assert [d.size_bytes for d in given.disk] == [1 << 30, 8 << 30]


def test_a_command_needs_no_dashes() -> None:
    assert cli.parse(["run", "uname", "-r"]).command == ["uname", "-r"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "ACTION"),
        (["run"], "COMMAND is missing"),
        (["run", "--"], "COMMAND is missing"),
        (["run", "--cpus", "0", "--", "true"], "not a number of CPUs"),
        (["run", "--memory", "8M", "--", "true"], "too little"),
        (["run", "--timeout", "0", "--", "true"], "more than 0"),
        (["run", "--share", "/nonexistent", "--", "true"], "is not a directory"),
        (["run", "--flavour", "sid", "--", "true"], "hint: use trixie, bookworm, trixie-backports"),
        (["run", "--instructions", "d", "--accel", "kvm", "--", "true"], "needs emulation"),
        (["build", "bookworm", "sid"], "unknown flavour 'sid'"),
        (["shell", "--", "true"], "takes no COMMAND"),
        (["shell"], "needs a terminal"),
    ],
)
def test_wrong_usage_has_a_hint_and_status_2(arguments: list[str], complaint: str) -> None:
    result = lab(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert re.fullmatch(ONE_ERROR, result.stderr)
    assert complaint in result.stderr


def test_a_missing_image_is_status_3(tmp_path: Path) -> None:
    result = lab("run", "--", "true", cache=tmp_path)
    assert result.returncode == 3
    assert re.fullmatch(ONE_ERROR, result.stderr)
    assert "scripts/lab build trixie" in result.stderr


@pytest.mark.parametrize("action", ["build", "run", "shell", "list", "clean"])
def test_help_fits_the_screen(action: str) -> None:
    result = lab(action, "-h")
    assert result.returncode == 0
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "examples:" in result.stdout or action in ("list", "clean")


def test_images_that_are_not_built_are_listed(tmp_path: Path) -> None:
    result = lab("list", cache=tmp_path)
    assert result.returncode == 0
    assert result.stdout.count("not built") == len(recipe.FLAVOURS)


def test_keys_differ_and_follow_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {recipe.key(flavour) for flavour in recipe.FLAVOURS.values()}
    assert len(keys) == len(recipe.FLAVOURS)
    assert keys == {recipe.key(flavour) for flavour in recipe.FLAVOURS.values()}
    monkeypatch.setattr(recipe, "FORMAT", recipe.FORMAT + 1)
    assert keys.isdisjoint({recipe.key(flavour) for flavour in recipe.FLAVOURS.values()})


def test_only_dtrace_is_installed_from_sid() -> None:
    """Only dtrace is installed from sid, and it must not cost zfs-dkms."""
    command = " ".join(recipe.mmdebstrap(recipe.FLAVOURS["trixie-dtrace"], "-"))
    assert "Pin: release n=sid\\nPin-Priority: 50" in command
    assert "--no-remove --no-upgrade dtrace" in command
    others = [flavour for flavour in recipe.FLAVOURS.values() if not flavour.dtrace]
    assert not [f for f in others if "sid" in " ".join(recipe.mmdebstrap(f, "-")).split()]


def test_the_recipe_is_valid_shell() -> None:
    for flavour in recipe.FLAVOURS.values():
        hooks = [a for a in recipe.mmdebstrap(flavour, "-") if "-hook=" in a]
        more = flavour.backports or flavour.dtrace or flavour.btf
        assert len(hooks) == (3 if more else 1)
        for hook in hooks:
            subprocess.run(["sh", "-n", "-c", hook.partition("=")[2]], check=True)


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert image.cache_dir() == tmp_path / "zfstune/lab"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert image.cache_dir() == Path.home() / ".cache/zfstune/lab"


def test_clean_keeps_a_running_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("tmp-trixie-aaaa", "tmp-bookworm-bbbb"):
        (image.cache_dir() / name).mkdir(parents=True)
    old = image.cache_dir() / "trixie-cccc"
    old.mkdir()
    (old / "manifest.json").write_text("{}")
    holder = subprocess.Popen(
        ["flock", str(image.cache_dir() / "trixie-aaaa.lock"), "sh", "-c", "echo held; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    gone = image.clean()
    holder.communicate()
    assert sorted(gone) == ["tmp-bookworm-bbbb", "trixie-cccc"]
    assert (image.cache_dir() / "tmp-trixie-aaaa").is_dir()


@pytest.mark.parametrize(
    ("text", "version", "accelerator"),
    [
        (
            "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\n",
            (7, 2, 22),
            "tcg,thread=single",
        ),
        (
            "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)\n",
            (10, 0, 2),
            "tcg,thread=multi",
        ),
        ("QEMU emulator version 11.1\n", (11, 1, 0), "tcg,thread=multi"),
    ],
)
def test_the_version_of_qemu_chooses_the_accelerator(
    text: str, version: tuple[int, int, int], accelerator: str
) -> None:
    assert qemu.parse_version(text) == version
    assert qemu.emulation(version) == accelerator


def test_a_qemu_without_a_version_is_an_error() -> None:
    with pytest.raises(LabError, match="does not print its version"):
        qemu.parse_version("segfault")


def test_an_old_qemu_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = qemu.Qemu("/usr/bin/qemu", (7, 2, 22))
    assert kvm.accelerator(old, fake_image(tmp_path), "tcg") == "tcg,thread=single"
    assert "QEMU 7.2.22 is older than 10" in capsys.readouterr().err


def test_whether_kvm_works_is_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tries: list[int] = []

    def try_kvm(*_: object) -> bool:
        tries.append(1)
        return True

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kvm, "_try_kvm", try_kvm)
    monkeypatch.setattr(os, "access", lambda *_: True)
    image.cache_dir().mkdir(parents=True)
    new = qemu.Qemu("/usr/bin/qemu", (10, 0, 2))
    fake = fake_image(tmp_path)
    assert kvm.kvm_works(new, fake)
    assert kvm.kvm_works(new, fake)
    assert len(tries) == 1
    assert kvm.kvm_works(qemu.Qemu("/usr/bin/qemu", (10, 1, 0)), fake)
    assert len(tries) == 2


def _launch(tmp_path: Path, options: machine.Options) -> list[str]:
    with ExitStack() as files, (tmp_path / "console").open("wb") as log:
        emulator = qemu.Qemu("qemu", (10, 0, 2))
        fake = fake_image(tmp_path)
        return machine.launch(
            emulator, "tcg,thread=multi", fake, options, {}, 9, log, files
        ).command


def test_disks_and_directories_reach_the_command_of_qemu(tmp_path: Path) -> None:
    disks = (disk.parse_disk("size=1G,write-iops=600"), disk.parse_disk("size=2G,cache=unsafe"))
    options = machine.Options(checkout=Path("/a,b"), disks=disks, share=tmp_path)
    command = _launch(tmp_path, options)
    drives = [word for word in command if "id=vd" in word]
    assert len(drives) == 2
    assert drives[0].endswith(",throttling.iops-write=600")
    assert drives[1].endswith("cache=unsafe")
    assert "virtio-blk-pci,drive=vdc,serial=vdc" in command
    shares = [word for word in command if word.startswith("local,")]
    assert len(shares) == 2
    assert all(word.endswith("readonly=on") for word in shares)
    assert "path=/a,,b," in shares[0]
    kernel = command[command.index("-append") + 1]
    assert "oops=panic" in kernel
    assert "tsc=reliable" in kernel
    assert "no_timer_check" in kernel
    assert "-no-reboot" in command


def test_more_cpus_than_present_can_be_reserved(tmp_path: Path) -> None:
    given = cli.parse(["run", "--cpus", "2", "--max-cpus", "64", "--", "true"])
    assert (given.cpus, given.max_cpus) == (2, 64)
    options = machine.Options(tmp_path, given.cpus, given.max_cpus)
    assert "-smp 2,maxcpus=64 -m 4096M" in " ".join(_launch(tmp_path, options))
    assert "-smp 4,maxcpus=4 " in " ".join(_launch(tmp_path, machine.Options(tmp_path, 4)))


def test_the_counter_of_instructions_reaches_qemu(tmp_path: Path) -> None:
    into = tmp_path / "counts,1"
    command = _launch(tmp_path, machine.Options(checkout=tmp_path, instructions=into))
    assert into.is_dir()
    assert command[command.index("-icount") + 1].startswith("shift=")
    plugin = command[command.index("-plugin") + 1]
    assert plugin.endswith("/counts,,1/blocks") and f"marks={tmp_path}/counts,,1/marks," in plugin


def test_counting_needs_a_compiler_and_a_newer_qemu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as files, pytest.raises(LabError, match=r"QEMU 9.0.4 cannot count"):
        instructions.arguments(qemu.Qemu("qemu", (9, 0, 4)), tmp_path, files)
    new = qemu.Qemu("qemu", (10, 0, 2))
    (tmp_path / "file").touch()
    with ExitStack() as files, pytest.raises(LabError, match=r"^--instructions .*/file: "):
        instructions.arguments(new, tmp_path / "file", files)
    monkeypatch.setattr(instructions, "find_program", lambda name: None)
    with ExitStack() as files, pytest.raises(LabError, match=r"^cc not found"):
        instructions.arguments(new, tmp_path, files)


def test_too_many_disks_are_refused(tmp_path: Path) -> None:
    options = machine.Options(checkout=tmp_path, disks=(disk.Disk(),) * 26)
    with pytest.raises(LabError, match="at most 25"):
        _launch(tmp_path, options)


def test_the_guest_gets_delays_and_options(tmp_path: Path) -> None:
    disks = (disk.Disk(), disk.parse_disk("flush-delay=20ms,read-delay=1ms"))
    config = machine.guest_config(
        fake_image(tmp_path), machine.Options(tmp_path, disks=disks, zfs=False)
    )
    assert config["delays"] == "vdc:1:0:20"
    assert config["zfs"] == "no"
    assert config["out"] == config["systemd"] == "no"
    systemd = machine.guest_config(fake_image(tmp_path), machine.Options(tmp_path, systemd=True))
    assert systemd["systemd"] == "yes"


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (SYSRQ, "guest kernel panic: sysrq triggered crash"),
        (
            OOPS,
            "guest kernel oops: BUG: kernel NULL pointer dereference, address: 08",
        ),
        (FREEBSD, "guest kernel panic: kdb_sysctl_panic"),
        (QUIET, None),
        (b"", None),
        (b"zfslab: modprobe zfs failed\r\n", "the guest did not start: modprobe zfs failed"),
        (
            b"[   99.1] VERIFY3(0 == err) failed (0 == 5)\n[   99.1] PANIC at zil.c:12:f()\n",
            "ZFS assertion failed in the guest: VERIFY3(0 == err) failed (0 == 5)",
        ),
    ],
)
def test_the_console_says_why_a_guest_failed(raw: bytes, found: str | None) -> None:
    assert console.diagnose(console.clean(raw)) == found


def test_console_tail_shows_the_oops_not_the_noise_after_it() -> None:
    lines = [f"early {n}" for n in range(100)] + console.clean(OOPS)
    lines += [f"late {n}" for n in range(500)]
    shown = console.tail(lines)
    assert any("NULL pointer" in line for line in shown)
    assert len(shown) <= 3 * console.TAIL_LINES
    assert console.tail([f"line {n}" for n in range(100)])[-1] == "line 99"


def test_text_of_the_console_is_harmless_on_a_terminal() -> None:
    assert console.clean(b"\x1bc\x1b[?7l\x1b[2Jok\x07\r\n\n\xff\n") == ["ok", "\ufffd"]


def _unpack(archive: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        numbers = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        size, length = numbers[6], numbers[11]
        name = archive[at + 110 : at + 110 + length - 1].decode()
        if name == "TRAILER!!!":
            return files
        at += (110 + length + 3) & ~3
        files[name] = archive[at : at + size]
        at += (size + 3) & ~3


def test_archives_have_parents_and_padding() -> None:
    archive = cpio.Archive()
    archive.file("a/b/c", b"12345", executable=True)
    archive.file("a/d", b"")
    data = archive.data()
    assert len(data) % 512 == 0
    assert _unpack(data) == {"a": b"", "a/b": b"", "a/b/c": b"12345", "a/d": b""}


def test_the_initrd_loads_dependencies_first(tmp_path: Path) -> None:
    modules = tmp_path / "usr/lib/modules/6.1"
    modules.mkdir(parents=True)
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/busybox").write_bytes(b"busybox")
    (modules / "modules.builtin").write_text("kernel/virtio_pci.ko\n")
    names = ["virtio_blk", "virtio_console", "ext4", "9p", "9pnet_virtio", "overlay"]
    for name in [*names, "jbd2", "9pnet", "netfs"]:
        (modules / f"{name}.ko.xz").write_bytes(lzma.compress(name.encode()))
    lines = [f"{name}.ko.xz:" for name in names if name not in ("ext4", "9p", "9pnet_virtio")]
    lines += ["ext4.ko.xz: jbd2.ko.xz", "jbd2.ko.xz:", "netfs.ko.xz:", "9pnet.ko.xz: netfs.ko.xz"]
    lines += ["9p.ko.xz: 9pnet.ko.xz netfs.ko.xz", "9pnet_virtio.ko.xz: 9pnet.ko.xz netfs.ko.xz"]
    (modules / "modules.dep").write_text("\n".join(lines) + "\n")
    files = _unpack(initrd.base(tmp_path, "6.1"))
    order = files["modules/order"].decode().split()
    assert order.index("netfs.ko") < order.index("9pnet.ko") < order.index("9p.ko")
    assert order.index("jbd2.ko") < order.index("ext4.ko")
    assert len(order) == len(set(order)) == 9
    assert files["modules/ext4.ko"] == b"ext4"


def test_the_initrd_has_what_a_run_needs() -> None:
    files = _unpack(initrd.per_run({"mode": "run", "x": "it's"}, {"argv": ["a b", "ü"]}))
    assert {"init", "zfslab/start.sh", "zfslab/agent.py"} < files.keys()
    assert files["zfslab/config"] == b"mode=run\nx='it'\"'\"'s'\n"
    assert json.loads(files["zfslab/command.json"]) == {"argv": ["a b", "ü"]}


def test_a_child_dies_with_its_parent() -> None:
    code = (
        "import subprocess, signal, os; from zfslab.process import die_with_parent\n"
        "p = subprocess.Popen(['sleep', '60'], preexec_fn=die_with_parent(signal.SIGKILL))\n"
        "print(p.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")},
    )
    assert result.returncode == -signal.SIGKILL
    _wait_until_dead(int(result.stdout))


def test_the_watcher_ends_a_group_without_its_parent() -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    watcher = process.ends_with_parent(child.pid)
    watcher.communicate("")
    assert child.wait(timeout=10) == -signal.SIGTERM


def test_frames_of_the_agent_match_the_session() -> None:
    from zfslab import session
    from zfslab.guest import agent

    assert agent.HEADER.format == session.HEADER.format
    assert struct.calcsize(agent.HEADER.format) == 5


def test_the_agent_sends_whole_frames() -> None:
    from zfslab.guest import agent

    reader, writer = os.pipe()
    agent.send(writer, b"O", b"abc")
    assert os.read(reader, 100) == b"O\0\0\0\3abc"
    os.close(reader)
    os.close(writer)


def _wait_until_dead(pid: int) -> None:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} is still alive")


def test_ctrl_c_of_a_script_is_left_to_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both get the signal; the lab needs time to clean up."""
    lab = tmp_path / "lab"
    lab.write_text(
        "#!/bin/sh\n"
        f"trap 'sleep 0.6; echo $* >{tmp_path}/cleaned; exit 130' INT\n"
        "kill -INT $PPID $$\n"
    )
    lab.chmod(0o755)
    monkeypatch.setattr(script, "LAB", lab)
    assert script.run_lab("--flavour", "trixie") == 130
    assert (tmp_path / "cleaned").read_text() == "run --flavour trixie\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_script_gets_lines_of_its_program_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one only comes when the first one was taken."""
    lab = tmp_path / "lab"
    lab.write_text(
        f"#!/bin/sh\necho one\nuntil [ -e {tmp_path}/taken ]; do sleep 0.05; done\n"
        "echo two; exit 3\n"
    )
    lab.chmod(0o755)
    monkeypatch.setattr(script, "LAB", lab)
    lines: list[str] = []

    def take(line: str) -> None:
        lines.append(line)
        (tmp_path / "taken").touch()

    assert script.run_lab(line=take) == 3
    assert lines == ["one\n", "two\n"]
