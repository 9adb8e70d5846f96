"""The pictures: well-formed for any names, widths that add up, differences that mirror."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zfstrace.flame import FlameError, colors, diff, layout, svg
from zfstrace.stacks import Stacks, fold

# Drawing is slow on a busy machine.
settings.register_profile("drawing", settings.get_profile("repeatable"), deadline=None)
DRAWING = settings.get_profile("drawing")
SVG = "{http://www.w3.org/2000/svg}"
# few names, so that stacks share frames; some that sort around the separator
NAMES = st.sampled_from(["a", "b", "a b", "a<", "a:", "a;", "--", "[x]", "é", "zil_commit [zfs]"])
COUNTS = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=6).map(fold), st.integers(1, 1000), max_size=15
)


def parse(pieces: Iterable[str]) -> ET.Element:
    text = "".join(pieces)
    # no entity, no stylesheet or picture from elsewhere
    assert re.findall(r"https?://[^\"' )]*", text) == [
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xhtml",
        "http://www.w3.org/2000/svg",
    ]
    return ET.fromstring(text)


def drawn(root: ET.Element, panel: int = 0) -> list[tuple[str, float, float, int, str]]:
    """(title, x, width, y, class) of each frame."""
    found = []
    for g in root.findall(f"{SVG}svg")[panel]:
        title, rect = g.find(f"{SVG}title"), g.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        assert title.text is not None
        x, width = (float(rect.attrib[name].rstrip("%")) for name in ("x", "width"))
        found.append((title.text, x, width, int(rect.attrib["y"]), g.attrib["class"]))
    return found


def stacks(counts: dict[str, int], kind: str = "off-cpu", unit: str = "ns") -> Stacks:
    return Stacks(kind, unit, "test", counts)


@DRAWING
@given(st.dictionaries(st.text(max_size=10), st.integers(1, 9)), st.text())
def test_any_names_make_well_formed_xml(counts: dict[str, int], title: str) -> None:
    root = parse(svg.render(Stacks("wakeup", "ns", title, counts)))
    assert drawn(root)[0][0].startswith("all (")


def naive(counts: dict[str, int]) -> dict[tuple[str, ...], int]:
    """The weight of each frame by its path."""
    found: dict[tuple[str, ...], int] = {}
    for stack, weight in counts.items():
        path = tuple(stack.split(";"))
        for end in range(len(path) + 1):
            found[path[:end]] = found.get(path[:end], 0) + weight
    return found


@DRAWING
@given(COUNTS)
def test_frames_have_their_weights(counts: dict[str, int]) -> None:
    order = layout.order(counts)
    weights = layout.sums(order, counts)
    found: dict[tuple[str, ...], int] = {}
    path: list[str] = []
    for frame in layout.frames(order, weights, 0, layout.Hidden()):
        path[frame.depth :] = [frame.name]
        assert tuple(path[1:]) not in found
        found[tuple(path[1:])] = weights[frame.last] - weights[frame.first]
        assert frame.waker == ("--" in path[:-1])
    assert found == (naive(counts) or {(): 0})


@DRAWING
@given(COUNTS.filter(bool), st.booleans())
def test_widths_add_up(counts: dict[str, int], inverted: bool) -> None:
    frames = drawn(parse(svg.render(stacks(counts), inverted=inverted)))
    assert frames[0][1:3] == (0, 100)
    # what lies at one depth does not overlap, and lies inside the frame below
    for depth in {y for _, _, _, y, _ in frames}:
        row = sorted((x, width) for _, x, width, y, _ in frames if y == depth)
        assert sum(width for _, width in row) <= 100.001
        for (x, width), (right, _) in pairwise(row):
            assert x + width <= right + 1e-4
    first = [width for _, _, width, y, _ in frames if abs(y - frames[0][3]) == svg.ROW]
    assert sum(first) == pytest.approx(100, abs=1e-3)
    assert (frames[0][3] == 0) == inverted


def test_narrow_frames_are_left_out_and_counted() -> None:
    counts = {"a;wide": 1_000_000} | {f"a;thin{i};deep": 1 for i in range(30)}
    text = "".join(svg.render(stacks(counts)))
    assert "thin" not in text
    assert "30 frames narrower than 0.1 px are left out, with all above: 0.00 % of" in text
    assert "All frames are shown." in "".join(svg.render(stacks({"a": 1})))


def test_an_empty_recording_has_one_frame() -> None:
    root = parse(svg.render(stacks({})))
    assert [frame[0] for frame in drawn(root)] == ["all (0 ns, 0.00 %)"]


def test_deep_stacks_are_drawn() -> None:
    frames = drawn(parse(svg.render(stacks({";".join(f"f{i}" for i in range(3000)): 1}))))
    assert len(frames) == 3001


def test_titles_have_time_and_share() -> None:
    titles = [frame[0] for frame in drawn(parse(svg.render(stacks({"a;b": 750, "c": 250}))))]
    assert titles == ["all (1.00 us, 100.0 %)", "a (750 ns, 75.0 %)", "b (750 ns, 75.0 %)",
                      "c (250 ns, 25.0 %)"]  # fmt: skip


def test_labels_and_wakers_have_looks_of_their_own() -> None:
    counts = {"tank;flush;fio;f;--;w;swapper/0": 5}
    looks = {t.partition(" (")[0]: c for t, *_, c in drawn(parse(svg.render(stacks(counts))))}
    assert [looks[name] for name in ("all", "tank", "flush", "fio")] == ["l0", "l1", "l2", "l3"]
    assert looks["f"].startswith("f")
    assert looks["--"] == "s"
    assert looks["w"].startswith("w")


def rgb(style: str, name: str) -> tuple[int, ...]:
    match = re.search(rf"\.{name}{{fill:#(..)(..)(..)}}", style)
    assert match
    return tuple(int(part, 16) for part in match.groups())


@pytest.mark.parametrize("number", range(colors.SHADES))
def test_colours_follow_custom(number: int) -> None:
    red, green, blue = rgb(colors.style("off-cpu"), f"f{number}")
    assert blue > green > red
    red, green, blue = rgb(colors.style("on-cpu"), f"f{number}")
    assert red > green > blue
    red, green, blue = rgb(colors.style("wakeup"), f"w{number}")
    assert red < min(green, blue)
    assert abs(green - blue) < 40


def test_a_name_has_one_shade() -> None:
    assert colors.frame_class("zil_commit [zfs]", False) == "f15"
    used = {colors.frame_class(f"function_{i}", False) for i in range(500)}
    assert len(used) == colors.SHADES


@DRAWING
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_swapped_weights_negate_the_change(before: int, after: int) -> None:
    assert colors.change(before, after) == -colors.change(after, before)
    assert -1 <= colors.change(before, after) <= 1


@DRAWING
@given(COUNTS, COUNTS)
def test_swapped_sides_mirror_the_picture(before: dict[str, int], after: dict[str, int]) -> None:
    one = parse(diff.render(stacks(before), stacks(after), "t"))
    other = parse(diff.render(stacks(after), stacks(before), "t"))
    swap = str.maketrans("pm", "mp")
    for panel in (0, 1):
        left, right = drawn(one, panel), drawn(other, 1 - panel)
        assert [frame[1:4] for frame in left] == [frame[1:4] for frame in right]
        for a, b in zip(left, right, strict=True):
            assert a[4] == (b[4] if b[4].startswith("p0") else b[4].translate(swap))


@DRAWING
@given(COUNTS)
def test_no_difference_is_near_white(counts: dict[str, int]) -> None:
    # twice as long a recording of the same
    twice = {stack: 2 * weight for stack, weight in counts.items()}
    root = parse(diff.render(stacks(counts), stacks(twice), "t"))
    assert {frame[4].split()[0] for frame in drawn(root, 0) + drawn(root, 1)} == {"p0"}
    assert min(rgb(colors.diff_style(), "p0")) > 0xF0


def test_a_difference_tells_both_sides() -> None:
    root = parse(diff.render(stacks({"a": 60, "b": 40}), stacks({"a": 30, "c": 170}), "t"))
    titles = [frame[0] for frame in drawn(root, 0) + drawn(root, 1)]
    whole = "all (before 100 ns 100.0 %, after 200 ns 100.0 %, change +0.00 points, share x1.00)"
    a = "a (before 60 ns 60.0 %, after 30 ns 15.0 %, change -45.00 points, share x0.25)"
    assert titles == [
        whole,
        a,
        "c (before 0 ns 0.00 %, after 170 ns 85.0 %, change +85.00 points, new)",
        whole,
        a,
        "b (before 40 ns 40.0 %, after 0 ns 0.00 %, change -40.00 points, vanished)",
    ]
    summary = root.find(f"{SVG}desc")
    assert summary is not None
    assert str(summary.text).startswith("total before 100 ns, after 200 ns; red")


def test_different_units_are_not_compared() -> None:
    with pytest.raises(FlameError, match="before counts ns, after samples"):
        diff.check(stacks({"a": 1}), stacks({"a": 1}, unit="samples"))


def test_folded_differences_are_safe_to_print() -> None:
    """A stack of another tool's file is as it is there."""
    assert list(diff.folded(stacks({"a;\x1b[31mb": 1}), stacks({}))) == ["a;?[31mb 1 0\n"]


@DRAWING
@given(COUNTS, COUNTS)
def test_folded_differences_have_two_weights(before: dict[str, int], after: dict[str, int]) -> None:
    lines = list(diff.folded(stacks(before), stacks(after)))
    found = [line.rsplit(" ", 2) for line in lines]
    assert {s: int(n) for s, n, _ in found if n != "0"} == before
    assert {s: int(n) for s, _, n in found if n != "0\n"} == after
