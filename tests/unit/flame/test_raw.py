"""Output of dtrace and bpftrace, read as stacks: real samples, generated ones, and any text."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import DATA

from zfstrace import flame
from zfstrace.flame import FlameError, raw, raw_bpftrace, raw_dtrace
from zfstrace.recording import NO_STACK
from zfstrace.stacks import fold, label_frames
from zfstune import cli

SAMPLES = DATA / "flame/raw"

NAMES = st.from_regex(r"z[a-z_]{0,12}(\.isra\.0)?", fullmatch=True)
MODULES = st.sampled_from(["kernel", "vmlinux", "zfs", "zfs.ko", "spl", "libc.so.6"])
OFFSETS = st.integers(0, 1 << 12)
WEIGHTS = st.integers(1, (1 << 53) - 1)
COMMS = st.from_regex(r"[a-z][a-z/:_-]{0,13}[a-z]", fullmatch=True)
# leaf first
DTRACE_FRAMES = st.lists(st.tuples(MODULES, NAMES, OFFSETS), min_size=1, max_size=8)
FRAMES = st.lists(st.tuples(NAMES, OFFSETS), min_size=1, max_size=8)

# What lines of these texts are made of, in any order.
PIECES = st.sampled_from(
    [
        "              vmlinux`schedule+0x27",
        "              0xffffffffc02a7c09",
        "  python3      12   ",
        "                1",
        "                -7",
        "  dd           5",
        "",
        "Off CPU, ns:",
        "On CPU, samples at 97 Hz:",
        "  pool tank",
        "  comm fio",
        "3 fsyncs of 9 ns, off CPU 5 ns, lost: 1, errors: 2",
        "@[",
        "@us[fio, ",
        "        schedule+39",
        ", ",
        ", fio]: 12",
        "]: 5",
        "]:",
        "[2, 4)    1 |@@@|",
        "@total: 5",
        "a;b 5",
    ]
)
LINES = st.lists(st.one_of(PIECES, st.text(max_size=30)), max_size=30)


def parse(text: str, **options: str) -> flame.Source:
    """As from standard input."""

    class Stdin:
        buffer = io.BytesIO(text.encode(errors="replace"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", Stdin)
        return flame.read("-", **options)


def dtrace_name(module: str, function: str) -> str:
    plain = module in ("kernel", "vmlinux")
    return function if plain else f"{function} [{module.removesuffix('.ko')}]"


def dtrace_frames(frames: Iterable[tuple[str, str, int]]) -> list[str]:
    """As stack() is printed; the first instruction of a function has no offset."""
    return [
        f"{'':14}{module}`{function}{f'+{offset:#x}' if offset else ''}"
        for module, function, offset in frames
    ]


# --- any text


@given(LINES, st.sampled_from([None, "off-cpu", "on-cpu", "wakeup"]))
def test_any_text_is_read_or_an_error_of_one_line(lines: list[str], kind: str | None) -> None:
    try:
        found = parse("\n".join(lines), **({"kind": kind} if kind else {}))
    except FlameError as error:
        assert re.fullmatch(r"[^\n]*standard input[ ,:][^\n]+", str(error))
    else:
        assert found.stacks.total > 0
        assert all(re.fullmatch(r"[^\n]+", note) for note in found.notes)


@given(LINES)
def test_each_reader_takes_any_text(lines: list[str]) -> None:
    for read in (raw_dtrace.parse, raw_bpftrace.parse, raw_dtrace.read_fsyncstack):
        try:
            read(lines, "x")
        except FlameError as error:
            assert re.match(r"x, line \d+: ", str(error))


@given(LINES)
def test_all_lines_are_there_after_the_form_is_known(lines: list[str]) -> None:
    form, again = raw.form(lines)
    assert form in ("dtrace", "bpftrace", "folded")
    assert list(again) == lines


@pytest.mark.parametrize(
    "content",
    [b"\x7fELF\x02\x00\x00\n\x01zfs`a\n\x02\n", "@[\n    a+1\n]: 5\n".encode("utf-16")],
    ids=["program", "utf-16"],
)
def test_bytes_that_are_not_text_are_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(content)
    with pytest.raises(FlameError, match=r"cannot read .*: .* no stacks of dtrace or bpftrace"):
        flame.read(str(path))


# --- what is printed is read back


@given(st.lists(st.tuples(st.none() | COMMS, DTRACE_FRAMES, WEIGHTS), min_size=1, max_size=8))
def test_generated_output_of_dtrace_is_read_back(
    records: list[tuple[str | None, list[tuple[str, str, int]], int]],
) -> None:
    """@[stack()] and @[execname, stack()], as printa() has them."""
    lines, expected = ["Tracing", ""], Counter[str]()
    for comm, frames, weight in records:
        lines += ["" if comm is None else f"  {comm:<50}", *dtrace_frames(frames), f"{weight:17d}"]
        names = [dtrace_name(module, function) for module, function, _ in reversed(frames)]
        expected[fold([*([comm] if comm else []), *names])] += weight
    assert parse("\n".join(lines), unit="ns").stacks.counts == expected


@given(st.lists(st.tuples(COMMS, FRAMES, WEIGHTS), min_size=1, max_size=8), st.booleans())
def test_generated_output_of_bpftrace_is_read_back(
    records: list[tuple[str, list[tuple[str, int]], int]], first: bool
) -> None:
    """@[kstack, comm] and @[comm, kstack]."""
    lines, expected = ["Attaching 1 probe...", "", ""], Counter[str]()
    for comm, frames, weight in records:
        lines += [f"@[{comm}, " if first else "@["]
        lines += [f"        {function}+{offset}" for function, offset in frames]
        lines += [f"]: {weight}" if first else f", {comm}]: {weight}"]
        expected[fold([comm, *(function for function, _ in reversed(frames))])] += weight
    assert parse("\n".join(lines), unit="ns").stacks.counts == expected


FSYNCS = st.lists(
    st.tuples(
        st.sampled_from(["tank", "my pool", "12", "[unknown]", "pool comm"]),
        st.sampled_from(["fio", "CPU 0/KVM", "7", "zfs`x", "postgres: a", ""]),
        DTRACE_FRAMES,
        WEIGHTS,
    ),
    max_size=6,
)


def fsyncstack(off: Iterable[tuple[str, str, list[tuple[str, str, int]], int]]) -> list[str]:
    """What fsyncstack.d prints, of stacks off CPU, one that woke, and one on CPU."""
    lines, total = ["Tracing threads in fsync(2)... Hit Ctrl-C to end.", "", "Off CPU, ns:"], 0
    for pool, comm, frames, weight in off:
        lines += ["", f"  pool {pool}", "  stage flush", f"  comm {comm}"]
        lines += [*dtrace_frames(frames), f"{weight:16d}"]
        total += weight
    lines += ["", "Until woken, ns:", "", "  pool tank", "  stage flush", "  comm fio"]
    lines += ["  waker kernel", "              kernel`cv_broadcastpri+0x4c"]
    lines += ["              zfs`zil_lwb_flush_vdevs_done+0x9", f"{5:16d}"]
    lines += ["", "On CPU, samples at 97 Hz:", "", "  pool tank", "  stage issue", "  comm fio"]
    lines += ["              zfs`zil_commit+0x9", f"{7:16d}", ""]
    return [
        *lines,
        "Not in the stacks: 0 ns before the pool was known, 2 threads still asleep",
        f"23 fsyncs of 99 ns, off CPU {total} ns, lost: 0, errors: 0",
    ]


@given(FSYNCS)
def test_generated_output_of_fsyncstack_is_read_back(
    off: list[tuple[str, str, list[tuple[str, str, int]], int]],
) -> None:
    """Also without blank lines and indentation, as a program may have taken them."""
    expected = Counter[str]()
    for pool, comm, frames, weight in off:
        names: list[str] = [dtrace_name(module, name) for module, name, _ in reversed(frames)]
        expected[fold([pool, "flush", comm, *names])] += weight
    lines = fsyncstack(off)
    for text in (lines, [line.strip() for line in lines if line.strip()]):
        found = raw_dtrace.read_fsyncstack(text, "x")
        assert found.counts == {
            "off-cpu": expected,
            "wakeup": {
                "tank;flush;fio;--;cv_broadcastpri;zil_lwb_flush_vdevs_done [zfs];kernel": 5
            },
            "on-cpu": {"tank;issue;fio;zil_commit [zfs]": 7},
        }
        assert found.totals == raw_dtrace.Totals(23, 99, sum(expected.values()), 0, 0, 0, 2)


def test_the_part_of_fsyncstack_is_chosen() -> None:
    text = "\n".join(fsyncstack([("tank", "fio", [("zfs", "zil_commit", 9)], 5)]))
    off = parse(text)
    assert (off.stacks.kind, off.stacks.unit, off.stacks.total) == ("off-cpu", "ns", 5)
    assert off.notes == [
        "left out the wakeup and on-cpu stacks of standard input: --kind selects them"
    ]
    assert label_frames(off.stacks.counts) == 3
    on = parse(text, kind="on-cpu")
    assert (on.stacks.kind, on.stacks.unit, on.stacks.total) == ("on-cpu", "samples", 7)
    wakeup = parse(text, kind="wakeup")
    assert (wakeup.stacks.kind, wakeup.stacks.unit, wakeup.stacks.total) == ("wakeup", "ns", 5)
    assert label_frames(wakeup.stacks.counts) == 3
    with pytest.raises(FlameError, match="no other stacks") as caught:
        parse(text, kind="other")
    assert caught.value.hint == "use --kind off-cpu, wakeup or on-cpu"
    with pytest.raises(FlameError, match="it says that it counts ns") as caught:
        parse(text, unit="us")
    assert caught.value.hint == "leave out --unit us"


def test_losses_of_fsyncstack_become_notes() -> None:
    lines = fsyncstack([("tank", "fio", [("zfs", "zil_commit", 9)], 5)])
    (note,) = parse("\n".join(lines[: lines.index("Until woken, ns:")])).notes
    assert "ends without the last line of fsyncstack.d" in note
    last = [
        "Not in the stacks: 4 ns before the pool was known, 0 threads still asleep",
        "3 fsyncs of 9 ns, off CPU 6 ns, lost: 1, errors: 2",
    ]
    notes = parse("\n".join([*lines[:-2], *last])).notes
    assert "standard input reports: lost 1, errors 2" in notes
    assert "the stacks of standard input lack 1 of the 6 ns that it reports" in notes
    assert "standard input has no stacks for 4 ns before the pool was known" in notes


FLUSH_OF_FIO = ("  pool tank", "  stage flush", "  comm fio")


def test_a_stack_of_fsyncstack_may_be_empty() -> None:
    lines = ["Off CPU, ns:", "", *FLUSH_OF_FIO, "", "   5", "", "  6"]
    found = raw_dtrace.read_fsyncstack(lines, "x").counts["off-cpu"]
    assert found == {f"tank;flush;fio;{NO_STACK}": 5}
    # one without its keys
    assert raw_dtrace.parse([*lines, "  zfs`a", "  7"], "x").left_out == 2


def test_probes_of_dtrace_are_taken_out_of_fsyncstack() -> None:
    """They call the function a second time, from inside of it."""
    frames = ["zfs`zil_commit+0x9", "zfs`zpl_fsync+0x6b", "0xffffffffc02a7c09", "zfs`zpl_fsync+0x9"]
    lines = ["Off CPU, ns:", "", *FLUSH_OF_FIO, *frames, "  5"]
    found = raw_dtrace.read_fsyncstack(lines, "x").counts["off-cpu"]
    assert found == {"tank;flush;fio;zpl_fsync [zfs];zil_commit [zfs]": 5}


# --- the forms of each


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("zfs`zil_commit+0x9", "zil_commit [zfs]"),
        ("zfs.ko`zil_commit+0x9", "zil_commit [zfs]"),
        ("kernel`fork_exit+0x82", "fork_exit"),
        ("vmlinux`schedule", "schedule"),
        ("libc.so.7`__sys_fsync+0xa", "__sys_fsync [libc.so.7]"),
        (
            "a.out`std::map<int, char>::at(int const&)+0x4",
            "std::map<int, char>::at(int const&) [a.out]",
        ),
        ("dd`0x55d3c2a1b0c4", "[unknown] [dd]"),
        ("0xffffffffc02a7c09", "[unknown]"),
        ("0", "[unknown]"),
        ("schedule+39", "schedule"),
        ("operator++(int)", "operator++(int)"),
        ("mutex_lock.constprop.0+0x1", "mutex_lock.constprop.0"),
    ],
)
def test_offsets_and_modules_of_frames_are_normalized(frame: str, expected: str) -> None:
    assert raw.name(frame) == expected


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        # @[stack(), execname, pid]: keys after the stack are in the line of the weight
        (
            "\n  vmlinux`b+0x1\n  zfs`a+0x1\n  dd          409           5\n",
            {"dd;409;a [zfs];b": 5},
        ),
        # @[execname, pid, stack()]
        ("  z_wr iss          7   \n  zfs`a+0x1\n   5\n", {"z_wr iss;7;a [zfs]": 5}),
        # @[stack(), ustack()] and @[ustack(), stack()]: the kernel's is the leaf
        ("\n  vmlinux`b\n\n  libc`u+0x1\n  5\n", {"u [libc];b": 5}),
        ("\n  libc`u+0x1\n\n  vmlinux`b\n  5\n", {"u [libc];b": 5}),
        # @[execname, stack(), ustack()] with an empty stack(); a table, then @[stack()]
        ("  sh          \n\n  libc`u+0x1\n  5\n", {"sh;u [libc]": 5}),
        ("  7  python3     \n\n  libc`u+0x1\n  5\n", {"7;python3;u [libc]": 5}),
        ("  7  sh    \n  vmlinux`b\n\n  libc`u+0x1\n  5\n", {"7;sh;u [libc];b": 5}),
        ("  sh         7\n\n  libc`u+0x1\n  5\n", {"u [libc]": 5}),
        # an empty user stack after the kernel's, and before it
        ("\n  vmlinux`b\n\n  5\n\n\n  libc`u+0x1\n  6\n", {"b": 5, "u [libc]": 6}),
        # equal but for the offset
        ("\n  zfs`a+0x1\n  5\n\n  zfs`a+0x2\n  6\n", {"a [zfs]": 11}),
        # no weight, in the middle of others
        ("\n  zfs`a\n  0\n\n  zfs`b\n  -5\n\n  zfs`c\n  1\n", {"c [zfs]": 1}),
    ],
)
def test_each_form_of_dtrace_is_read(text: str, counts: dict[str, int]) -> None:
    assert raw_dtrace.parse(text.splitlines(), "x").counts == counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("@[\n    b+1\n    a+2\n]: 5\n", {"a;b": 5}),
        ("@x[\n        b+1\n, 409, sh]: 5\n", {"409;sh;b": 5}),
        ("@[fio, 7, \n    b+1\n, 9]: 5\n", {"fio;7;9;b": 5}),
        # @[kstack, ustack, comm]; the one or the other may be empty
        ("@[\n    b+1\n, \n    u+1\n, sh]: 5\n", {"sh;u;b": 5}),
        ("@[\n, \n    0x5623\n    0\n, sh]: 5\n", {"sh;[unknown];[unknown]": 5}),
        # @[ustack, kstack]
        ("@[\n    u+1\n, \n    b+1\n    entry_SYSCALL_64+2\n]: 5\n", {"u;entry_SYSCALL_64;b": 5}),
        ("@[\n, sh]: 5\n", {f"sh;{NO_STACK}": 5}),
        # so bpftrace 0.17 has empty stacks; in a map without other stacks it may be anything
        ("@[, sh]: 5\n@[\n    b+1\n, fio]: 6\n", {f"sh;{NO_STACK}": 5, "fio;b": 6}),
        ("@[sh, ]: 5\n@[sh, \n    b+1\n]: 6\n", {f"sh;{NO_STACK}": 5, "sh;b": 6}),
        ("@[]: 5\n@x[]: 7\n@[\n    b+1\n]: 6\n", {NO_STACK: 5, "b": 6}),
        # kstack(perf), ustack(perf)
        (
            "@[\n\tffffffffb69c44a6 b+262\n\t7f12 u+1 (/usr/lib/libc.so.6)\n]: 5\n",
            {"u [libc.so.6];b": 5},
        ),
        ("@[\n\t7f12 0x7f12 ([unknown])\n]: 5\n", {"[unknown]": 5}),
        ("@[\nffffffff99311601\nffffffff989c44a6\n]: 5\n", {"[unknown];[unknown]": 5}),
        # values that are no weight, and a histogram of a stack
        ("@s[\n    b+1\n]: count 1, average 2, total 2\n@[\n    a+1\n]: 5\n", {"a": 5}),
        ("@h[\n    b+1\n]: \n[2, 4)    1 |@@|\n\n@[\n    a+1\n]: 5\n", {"a": 5}),
        ("@[\n    b+1\n]: 0\n@[\n    a+1\n]: 5\n", {"a": 5}),
        # two maps
        ("@[\n    b+1\n]: 5\n@x[\n    b+1\n]: 6\n", {"@;b": 5, "@x;b": 6}),
    ],
)
def test_each_form_of_bpftrace_is_read(text: str, counts: dict[str, int]) -> None:
    assert raw_bpftrace.parse(text.splitlines(), "x").counts == counts


def test_a_map_gives_its_unit() -> None:
    found = parse("@off_cpu_us[\n    schedule+1\n]: 5\n")
    assert (found.stacks.unit, found.stacks.total, found.notes) == ("ns", 5000, [])
    assert parse("@wait_ms[\n    b+1\n]: 5\n").stacks.total == 5_000_000
    with pytest.raises(FlameError, match="it says that it counts us"):
        parse("@off_cpu_us[\n    schedule+1\n]: 5\n", unit="ns")
    found = parse("@[\n    schedule+1\n]: 5\n")
    assert found.notes[-1].startswith("standard input does not say its unit")


def test_what_is_left_out_is_counted() -> None:
    text = "@total: 5\n@by[dd]: 7\n@h: \n[2, 4)   1 |@@|\n[4, 8)   0 |  |\n\n@[\n    b+1\n]: 5\nx\n"
    (note,) = parse(text).notes
    assert note == (
        "left out 4 other values and lines of standard input: no stack with a weight, "
        "first in line 1"
    )
    # @[execname] = count(), @ = count(), and a heading
    (note,) = parse("\n  dd      5\n\n      7\nHeading\n\n  zfs`a\n   5\n").notes
    assert note.startswith("left out 3 other values and lines")


def test_repeated_stacks_are_a_note() -> None:
    (note,) = parse("@[\n    b+1\n]: 5\n\n@[\n    b+1\n]: 6\n").notes
    assert note.startswith("1 stacks are in standard input more than once")
    (note,) = parse("\n  zfs`b\n  5\n\n  zfs`b\n  6\n").notes
    assert note.startswith("1 stacks are in standard input more than once")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "\n  zfs`a+0x1\n  zfs`b+0x1\n",
            "line 2: the text ends instead of the weight of the stack that begins",
        ),
        (
            "\n  zfs`a+0x1\n\nnext\n",
            "line 4: 'next' instead of the weight of the stack that begins in line 2",
        ),
        # stack() without an aggregation
        ("  0  12  f:entry \n  zfs`a+0x1\n\n  0  12  g:entry \n", "line 4: '0 12 g:entry' instead"),
        ("\n  zfs`a\n   99999999999999999999\n", "instead of the weight"),
        ("@[\n    a+1\n", "line 1: the text ends before `]:`, in the stack that begins in line 1"),
        (
            "@[\n    a+1\n@[\n",
            "line 3: '@[' is neither a frame nor a key, in the stack that begins in line 1",
        ),
    ],
)
def test_broken_text_is_an_error_with_its_line(text: str, message: str) -> None:
    with pytest.raises(FlameError) as caught:
        parse(text)
    assert str(caught.value).startswith("standard input, line ")
    assert message in str(caught.value)


# --- the command


def test_convert_takes_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.out", "a", "a.folded"):
        path = tmp_path / name
        path.write_text("@us[\n    schedule+1\n, fio]: 5\n")
        assert cli.main(["flame", "convert", str(path), "-o", "-"]) == 0
        assert capsys.readouterr().out == "fio;schedule 5\n"
    path.write_text("@[\n")
    assert cli.main(["flame", "convert", str(path), "-o", "-"]) == 2
    assert re.fullmatch(
        r"zfstune: error: [^\n]*a\.folded, line 1: [^\n]+\nhint: [^\n]+\n", capsys.readouterr().err
    )


# --- real samples (tests/data/flame/raw/README.md)


@pytest.mark.parametrize("version", ["0.17", "0.23"])
def test_a_sample_of_fsyncoffcpu_is_read(version: str) -> None:
    text = (SAMPLES / f"fsyncoffcpu-{version}.out").read_text()
    found = flame.read(str(SAMPLES / f"fsyncoffcpu-{version}.out"))
    total = re.search(r"@off_cpu_total_us: (\d+)", text)
    assert total
    assert (found.stacks.kind, found.stacks.unit) == ("off-cpu", "ns")
    assert found.stacks.total == int(total[1]) * 1000
    assert all(stack.startswith("entry_SYSCALL_64") for stack in found.stacks.counts)
    (note,) = found.notes
    assert "left out 4 other values" in note


@pytest.mark.parametrize("version", ["0.17", "0.23"])
def test_a_sample_of_several_maps_is_read(version: str) -> None:
    """Each has a weight for each of the samples, also where the stack is empty."""
    path = SAMPLES / f"bpftrace-{version}.out"
    total = re.search(r"@total: (\d+)", path.read_text())
    assert total
    sums = Counter[str]()
    for stack, weight in flame.read(str(path)).stacks.counts.items():
        sums[stack.partition(";")[0]] += weight
    assert {"@", "@user", "@both"} <= set(sums)
    sums["@perf"] //= 3  # sum(3)
    assert set(sums.values()) - {0} == {int(total[1])}


@pytest.mark.parametrize(
    ("name", "fsync"),
    [
        ("fsyncstack.out", "zpl_fsync [zfs];zfs_fsync [zfs];"),
        ("fsyncstack-freebsd.out", "kern_fsync;VOP_FSYNC_APV;"),
    ],
)
def test_a_sample_of_fsyncstack_is_read(name: str, fsync: str) -> None:
    path = SAMPLES / name
    found = raw_dtrace.read_fsyncstack(path.read_text().splitlines(), "x")
    assert found.totals
    assert (found.totals.fsyncs, found.totals.lost, found.totals.errors) == (23, 0, 0)
    assert sum(found.counts["off-cpu"].values()) == found.totals.off_ns
    for kind in ("off-cpu", "on-cpu"):
        for stack in found.counts[kind]:
            assert re.match(r"slow;(flush|issue|log_write|wakeup|other);python3[.\d]*;", stack)
            assert fsync in stack
    flush = sum(n for stack, n in found.counts["off-cpu"].items() if ";flush;" in stack)
    assert flush > 0.8 * found.totals.off_ns
    assert any(";zil_lwb_flush_vdevs_done [zfs];" in stack for stack in found.counts["wakeup"])
    for kind, counts in found.counts.items():
        assert flame.read(str(path), kind=kind).stacks.counts == counts


def test_a_sample_of_dtrace_by_comm_is_read() -> None:
    """@[execname, stack()]: all weights are there, each below the program."""
    path = SAMPLES / "dtrace-comm.out"
    text = path.read_text()
    found = flame.read(str(path), kind="on-cpu")
    assert found.stacks.total == sum(map(int, re.findall(r"^ +(\d+)$", text, re.MULTILINE)))
    assert all(stack.startswith("python3;") for stack in found.stacks.counts)
    assert any(";zil_commit_impl [zfs]" in stack for stack in found.stacks.counts)


def test_a_sample_of_several_aggregations_is_read() -> None:
    found = flame.read(str(SAMPLES / "dtrace-several.out"))
    assert any("stacks with different keys" in note for note in found.notes)
    assert any("other values and lines" in note for note in found.notes)
    comms = [stack for stack in found.stacks.counts if stack.startswith("python3;")]
    assert comms
    pids = {s: n for s, n in found.stacks.counts.items() if re.match(r"\d+;python3;", s)}
    assert sum(pids.values()) == 48  # @, of the same samples
    # a user stack below one of the kernel
    assert any("_PyEval_EvalFrameDefault [python3.13]" in stack for stack in pids)
    assert any("[unknown] [libc.so.6];poll_freewait;" in stack for stack in pids)


def test_a_sample_of_bpftrace_by_comm_is_read() -> None:
    path = SAMPLES / "bpftrace-comm.out"
    found = flame.read(str(path), kind="on-cpu")
    assert found.stacks.total == sum(map(int, re.findall(r"\]: (\d+)$", path.read_text(), re.M)))
    assert all(stack.startswith("python3;") for stack in found.stacks.counts)
    assert f"python3;{NO_STACK}" in found.stacks.counts  # it ran in user space
    assert any(";zfs_fsync;" in stack for stack in found.stacks.counts)
    assert found.notes == []
