"""Stacks in files: what is written is read back, and errors are one line."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zfstrace import flame
from zfstrace.flame import FlameError, WriteFailed, folded, guess, human, pprof, speedscope, wire
from zfstrace.stacks import KINDS, UNITS, Stacks, fold, label_frames, unfold

FRAMES = st.lists(st.text(max_size=12), min_size=1, max_size=8)
STACKS = st.builds(
    Stacks,
    kind=st.sampled_from(KINDS),
    unit=st.sampled_from(UNITS),
    title=st.text(st.characters(codec="utf-8"), max_size=20),
    counts=st.dictionaries(FRAMES.map(fold), st.integers(1, (1 << 53) - 1), max_size=20),
)


@given(FRAMES)
def test_a_folded_stack_has_its_frames(frames: list[str]) -> None:
    stack = fold(frames)
    assert len(unfold(stack)) == len(frames)
    assert stack.isprintable()
    assert fold(unfold(stack)) == stack


def test_what_would_break_the_form_is_replaced() -> None:
    assert fold(["a;b", "c\nd", "", " e  f ", "g\x1b", "zil_commit [zfs]"]) == (
        "a:b;c d;[unknown];e f;g?;zil_commit [zfs]"
    )


@pytest.mark.parametrize(("kind", "unit"), [("sleep", "ns"), ("off-cpu", "us")])
def test_unknown_kinds_and_units_are_refused(kind: str, unit: str) -> None:
    with pytest.raises(ValueError, match="no stacks of kind"):
        Stacks(kind, unit, "", {})


@given(STACKS)
def test_folded_text_is_read_back(stacks: Stacks) -> None:
    parsed = folded.parse(folded.dump(stacks))
    assert parsed.counts == stacks.counts
    assert (parsed.good, parsed.bad) == (len(stacks.counts), 0)


@given(STACKS)
def test_pprof_is_read_back(stacks: Stacks) -> None:
    data = pprof.dump(stacks)
    assert data == pprof.dump(stacks)
    assert pprof.load(data, "x") == stacks
    assert pprof.load(gzip.decompress(data), "x") == stacks


@given(STACKS)
def test_speedscope_is_read_back(stacks: Stacks) -> None:
    text = "".join(speedscope.dump(stacks))
    assert speedscope.load(text, "x") == stacks
    profile = json.loads(text)["profiles"][0]
    assert sum(profile["weights"]) == profile["endValue"] == stacks.total


@pytest.mark.parametrize(
    ("line", "stack", "count"),
    [
        ("a;b 5", "a;b", 5),
        ("a;b\t5\r\n", "a;b", 5),
        ("java;Ljava/lang/Thread;::run;read 17 ", "java;Ljava/lang/Thread;::run;read", 17),
        ("CPU 0/KVM;worker 7 12", "CPU 0/KVM;worker 7", 12),
        ("a 2.5", "a", 3),
        ("a 7.", "a", 7),
        ("-;[unknown];_[k] 1", "-;[unknown];_[k]", 1),
    ],
)
def test_lines_of_other_tools_are_read(line: str, stack: str, count: int) -> None:
    assert folded.parse([line]) == folded.Parsed({stack: count}, 1, 0, 0)


def test_decimals_are_rounded_after_the_addition() -> None:
    assert folded.parse(["a 0.4", "a 0.4", "a 0.4", "b 0.4"]).counts == {"a": 1}
    assert folded.parse(["a 0.0004"], scale=1000).counts == {}
    assert folded.parse(["a 0.25", "b 3"], scale=1000).counts == {"a": 250, "b": 3000}


def test_a_byte_order_mark_is_no_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.folded"
    path.write_text("comm;zil_commit 3\n", encoding="utf-8-sig")
    assert set(flame.read(str(path)).stacks.counts) == {"comm;zil_commit"}


def test_bad_lines_are_counted() -> None:
    lines = ["a;b 1", "", "# comment", "no count", "5", "c -3", f"d {'9' * 30}", "e ٣", "f 0"]
    assert folded.parse(lines) == folded.Parsed({"a;b": 1}, 2, 5, 4)


@given(st.lists(st.text(max_size=30)))
def test_any_text_is_parsed(lines: list[str]) -> None:
    parsed = folded.parse(lines)
    assert parsed.good + parsed.bad <= len(lines)
    assert all(count > 0 for count in parsed.counts.values())


@given(st.binary(max_size=200))
def test_any_bytes_are_a_profile_or_an_error(data: bytes) -> None:
    for content in (data, gzip.compress(data)):
        try:
            pprof.load(content, "x")
        except FlameError as error:
            assert str(error).startswith("x is not a pprof profile: ")


@given(STACKS, st.data())
def test_a_damaged_profile_is_no_crash(stacks: Stacks, data: st.DataObject) -> None:
    content = bytearray(gzip.decompress(pprof.dump(stacks)))
    for _ in range(3):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        pprof.load(bytes(content), "x")
    except FlameError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"profiles": 5}',
        '{"profiles": []}',
        '{"profiles": [{"type": "evented"}]}',
        '{"profiles": [{"type": "sampled", "unit": "none", "samples": [[0]], "weights": [1]}],'
        ' "shared": {"frames": []}}',
        '{"profiles": [{"type": "sampled", "unit": "none", "samples": [[0]], "weights": []}],'
        ' "shared": {"frames": [{"name": "a"}]}}',
        '{"profiles": [{"type": "sampled", "unit": "none", "samples": [[-1]], "weights": [1]}],'
        ' "shared": {"frames": [{"name": "a"}]}}',
        '{"profiles": [{"type": "sampled", "unit": "none", "samples": [[0]], "weights": [NaN]}],'
        ' "shared": {"frames": [{"name": "a"}]}}',
        '{"profiles": [{"type": "sampled", "unit": [], "samples": [], "weights": []}]}',
        "[" * 100_000,
    ],
)
def test_what_is_not_speedscope_is_an_error(text: str) -> None:
    with pytest.raises(FlameError, match=r"^x is not a speedscope file: |^cannot read x: "):
        speedscope.load(text, "x")


def test_units_of_other_tools_are_converted() -> None:
    text = """{"shared": {"frames": [{"name": "a"}, {"name": "b;c"}]}, "profiles": [
        {"type": "sampled", "unit": "milliseconds", "samples": [[0], [0, 1]], "weights": [1, 0.5]},
        {"type": "sampled", "unit": "milliseconds", "samples": [[0]], "weights": [2]},
        {"type": "evented", "unit": "none"}]}"""
    found = speedscope.load(text, "x")
    assert (found.unit, found.counts) == ("ns", {"a": 3_000_000, "a;b:c": 500_000})


def test_inlined_functions_become_frames() -> None:
    # a location of two lines: inner was inlined into outer
    line = [wire.block(4, wire.number(1, number)) for number in (1, 2)]
    names = ["", "cpu", "microseconds", "inner", "outer"]
    data = b"".join(
        [
            wire.block(1, wire.number(1, 1) + wire.number(2, 2)),
            wire.block(2, wire.number(1, 7) + wire.number(2, 4)),
            wire.block(4, wire.number(1, 7) + line[0] + line[1]),
            wire.block(5, wire.number(1, 1) + wire.number(2, 3)),
            wire.block(5, wire.number(1, 2) + wire.number(2, 4)),
            *(wire.block(6, name.encode()) for name in names),
        ]
    )
    found = pprof.load(data, "x")
    assert (found.unit, found.kind, found.counts) == ("ns", "other", {"outer;inner": 4000})


def test_a_list_of_no_comments_is_no_title() -> None:
    data = b"".join(
        [
            wire.block(1, wire.number(1, 1) + wire.number(2, 2)),
            wire.block(13, b""),
            *(wire.block(6, name.encode()) for name in ("", "cpu", "count")),
        ]
    )
    assert pprof.load(data, "x").title == ""


def test_a_weight_too_large_for_pprof_is_an_error() -> None:
    with pytest.raises(FlameError, match="63 bits"):
        pprof.dump(Stacks("other", "ns", "", {"a": 1 << 63}))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_on_the_wire_are_read_back(value: int) -> None:
    [(field, found)] = wire.fields(wire.number(9, value))
    assert field == 9
    assert isinstance(found, int)
    assert wire.signed(found) == value


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("a.png", "unknown output format: .*a.png'; end the name in .folded"),
        ("a.json", "unknown output format"),
        ("", "unknown output format: ''"),
        (".svg", "unknown output format"),
        ("nowhere/a.svg", "no directory .*nowhere; create it"),
        ("taken.svg", "not a regular file; choose another name"),
    ],
)
def test_impossible_outputs_are_refused(path: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(FlameError) as caught:
        flame.check_output(str(tmp_path / path) if path else path)
    assert re.search(error, caught.value.in_one_line())


def test_the_name_chooses_the_format(tmp_path: Path) -> None:
    names = ("a.folded", "a.txt", "a.svg", "a.speedscope.json", "a.pb.gz")
    found = [flame.check_output(str(tmp_path / name)) for name in names]
    assert found == ["folded", "folded", "svg", "speedscope", "pprof"]
    assert flame.check_output("-") == "folded"


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.folded"
    path.write_text("old 1\n")

    def pieces() -> list[str]:
        raise OSError(28, "No space left on device")

    class Failing:
        def __iter__(self) -> object:
            yield "new 1\n"
            pieces()

    with pytest.raises(WriteFailed, match=r"cannot write .*: No space left on device") as caught:
        flame.save(str(path), Failing())  # type: ignore[arg-type]
    assert caught.value.hint.startswith("free space")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.folded"]
    assert path.read_text() == "old 1\n"
    flame.write(Stacks("other", "samples", "", {"new": 1}), str(path))
    assert path.read_text() == "new 1\n"


def test_a_link_is_replaced_and_the_umask_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "b.folded", tmp_path / "a.folded"
    target.write_text("old 1\n")
    link.symlink_to(target)
    before = os.umask(0o027)
    try:
        flame.write(Stacks("other", "samples", "", {"new": 1}), str(link))
    finally:
        os.umask(before)
    assert target.read_text() == "old 1\n"
    assert not link.is_symlink()
    assert link.read_text() == "new 1\n"
    assert link.stat().st_mode & 0o777 == 0o640


def read_text(text: str, tmp_path: Path, **options: str) -> flame.Source:
    path = tmp_path / "a.folded"
    path.write_text(text)
    return flame.read(str(path), **options)


def test_kind_and_unit_of_folded_text_are_guessed(tmp_path: Path) -> None:
    ours = read_text("tank;flush;fio;zil_commit [zfs];schedule;__schedule 5\n", tmp_path)
    assert (ours.stacks.kind, ours.stacks.unit, ours.notes) == ("off-cpu", "ns", [])
    assert ours.stacks.title == "a"
    bcc = read_text("fio;entry;schedule;finish_task_switch.isra.0 5\n", tmp_path)
    assert (bcc.stacks.kind, bcc.stacks.unit) == ("off-cpu", "samples")
    assert "add --unit us or ns" in bcc.notes[0]
    told = read_text("fio;entry;schedule 5\n", tmp_path, unit="us", kind="wakeup")
    assert (told.stacks.kind, told.stacks.unit, told.notes) == ("wakeup", "ns", [])
    assert told.stacks.counts == {"fio;entry;schedule": 5000}
    waker = read_text("fio;entry;--;irq;swapper/0 5\n", tmp_path)
    assert waker.stacks.kind == "wakeup"
    cpu = read_text("fio;entry;crc 5\n", tmp_path)
    assert (cpu.stacks.kind, cpu.stacks.unit, cpu.notes) == ("other", "samples", [])


def test_notes_are_one_line_each(tmp_path: Path) -> None:
    found = read_text("a;b 1\nnothing\nc 2\n", tmp_path)
    assert found.notes == [
        f"left out 1 of 3 lines of {tmp_path}/a.folded: no stack with a count, first in line 2"
    ]
    found = read_text("a;b 1 2\nc 2 3\n", tmp_path)
    assert found.notes == [
        f"all lines of {tmp_path}/a.folded end in two numbers: only the last one is used"
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "nothing was recorded"),
        (b"no count here\n", "it has 0 lines like `frame;frame count`"),
        (bytes(range(256)) * 9 + b"\n1\n" * 50, "no stacks of dtrace or bpftrace"),
        (b"a 0\n", "nothing was recorded"),
    ],
)
def test_what_is_not_folded_text_is_an_error(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.folded"
    path.write_bytes(content)
    with pytest.raises(FlameError, match=f": .*{why}"):
        flame.read(str(path))


@pytest.mark.parametrize("name", ["no.folded", "no.pb.gz", "no.speedscope.json", "no\0.folded"])
def test_a_missing_file_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(FlameError, match="cannot read"):
        flame.read(str(tmp_path / name))
    with pytest.raises(FlameError, match="cannot read"):
        flame.read(str(tmp_path))


def test_a_picture_is_not_read() -> None:
    with pytest.raises(FlameError, match="is a picture"):
        flame.read("a.svg")


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b"a;\xff 5\n")

    monkeypatch.setattr("sys.stdin", Stdin)
    assert flame.read("-").stacks.counts == {"a;\N{REPLACEMENT CHARACTER}": 5}


def test_labels_at_the_root_are_counted() -> None:
    assert label_frames(["tank;flush;fio;zil_commit", "tank;outside;z_wr_iss"]) == 3
    assert label_frames(["tank;flush;fio", "fio;main"]) == 1
    assert label_frames(["fio"]) == 1
    assert label_frames([]) == 1


def test_most_of_the_weight_decides_the_kind() -> None:
    assert guess.kind({"a;schedule": 2, "a;b": 1}) == "off-cpu"
    assert guess.kind({"a;schedule": 1, "a;b": 1}) == "other"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1, "samples", "1 sample"),
        (12345, "samples", "12,345 samples"),
        (0, "ns", "0 ns"),
        (999, "ns", "999 ns"),
        (999_600, "ns", "1.00 ms"),
        (45_600_000_000, "ns", "45.6 s"),
        (7_300 * 10**9, "ns", "7,300 s"),
    ],
)
def test_amounts_have_units(value: int, unit: str, text: str) -> None:
    assert human.amount(value, unit) == text


def test_shares_have_three_digits() -> None:
    assert human.percent(1, 3) == "33.3 %"
    assert human.percent(1, 2000) == "0.05 %"
    assert human.percent(0, 0) == "0.00 %"
