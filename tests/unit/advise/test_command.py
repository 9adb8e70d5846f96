"""`zfstune advise` on a fake host: findings, their order, what is not judged, errors."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import ONE_ERROR
from support.fake_advise import DATASET, MIRROR, POOL, SINGLE, AdviseHost, Tools, found, run, text
from support.fake_host import FakeHost

from zfstrace.disk import Disk
from zfstune import cli
from zfstune.advise import command, database, rules
from zfstune.advise.gather import Asked
from zfstune.errors import NotPossible, UsageError


@pytest.fixture(autouse=True)
def _no_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZFSTUNE_STATE_DIR", str(tmp_path / "state"))


def test_a_pool_without_defects_has_no_findings() -> None:
    status, said = run(Tools())
    assert status == 0
    assert said["findings"] == []
    assert said["schema"] == 1 and said["type"] == "advise"
    assert "nothing found; nothing was changed" in text(Tools())


def test_a_small_ashift_is_found() -> None:
    status, said = run(Tools(status=SINGLE))
    assert status == 1
    first = said["findings"][0]
    assert first["rule"] == "ashift-below-sector"
    assert first["severity"] == "high"
    assert first["where"] == ["tank vdb"]
    assert first["rewrite"] == "pool"
    assert "512" in first["what"] and "4K" in first["what"]


def test_no_command_that_changes_is_run() -> None:
    tools = Tools(status=SINGLE)
    run(tools)
    assert {tuple(argv[:2]) for argv in tools.asked} <= {
        ("zpool", "get"),
        ("zpool", "status"),
        ("zfs", "get"),
        ("zfs", "list"),
    }


@pytest.mark.parametrize(
    ("values", "load", "rule"),
    [
        ({"sync": "disabled local"}, "", "sync-disabled"),
        ({"sync": "always local"}, "", "sync-always"),
        ({"checksum": "off local"}, "", "checksum-off"),
        ({"dedup": "on local"}, "", "dedup-on"),
        ({"primarycache": "none local"}, "", "primarycache-none"),
        ({"compression": "off local"}, "", "compression-off"),
        ({"atime": "on", "relatime": "off"}, "", "atime-on"),
        ({"copies": "2 local"}, "", "copies-on-redundancy"),
        ({"xattr": "dir local"}, "", "xattr-dir"),
        ({"redundant_metadata": "none local"}, "", "redundant-metadata-none"),
        ({"logbias": "throughput local"}, "vm", "logbias-throughput-sync-load"),
        ({"recordsize": "4096 local"}, "postgresql", "recordsize-below-page"),
        ({"recordsize": "131072"}, "postgresql", "recordsize-large-compressed"),
        ({"compression": "off local"}, "mysql", "recordsize-above-page"),
        ({"primarycache": "metadata local"}, "mysql", "metadata-cache-large-records"),
        ({}, "postgresql", "relatime"),
        ({}, "vm", "recordsize-vm"),
        ({}, "files", "recordsize-sequential"),
        ({"type": "volume", "volblocksize": "4096 local"}, "", "volblocksize-small"),
        ({"type": "volume", "volblocksize": "131072 local"}, "vm", "volblocksize-large"),
    ],
)
def test_properties_of_a_dataset_break_rules(values: dict[str, str], load: str, rule: str) -> None:
    tools = Tools({"tank": {}, "tank/a": values})
    assert rule in found(tools, Asked("tank/a", load))
    assert rule not in found(Tools({"tank": {}, "tank/a": {}}), Asked("tank"))


def test_xattr_on_means_directories_only_before_2_3() -> None:
    class Old(AdviseHost):
        def version(self) -> str:
            return "2.1.11-1"

    assert "xattr-dir" in found(Tools(), host=Old())
    assert "xattr-dir" not in found(Tools())


def test_findings_on_a_slog_name_its_disk() -> None:
    tools = Tools({"tank": {"logbias": "throughput local"}}, status=SINGLE)
    status, said = run(tools)
    by_rule = [finding["rule"] for finding in said["findings"]]
    assert status == 1
    assert by_rule.index("logbias-throughput-with-slog") < by_rule.index("slog-volatile")
    where = {finding["rule"]: finding["where"] for finding in said["findings"]}
    assert where["slog-not-mirrored"] == where["slog-volatile"] == ["tank vdd"]
    assert "logbias-throughput-sync-load" not in by_rule


@pytest.mark.parametrize(
    ("pool", "rule", "status"),
    [
        ({"capacity": "85"}, "pool-full", 0),
        ({"capacity": "85%"}, "pool-full", 0),
        ({"capacity": "93"}, "pool-nearly-full", 1),
        ({"fragmentation": "70"}, "fragmentation", 0),
        ({"health": "DEGRADED"}, "pool-degraded", 0),
    ],
)
def test_properties_of_a_pool_break_rules(pool: dict[str, str], rule: str, status: int) -> None:
    tools = Tools(pool=pool)
    assert rule in found(tools)
    assert run(tools)[0] == status


def test_inherited_values_are_one_finding_with_one_command() -> None:
    inherited = {"sync": "disabled inherited from tank/a"}
    datasets = {"tank/a": {"sync": "disabled local"}, "tank/a/b": {}, "tank/a/c": {}}
    datasets |= {name: {} for name in ("tank",)}
    tools = Tools(datasets)
    for name in ("tank/a/b", "tank/a/c"):
        tools.datasets[name]["sync"] = inherited["sync"]
    (finding,) = [f for f in run(tools)[1]["findings"] if f["rule"] == "sync-disabled"]
    assert finding["where"] == ["tank/a", "tank/a/b", "tank/a/c"]
    assert finding["commands"] == ["zfs set sync=standard tank/a"]
    # where the parent is not judged, the child can be named
    (finding,) = [
        f for f in run(tools, Asked("tank/a/b"))[1]["findings"] if f["rule"] == "sync-disabled"
    ]
    assert finding["commands"] == ["zfs set sync=standard tank/a/b"]


def test_defaults_are_changed_at_the_top() -> None:
    tools = Tools({"tank": {"compression": "off"}, "tank/a": {"compression": "off"}})
    (finding,) = [f for f in run(tools)[1]["findings"] if f["rule"] == "compression-off"]
    assert finding["commands"] == ["zfs set compression=lz4 tank"]


def test_names_are_quoted_for_the_shell() -> None:
    tools = Tools({"tank/my data": {"checksum": "off local"}})
    (finding,) = run(tools, Asked("tank/my data"))[1]["findings"]
    assert finding["commands"] == ["zfs set checksum=on 'tank/my data'"]


def test_advice_that_lowers_durability_is_last_and_no_command() -> None:
    tools = Tools({"tank": {"sync": "always local"}})
    said = run(tools, Asked("tank", "postgresql"))[1]["findings"]
    lowering = [finding["lowers_durability"] for finding in said]
    assert any(lowering) and lowering == sorted(lowering)
    assert all(not f["commands"] for f in said if f["lowers_durability"])
    assert "LOWERS DURABILITY" in text(tools, Asked("tank", "postgresql"))


def test_what_is_unknown_is_counted_as_not_judged() -> None:
    host = AdviseHost()
    host.disks = {}
    said = run(Tools(), host=host)[1]
    missing = {entry["rule"]: entry["missing"] for entry in said["unjudged"]}
    assert missing["sectors-mixed"] == ["sector_min"]
    assert "recordsize-above-page" not in missing  # nobody asked about a database
    assert "rules could not be judged: " in text(Tools(), host=host)


def test_unknown_vdevs_are_counted_as_not_judged() -> None:
    said = run(Tools(status=""))[1]
    assert said["findings"] == []
    assert "`zpool status tank` cannot be read" in said["notes"][0]
    assert run(Tools())[1]["notes"] == []


def test_parameters_are_judged_unless_kept(tmp_path: Path) -> None:
    host = AdviseHost(zfs_txg_timeout=30, zil_nocacheflush=1)
    status, said = run(Tools(), host=host)
    by_rule = {finding["rule"]: finding for finding in said["findings"]}
    assert status == 1
    assert by_rule["parameter-dangerous"]["where"] == ["zil_nocacheflush"]
    assert by_rule["parameter-changed"]["where"] == ["zfs_txg_timeout"]
    host.kept = {"zfs_txg_timeout": 30}
    assert "parameter-changed" not in found(Tools(), host=host)


def test_findings_on_a_database_are_about_its_own_dataset(tmp_path: Path) -> None:
    config = tmp_path / "postgresql.conf"
    config.write_text("data_directory = '/tank/db/pg'\nshared_buffers = 40GB\n")
    asked = Asked(None, "postgresql", database.load(str(config), "postgresql"))
    tools = Tools({"tank": {}, "tank/db": {}, "tank/home": {}})

    class One(AdviseHost):
        def pools(self) -> list[str]:
            return ["tank"]

    said = run(tools, asked, One())[1]
    by_rule = {finding["rule"]: finding for finding in said["findings"]}
    assert by_rule["full-page-writes"]["where"] == ["tank/db"]
    assert by_rule["arc-and-buffers"]["where"] == [str(config)]
    assert not by_rule["full-page-writes"]["commands"]
    assert said["notes"] == ["/tank/db/pg is on tank/db"]
    elsewhere = Tools({"tank": {"mountpoint": "none"}})
    said = run(elsewhere, asked, One())[1]
    assert "is on none of these datasets" in said["notes"][0]
    assert "full-page-writes" not in {finding["rule"] for finding in said["findings"]}


def test_the_log_of_a_database_may_be_on_another_dataset(tmp_path: Path) -> None:
    config = tmp_path / "my.cnf"
    config.write_text(
        "[mysqld]\ndatadir=/tank/db\ninnodb_log_group_home_dir=/tank/log\n"
        "innodb_log_write_ahead_size=4096\n"
    )
    asked = Asked("tank", "mysql", database.load(str(config), "mysql"))
    tools = Tools({"tank": {}, "tank/db": {}, "tank/log": {"logbias": "throughput local"}})
    said = run(tools, asked)[1]
    by_rule = {finding["rule"]: finding for finding in said["findings"]}
    assert by_rule["innodb-doublewrite"]["where"] == ["tank/db"]
    assert by_rule["innodb-write-ahead"]["where"] == ["tank/log"]
    assert by_rule["logbias-throughput-sync-load"]["where"] == ["tank/log"]
    assert said["notes"] == ["/tank/db is on tank/db", "/tank/log, its log, is on tank/log"]


@pytest.mark.parametrize("own", [True, False])
def test_the_log_may_be_a_dataset_mounted_below_the_data(tmp_path: Path, own: bool) -> None:
    config = tmp_path / "postgresql.conf"
    config.write_text("data_directory = '/tank/db'\nwal_init_zero = off\n")
    asked = Asked("tank", "postgresql", database.load(str(config), "postgresql"))
    wal = {"tank/wal": {"mountpoint": "/tank/db/pg_wal"}} if own else {}
    said = run(Tools({"tank": {}, "tank/db": {}, **wal}), asked)[1]
    by_rule = {finding["rule"]: finding for finding in said["findings"]}
    assert by_rule["wal-recycle"]["where"] == ["tank/wal" if own else "tank/db"]
    assert by_rule["full-page-writes"]["where"] == ["tank/db"]
    assert ("wal-with-data" in by_rule) != own
    assert ("/tank/db/pg_wal, its log, is on tank/wal" in said["notes"]) == own


def test_a_log_behind_a_link_that_cannot_be_read_is_not_said_to_be_with_the_data() -> None:
    facts: dict[str, int | str] = {"config": "postgresql.conf", "page": 8192, "wal_recycle": 1}
    there = database.Database("postgresql", "/tank/db", facts, logs="/tank/db/pg_wal", hidden=True)
    said = run(Tools({"tank": {}, "tank/db": {}}), Asked("tank", "postgresql", there))[1]
    missing = {entry["rule"]: entry["missing"] for entry in said["unjudged"]}
    assert missing["wal-with-data"] == missing["wal-recycle"] == ["has_log"]
    assert "wal-with-data" not in {finding["rule"] for finding in said["findings"]}
    # unless a dataset of its own is mounted there
    wal = {"tank/wal": {"mountpoint": "/tank/db/pg_wal"}}
    said = run(Tools({"tank": {}, "tank/db": {}, **wal}), Asked("tank", "postgresql", there))[1]
    by_rule = {finding["rule"]: finding for finding in said["findings"]}
    assert by_rule["wal-recycle"]["where"] == ["tank/wal"]


def test_mariadb_is_another_word_for_mysql(tmp_path: Path) -> None:
    config = tmp_path / "my.cnf"
    config.write_text("[mariadbd]\ndatadir=/tank/db\n")
    for words in (["--for", "mariadb"], ["--for", "mariadb", "--config", str(config)]):
        asked = command.asked(cli.build_parser("advise").parse_args(["advise", *words]))
        assert asked.load == "mysql"


def test_text_is_narrow_and_says_all_parts() -> None:
    tools = Tools({"tank": {"sync": "disabled local", "compression": "off local"}}, status=SINGLE)
    said = text(tools, Asked("tank", "mysql"))
    assert max(map(len, said.splitlines())) < 100
    assert max(map(len, text(tools, Asked("tank", "files")).splitlines())) < 100
    for part in (
        "HIGH    sync=disabled",
        "  where     tank",
        "  why       ",
        "  effect    ",
        "  risk      ",
        "  command   zfs set sync=standard tank",
        "  needs     ",
    ):
        assert part in said
    assert "nothing was changed" in said.splitlines()[-1]


VALUES = st.sampled_from(["-", "none", "0", "1", "on", "off", "131072", "9" * 25, "-1", "12%"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    given_=st.dictionaries(
        st.sampled_from([*DATASET, "volblocksize", "mountpoint"]), VALUES | st.text(max_size=8)
    ),
    pool=st.dictionaries(st.sampled_from([*POOL]), VALUES | st.text(max_size=8)),
    load=st.sampled_from(["", *rules.LOADS]),
)
def test_no_properties_are_too_strange(
    given_: dict[str, str], pool: dict[str, str], load: str
) -> None:
    tools = Tools({"tank": {}, "tank/a": given_}, status=SINGLE, pool=pool)
    status, said = run(tools, Asked("tank", load))
    assert status in (0, 1) and isinstance(said["findings"], list)
    assert text(tools, Asked("tank", load))


def test_findings_on_thousands_of_datasets_are_shortened() -> None:
    count = 3000
    tools = Tools({"tank": {}} | {f"tank/{i}": {"compression": "off"} for i in range(count)})
    (finding,) = [f for f in run(tools)[1]["findings"] if f["rule"] == "compression-off"]
    assert len(finding["where"]) == count
    shown = text(tools)
    assert f"and {count - 4} more" in shown
    assert f"and {count - 4} more commands" in shown


# --- what cannot be


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("tnak", "did you mean tank?"),
        ("tank/bd", "no dataset 'tank/bd'; did you mean tank/db or tank?"),
        ("tnak/db", "no pool 'tnak'"),
    ],
)
def test_unknown_names_are_refused_with_a_guess(where: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        run(Tools({"tank": {}, "tank/db": {}}), Asked(where))
    assert message in error.value.in_one_line()


def test_different_sectors_matter_across_vdevs_only() -> None:
    """ZFS makes one vdev of disks with any sectors, fit for the largest."""
    host = AdviseHost()
    host.disks["/dev/vdc"] = Disk(512, 512, rotational=False, volatile=True)
    assert "sectors-mixed" not in found(Tools(), host=host)
    striped = MIRROR.replace("\t  mirror-0  ONLINE       0     0     0\n", "")
    assert "sectors-mixed" in found(Tools(status=striped.replace("    vd", "  vd")), host=host)


def test_a_suspended_pool_among_others_is_reported_and_skipped() -> None:
    class One(AdviseHost):
        def pool_state(self, pool: str) -> str:
            return "SUSPENDED" if pool == "idle" else "ONLINE"

    tools = Tools()
    status, said = run(tools, Asked(), One())
    assert status == 1
    (finding,) = said["findings"]
    assert (finding["rule"], finding["where"]) == ("pool-suspended", ["idle"])
    assert "idle" not in {word for argv in tools.asked for word in argv}
    # an error if asked for by name
    with pytest.raises(NotPossible, match="cannot look at pool idle: its I/O is suspended"):
        run(tools, Asked("idle"), One())


def test_suspended_pool_is_not_waited_for() -> None:
    host = AdviseHost()
    host.state = "SUSPENDED"
    tools = Tools()
    with pytest.raises(NotPossible, match="cannot look at pool tank: its I/O is suspended"):
        run(tools, host=host)
    assert tools.asked == []


def test_a_failing_tool_is_named_in_the_error() -> None:
    with pytest.raises(NotPossible, match="cannot look at pool tank: `zpool get all tank` fails"):
        run(lambda argv, timeout_s: "")  # type: ignore[arg-type]


class NoPools(AdviseHost):
    def pools(self) -> list[str]:
        return []


class Unloaded(AdviseHost):
    def __init__(self) -> None:
        super().__init__()
        self.unloaded = True


@pytest.mark.parametrize(
    ("host", "message"), [(NoPools(), "none is imported"), (Unloaded(), "ZFS is not loaded")]
)
def test_without_zfs_or_pools_it_says_why(host: FakeHost, message: str) -> None:
    with pytest.raises(NotPossible, match=message):
        run(Tools(), Asked(), host)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("tank@now", 2, "'tank@now' is a snapshot or bookmark"),
        ("tank --for oracle", 2, "--for: invalid choice"),
        ("tank --for vm --config x.cnf", 2, "--config: not allowed with --for vm"),
        ("--config {dir}/none.cnf", 2, "none.cnf: No such file or directory"),
        ("--config {dir}/what.txt", 2, "add --for postgresql or --for mysql"),
        ("--config {dir}/latin.cnf", 2, "is not UTF-8 in line 2"),
        ("--config {dir}/wrong.cnf", 2, "wrong.cnf line 2: an option before any group"),
        ("--config {dir}/postgresql.conf", 2, "postgresql.conf line 3 is no setting: "),
        ("--config {dir}", 2, "postgresql.conf line 3 is no setting: "),
        ("--config {dir}/secret.cnf", 3, "secret.cnf: Permission denied\nhint: run as its owner"),
        ("--config {dir}/secret/my.cnf", 3, "my.cnf: Permission denied\nhint: run as its owner"),
        ("--config {dir}/fifo.cnf", 2, "fifo.cnf is no regular file"),
        ("--config {dir}/loop.cnf", 2, "loop.cnf: Too many levels of symbolic links"),
    ],
)
def test_errors_are_one_line_and_a_hint(
    words: str,
    status: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if status == 3 and os.geteuid() == 0:
        pytest.skip("root reads everything")
    monkeypatch.setattr(command, "open_host", AdviseHost)
    (tmp_path / "latin.cnf").write_bytes(b"[mysqld]\n# gr\xfc\xdfe\n")
    (tmp_path / "wrong.cnf").write_text("# ours\ndatadir=/x\n")
    (tmp_path / "postgresql.conf").write_text("# ours\n\nport == 5432\n")
    (tmp_path / "secret.cnf").touch(mode=0o000)
    (tmp_path / "secret").mkdir(mode=0o000)
    os.mkfifo(tmp_path / "fifo.cnf")
    (tmp_path / "loop.cnf").symlink_to("loop.cnf")
    assert cli.main(["advise", *words.format(dir=tmp_path).split()]) == status
    error = capsys.readouterr().err
    assert message in error
    assert re.fullmatch(ONE_ERROR, error)
