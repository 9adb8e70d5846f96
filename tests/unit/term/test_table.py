"""Names in any bytes: of processes, vdevs, pools. They reach no terminal raw, and stop nothing."""

from __future__ import annotations

import io
import json

import pytest
from support.fake_host import FakeHost, FakeSession, run_of
from support.hostile import EVIL, raw
from support.samples import ios, vdev

from zfstrace.printable import printable
from zfstune import cli
from zfstune.errors import UsageError
from zfstune.term.table import Column, Lines, Style, fit, style_of, wrap
from zfstune.term.units import MS, SECOND
from zfstune.trace.device import trace


def test_cells_and_sentences_have_no_escape_codes() -> None:
    assert not raw("\n".join(fit([[EVIL, "1"], ["b", EVIL]], "<>", Style(), 0)))
    assert len(fit([[EVIL, "1"]], "<>", Style(), 0)) == 1
    assert not raw("\n".join(wrap(f"on {EVIL} it is slow")))
    out = io.StringIO()
    Lines(out).print([Column("NAME", 12)], [EVIL])
    assert not raw(out.getvalue())
    assert out.getvalue().count("\n") == 2


@pytest.mark.parametrize(
    ("encoding", "blocks"),
    [("utf-8", True), ("koi8-r", False), ("ascii", False)],  # KOI8-R has two of the eight
)
def test_bars_are_of_what_the_encoding_has(encoding: str, blocks: bool) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert style_of(out).blocks == blocks
    print(style_of(out).bar(0.3, 9), file=out, flush=True)


@pytest.mark.parametrize("as_json", [False, True])
def test_names_of_vdevs_print_no_escape_codes(
    as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is a vdev may have any name."""
    host = FakeHost(FakeSession([[vdev(1, sync_write=ios([MS] * 1000))]]))
    monkeypatch.setattr(FakeHost, "vdev_names", lambda _self, _pool: {1: EVIL})
    out = io.StringIO()
    trace(run_of(host, out, duration=10 * SECOND, json=as_json))
    assert not raw(out.getvalue())
    lines = out.getvalue().encode().splitlines()
    assert not as_json or all(json.loads(line) for line in lines)


@pytest.mark.parametrize("words", [(EVIL,), ("--dataset", EVIL), ("--dataset=p\u00f6ol/x",)])
def test_an_unknown_name_is_an_error_of_one_line(words: tuple[str, ...]) -> None:
    args = cli.build_parser().parse_args(["trace", "fsync", *words])
    with pytest.raises(UsageError, match="no pool or dataset can have the name") as raised:
        cli._check_names(args)
    assert printable(str(raised.value)) == str(raised.value)
