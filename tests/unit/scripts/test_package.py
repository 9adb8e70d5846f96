"""What scripts/package.py stages, and the parts of packages' scripts, which are run; building is
tested by tests/lab/test_packages.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import package
import pytest

WHEN = 1_790_000_000


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("package") / "zfstune-9.9"
    package.stage(base, "9.9", WHEN)
    return base


def test_the_tree_has_sources_only_and_one_time(tree: Path) -> None:
    paths = list(tree.rglob("*"))
    assert tree / "tracers/bpf/fsync.bpf.c" in paths
    assert not [path for path in paths if path.suffix in (".o", ".so", ".pyc")]
    assert {path.stat().st_mtime for path in paths} == {WHEN}
    assert '__version__ = "9.9"' in (tree / "tuner/zfstune/__init__.py").read_text()


def test_without_git_the_time_is_that_of_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert package.epoch() == int((package.ROOT / "CHANGELOG.md").stat().st_mtime)


def test_debian_has_a_changelog_with_the_version(tree: Path) -> None:
    changelog = (tree / "debian/changelog").read_text()
    assert changelog.startswith("zfstune (9.9) unstable; urgency=medium\n")
    assert changelog.endswith("  Mon, 21 Sep 2026 14:13:20 -0000\n")
    if shutil.which("dpkg-parsechangelog"):
        command = ["dpkg-parsechangelog", "--show-field", "Timestamp"]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == (f"{WHEN}\n", "")


def test_scripts_are_whole_and_revert_before_the_units_are_stopped(tree: Path) -> None:
    spec = (tree / "zfstune.spec").read_text()
    scripts = {path.name: path.read_text() for path in (tree / "debian").glob("zfstune.p*")}
    assert set(scripts) == {"zfstune.postinst", "zfstune.prerm", "zfstune.postrm"}
    for name in package.SNIPPETS.glob("*.sh"):
        code = name.read_text().splitlines()[-1]
        assert any(code in text for text in scripts.values()), name
        assert code in spec, name
    for text in (*scripts.values(), spec):
        assert not {"#REMOVE#", "#FORGET#", "#INSTALLED#", "%%"} & set(text.split())
    # debhelper stops the units there
    prerm = scripts["zfstune.prerm"]
    assert prerm.index("zfstune revert") < prerm.index("#DEBHELPER#")
    assert spec.index("zfstune revert") < spec.index("systemctl disable")


def test_the_exporter_is_packaged_and_not_enabled(tree: Path) -> None:
    unit = "zfstune-exporter.service"
    source = package.PACKAGING / "systemd" / unit
    # debhelper takes it by the name that dh_installsystemd is given
    assert (tree / f"debian/zfstune.{unit}").read_bytes() == source.read_bytes()
    rules = (tree / "debian/rules").read_text()
    # with --no-start it would run on without its files
    assert "dh_installsystemd --name=zfstune-exporter --no-enable\n" in rules
    spec = (tree / "zfstune.spec").read_text()
    post, preun, postun = (scriptlet(spec, name) for name in ("post", "preun", "postun"))
    assert unit not in post
    assert f"stop {unit}" in preun and f"disable {unit}" in preun
    assert f"try-restart {unit}" in postun
    for file in package.PACKAGING.joinpath("systemd").glob("*.*"):
        assert f"/usr/lib/systemd/system/{file.name}\n" in spec


def documents_of_rpm(tree: Path, root: Path) -> None:
    """What the lines of the spec file do that copy documents."""
    text = (tree / "zfstune.spec").read_text()
    lines = text.partition("\ndoc=")[2].partition("\n\n")[0]
    script = f"doc={lines}".replace("%{buildroot}", str(root))
    subprocess.run(["sh", "-e", "-c", script], cwd=tree, check=True, timeout=60)


def documents_of_debian(tree: Path, root: Path) -> None:
    """What dh_installdocs and dh_install do."""
    home = "usr/share/doc/zfstune"
    lines = [f"{name} {home}" for name in (tree / "debian/zfstune.docs").read_text().split()]
    for line in lines + (tree / "debian/zfstune.install").read_text().splitlines():
        pattern, target = line.split()
        (root / target).mkdir(parents=True, exist_ok=True)
        for path in tree.glob(pattern):
            shutil.copy(path, root / target)
    # it would compress them otherwise
    assert "\n\tdh_compress --exclude=.md\n" in (tree / "debian/rules").read_text()


@pytest.mark.parametrize("documents", [documents_of_debian, documents_of_rpm])
def test_pages_are_packaged_and_find_each_other(
    documents: Callable[[Path, Path], None], tree: Path, tmp_path: Path
) -> None:
    documents(tree, tmp_path)
    home = tmp_path / "usr/share/doc/zfstune"
    pages = {str(path.relative_to(home)) for path in home.rglob("*.md")}
    all_pages = {str(path.relative_to(tree)) for path in (tree / "docs").rglob("*.md")}
    assert pages == all_pages | {"README.md", "CHANGELOG.md"}
    for name in pages:
        page = home / name
        for link in re.findall(r"\]\(([^)\s:#]+)(?:#[^)]*)?\)", page.read_text()):
            there = Path(os.path.normpath(page.parent / link))
            # files beside the code are in a checkout only
            outside = there.relative_to(home).parts[0] in ("platform", "tracers", "CONTRIBUTING.md")
            assert there.exists() or outside, f"{name}: {link}"


def test_pages_that_rules_and_messages_name_are_packaged(tree: Path, tmp_path: Path) -> None:
    documents_of_debian(tree, tmp_path)
    files = [
        *(tree / "platform/monitoring").glob("*.*"),
        *(tree / "docs/man").glob("zfstune*.1"),
        *(tree / "tuner").rglob("*.toml"),
    ]
    named = {
        name
        for file in files
        for name in re.findall(r"\bdocs/[\w/.-]+\.md\b", file.read_text(encoding="utf-8"))
    }
    assert {"docs/stages.md", "docs/performance.md"} <= named
    missing = {name for name in named if not (tmp_path / "usr/share/doc/zfstune" / name).exists()}
    assert missing == set()


def scriptlet(spec: str, name: str) -> str:
    """A script of the spec file, up to the next section."""
    return spec.partition(f"\n%{name}\n")[2].partition("\n%")[0]


def test_each_error_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path)]
    assert package.main(["zip"]) == 2
    assert package.main(["deb", "--version", "../1", *out]) == 2
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert package.main(["deb", *out]) == 3
    assert package.main(["rpm", *out]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 8
    assert all(line.startswith("package: error: ") for line in lines[::2])
    assert all(line.startswith("hint: ") for line in lines[1::2])
    assert "apt install" in lines[5]


@dataclass
class Host:
    """Directories in place of those in scripts, and a zfstune that writes down how it is called."""

    base: Path

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        text = (package.SNIPPETS / f"{name}.sh").read_text()
        for path in ("/run/", "/var/lib/", "/sys/module/", "/usr/local/bin/"):
            text = text.replace(path, f"{self.base}{path}")
        text = text.replace("PATH=", f"PATH={self.base}/bin:")
        return subprocess.run(
            ["sh", "-e", "-c", text], capture_output=True, text=True, check=False, timeout=60
        )

    def has(self, *names: str) -> None:
        for name in names:
            path = self.base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def command(self, text: str) -> None:
        self.has("bin/zfstune")
        (self.base / "bin/zfstune").write_text(f'#!/bin/sh\necho "$@" >>{self.base}/called\n{text}')
        (self.base / "bin/zfstune").chmod(0o755)

    def called(self) -> list[str]:
        file = self.base / "called"
        return file.read_text().splitlines() if file.exists() else []

    @contextmanager
    def locked(self) -> Iterator[None]:
        import fcntl

        self.has("run/zfstune/lock")
        fd = os.open(self.base / "run/zfstune/lock", os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
        os.close(fd)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host(tmp_path)
    found.command("")
    found.has("sys/module/zfs/version")
    return found


def test_removal_calls_nothing_where_nothing_is_changed(host: Host) -> None:
    done = host.run("remove")
    assert (done.returncode, done.stderr, host.called()) == (0, "", [])
    host.has("run/zfstune/journal", "run/zfstune/lock")
    shutil.rmtree(host.base / "sys")
    assert host.run("remove").returncode == 0
    assert host.called() == []


@pytest.mark.parametrize("place", ["run", "var/lib"])
def test_removal_reverts(host: Host, place: str) -> None:
    host.has(f"{place}/zfstune/journal")
    assert host.run("remove").returncode == 0
    assert host.called() == ["revert"]


def test_a_package_stays_if_something_is_not_restored(host: Host) -> None:
    host.has("run/zfstune/journal")
    host.command("exit 1\n")
    done = host.run("remove")
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error == "zfstune: error: the package stays: not all parameters are restored"
    assert hint.startswith("hint: `zfstune status`")


def test_without_the_module_nothing_of_a_journal_is_in_force(host: Host) -> None:
    """And a purge after it is loaded again must not fail over it."""
    host.has("run/zfstune/journal", "var/lib/zfstune/journal")
    shutil.rmtree(host.base / "sys")
    assert (host.run("remove").returncode, host.called()) == (0, [])
    host.has("sys/module/zfs/version")
    assert host.run("forget").returncode == 0
    assert not (host.base / "run/zfstune").exists()


def test_a_package_stays_while_a_session_runs(host: Host) -> None:
    host.command("echo '`zfstune tune` is running: process 7'\n")
    with host.locked():
        done = host.run("remove")
        assert (done.returncode, host.called()) == (1, ["status"])
        error, hint = done.stderr.splitlines()
        assert error.endswith("the package stays: `zfstune tune` is running: process 7")
        assert hint.startswith("hint: wait")
        assert host.run("forget").returncode == 1
    assert (host.base / "run/zfstune/lock").exists()


def test_purge_leaves_only_the_journal_of_another_zfstune(host: Host) -> None:
    host.has("run/zfstune/lock", "run/zfstune/journal", "var/lib/zfstune/journal")
    host.has("run/zfstune-exporter/recorded.jsonl.gz")
    done = host.run("forget")
    assert done.returncode == 1
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["zfstune", "hint"]
    assert (host.base / "var/lib/zfstune/journal").exists()
    (host.base / "run/zfstune/journal").rename(host.base / "run/zfstune/journal.last")
    assert host.run("forget").returncode == 0
    assert list((host.base / "run").iterdir()) == []
    assert list((host.base / "var/lib").iterdir()) == []


def test_a_zfstune_that_hides_the_package_is_named(host: Host) -> None:
    assert host.run("installed").stderr == ""
    host.has("usr/local/bin/zfstune")
    done = host.run("installed")
    assert done.returncode == 0
    assert done.stderr.startswith("zfstune: warning: ")
