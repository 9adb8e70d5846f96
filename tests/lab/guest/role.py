"""Scenario: the role for Ansible configures this guest, which is its controller, too: what it would
do, a first run, a second one, the exporter off and on, and `revert`. /share has ansible-core with
what it needs, and the one file."""

from __future__ import annotations

import json
import re
from pathlib import Path

from exporting import Scraper, run, total

from labkit import Json, commits, finish, make_pool, parameter, progress, sh, sync_writes

UNIT = "zfstune-exporter.service"
COMMAND = Path("/usr/local/bin/zfstune")
OPTIONS = Path("/etc/default/zfstune-exporter")
INVENTORY, PLAY = Path("/tmp/inventory.json"), Path("/tmp/zfs.yml")
# An emulated CPU has no quarter to give
DROP_IN = "CPUQuota=\nTimeoutStartSec=800"
APT_INSTALL = (
    "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "
    "-o DPkg::Options::=--force-unsafe-io"
)
# The modules of the scenarios are not for those of Ansible
ENV = ("env", "-u", "PYTHONPATH", "ANSIBLE_ROLES_PATH=/zfstune/platform/ansible/roles")
ANSIBLE = (*ENV, "ansible-playbook", "-i", str(INVENTORY), str(PLAY))
scraper = Scraper(9810)


def install() -> None:
    """Ansible, and what an administrator writes."""
    progress("install the packages of /share")
    sh(f"{APT_INSTALL} /share/*.deb")
    # the lab's link to the checkout
    COMMAND.unlink()
    sums = (line.split() for line in Path("/share/SHA256SUMS").read_text().splitlines())
    checksum, name = next(one for one in sums if one[1].endswith("-x86_64.pyz"))
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "/usr/bin/python3",
        "zfstune_source": f"/share/{name}",
        "zfstune_checksum": checksum,
        "zfstune_exporter_options": "--max-datasets 8 --trigger 'commit.p99>200ms for 30s'",
        "zfstune_exporter_drop_in": DROP_IN,
    }
    INVENTORY.write_text(json.dumps({"all": {"hosts": {"localhost": variables}}}))
    PLAY.write_text("- hosts: all\n  roles:\n    - zfstune\n")


def played(what: str, *options: str) -> Json:
    """Status, output and counts of a run, and the unit after it."""
    progress(what)
    done = run([*ANSIBLE, *options])
    recap = re.search(r"^localhost +: (.*)$", done["stdout"], re.M)
    counts = re.findall(r"(\w+)=([0-9]+)", recap[1] if recap else "")
    unit = sh(f"systemctl show {UNIT} -p ActiveState,UnitFileState,MainPID").splitlines()
    return done | {name: int(n) for name, n in counts} | dict(one.split("=", 1) for one in unit)


def counted() -> Json:
    """What the exporter counts of 101 fsyncs."""
    scraper.begin_anew()
    scraper.until_up(("light", "txg", "throttle", "arc"))
    before, kstat = scraper.fresh(), commits()
    sync_writes("/tank/db/file", 101)
    kstat = commits() - kstat
    name = "zfstune_zil_commit_duration_seconds_count"
    return {"kstat": kstat, "exported": total(scraper.fresh(), name) - total(before, name)}


def dumped() -> Json:
    """The flight recorders' files of all hosts, by the two commands of docs/operations.md."""
    progress("records of all hosts")
    night, incidents = "/run/night.jsonl.gz", Path("/tmp/incidents")
    now = sh("date +%H:%M").strip()
    hosts = (*ENV, "ansible", "all", "-i", str(INVENTORY))
    dump = run([*hosts, "-a", f"{COMMAND} record dump --at {now} -o {night}"])
    fetch = run([*hosts, "-m", "fetch", "-a", f"src={night} dest={incidents}"])
    files = [str(path.relative_to(incidents)) for path in incidents.rglob("*") if path.is_file()]
    read = run([str(COMMAND), "trace", "--from", *(str(incidents / one) for one in files)])
    return {"dump": dump, "fetch": fetch, "files": files, "read": read}


def reverts(results: Json) -> None:
    """A parameter that zfstune has set; then nothing."""
    words = ("-e", "zfstune_revert=true", "--tags", "zfstune_revert")
    results["set"] = run([str(COMMAND), "params", "set", "zfs_txg_timeout=9s"])
    values = [parameter("zfs_txg_timeout")]
    for key in ("revert", "revert_again"):
        results[key] = played(key, *words)
        values.append(parameter("zfs_txg_timeout"))
    results["values"] = values


def main() -> None:
    results: Json = {}
    make_pool()
    sh("zfs create tank/db")
    sync_writes("/tank/db/warm", 3)
    install()
    results["ansible"] = run(["ansible-playbook", "--version"])["stdout"].splitlines()[:1]
    results["check"] = played("what it would do", "--check") | {
        "there": [str(path) for path in (COMMAND, OPTIONS) if path.exists()]
    }
    results["refused"] = played("another file", "-e", f"zfstune_checksum={'0' * 64}") | {
        "there": COMMAND.exists()
    }
    results["first"] = played("a first run")
    results["options"] = OPTIONS.read_text()
    results["counted"] = counted()
    results["second"] = played("a second run")
    results["off"] = played("off", "-e", "zfstune_exporter=false")
    results["on"] = played("on")
    results["counted_again"] = counted()
    results["dumped"] = dumped()
    reverts(results)
    results["summary"] = f"{results['ansible'][0]}, {results['first']['changed']} changes"
    finish(results)


main()
