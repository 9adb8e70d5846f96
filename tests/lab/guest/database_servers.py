"""PostgreSQL and MariaDB in the guest: installed from /share without starting anything, servers on
directories of their own, and their loads. Used by databases.py."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from labkit import Json, progress, run, sh

PG = Path("/usr/lib/postgresql/17/bin")
_POLICY = Path("/usr/sbin/policy-rc.d")
_CLUSTERS = Path("/etc/postgresql-common/createcluster.d/lab.conf")


def install() -> dict[str, str]:
    """All packages of /share; their versions. Neither starts a server nor makes a cluster."""
    progress("install the packages of /share")
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    _CLUSTERS.parent.mkdir(parents=True, exist_ok=True)
    _CLUSTERS.write_text("create_main_cluster = false\n")
    debs = " ".join(shlex.quote(str(path)) for path in sorted(Path("/share").glob("*.deb")))
    sh(
        "export DEBIAN_FRONTEND=noninteractive; "
        "apt-get install -y --no-install-recommends "
        f"-o DPkg::Options::=--force-unsafe-io {debs}"
    )
    names = "postgresql-17 mariadb-server sysbench"
    rows = sh(f"dpkg-query -W -f '${{Package}} ${{Version}}\\n' {names}", False).splitlines()
    return dict(row.split(" ", 1) for row in rows)


def running() -> list[str]:
    """Servers in the process table."""
    return sh("pgrep -l 'postgres|mariadbd|mysqld'", check=False).splitlines()


def as_user(user: str, command: str, timeout: float = 600, env: Mapping[str, str] = {}) -> str:
    """The output of a command of an ordinary user."""
    done = subprocess.run(
        ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd="/tmp",
        env={**os.environ, "HOME": "/tmp", **env},
    )
    if done.returncode:
        raise RuntimeError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Postgres:
    """A cluster in a directory, with its WAL in another one if that is given."""

    def __init__(self, home: str, wal: str = "", port: int = 5432) -> None:
        self.home, self.wal, self.port = home, wal, port
        self.log = f"/tmp/pg-{port}.log"

    def create(self, settings: Mapping[str, str], initdb: str = "") -> None:
        """The directories must exist; settings go to the end of postgresql.conf."""
        for path in filter(None, (self.home, self.wal)):
            Path(path).mkdir(parents=True, exist_ok=True)
            sh(f"chown postgres:postgres {path}; chmod 700 {path}")
        wal = f"--waldir={self.wal}" if self.wal else ""
        as_user(
            "postgres",
            f"{PG}/initdb -D {self.home} {wal} --no-sync --locale=C -A trust {initdb}",
        )
        self.configure({"unix_socket_directories": "'/tmp'", "listen_addresses": "''", **settings})

    def configure(self, settings: Mapping[str, str]) -> None:
        """Appends: the last line of a name counts."""
        with (Path(self.home) / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def start(self) -> None:
        options = shlex.quote(f"-p {self.port}")
        # the server must not keep the pipe of its starter
        as_user(
            "postgres",
            f"{PG}/pg_ctl -D {self.home} -l {self.log} -t 300 -w -o {options} start >/dev/null",
        )

    def stop(self) -> None:
        as_user("postgres", f"{PG}/pg_ctl -D {self.home} -t 300 -m fast -w stop")

    def sql(self, text: str, database: str = "postgres") -> str:
        """The rows, as psql prints them without decoration."""
        command = f"psql -h /tmp -p {self.port} -qAtX -v ON_ERROR_STOP=1 -d {database}"
        return as_user("postgres", f"{command} -c {shlex.quote(text)}").strip()

    def alter(self, name: str, value: str) -> None:
        """In force when it returns."""
        self.sql(f"ALTER SYSTEM SET {name} = {value}")
        self.sql("SELECT pg_reload_conf()")
        wanted = value.strip("'")
        end = time.monotonic() + 30
        while self.sql(f"SHOW {name}") != wanted and time.monotonic() < end:
            time.sleep(0.2)

    def number(self, text: str) -> int:
        return int(self.sql(text) or 0)

    def fill(self, scale: int, database: str = "postgres") -> None:
        as_user("postgres", f"pgbench -h /tmp -p {self.port} -i -q -s {scale} {database}")

    def bench(
        self, seconds: float, clients: int = 8, database: str = "postgres", options: str = ""
    ) -> Json:
        """pgbench of simple updates: transactions and their rate. options are settings of the
        session, as PGOPTIONS takes them."""
        command = f"{pgbench(self.port, clients, database)} -T {max(1, round(seconds))}"
        text = as_user("postgres", command, env={"PGOPTIONS": options})
        return {
            "transactions": int(found(r"actually processed: (\d+)", text)),
            "tps": float(found(r"tps = ([\d.]+) ", text)),
            "latency_ms": float(found(r"latency average = ([\d.]+) ms", text)),
        }


def pgbench(port: int, clients: int, database: str = "postgres") -> str:
    """The command, but for its duration."""
    return f"pgbench -h /tmp -p {port} -n -N -c {clients} -j 2 {database}"


class Mariadb:
    """A server on a directory, with the options given."""

    def __init__(self, home: str, socket: str = "/tmp/mariadb.sock") -> None:
        self.home, self.socket = home, socket
        self.conf = f"{Path(home).parent}/{Path(home).name}.cnf"
        self.process: subprocess.Popen[bytes] | None = None

    def create(self, settings: Mapping[str, str]) -> None:
        Path(self.home).mkdir(parents=True, exist_ok=True)
        sh(f"chown mysql:mysql {self.home}; chmod 700 {self.home}")
        lines = {"datadir": self.home, "socket": self.socket, "skip-networking": "1", **settings}
        self.configure(lines)
        sh(
            f"mariadb-install-db --defaults-file={self.conf} --datadir={self.home} --user=mysql "
            "--skip-test-db --auth-root-authentication-method=normal --skip-name-resolve"
        )

    def configure(self, settings: Mapping[str, str]) -> None:
        """Writes the file anew, with the earlier settings where these do not say otherwise."""
        path = Path(self.conf)
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        old = dict(line.split(" = ", 1) for line in lines)
        text = "".join(f"{name} = {value}\n" for name, value in {**old, **settings}.items())
        path.write_text(f"[mariadbd]\n{text}")

    def start(self) -> None:
        with Path("/tmp/mariadbd.log").open("a") as log:
            self.process = subprocess.Popen(
                ["mariadbd", f"--defaults-file={self.conf}", "--user=mysql"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + 180
        while run(["mariadb-admin", f"--socket={self.socket}", "ping"])["status"]:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(Path("/tmp/mariadbd.log").read_text()[-4000:])
            time.sleep(0.5)

    def stop(self) -> None:
        sh(f"mariadb-admin --socket={self.socket} -u root shutdown")
        if self.process:
            self.process.wait(180)

    def sql(self, text: str) -> str:
        quoted = shlex.quote(text)
        return sh(f"mariadb --no-defaults --socket={self.socket} -u root -BN -e {quoted}").strip()

    def statuses(self, like: str) -> dict[str, int]:
        rows = self.sql(f"SHOW GLOBAL STATUS LIKE '{like}'").splitlines()
        return {name: int(value) for name, value in map(str.split, rows) if value.isdigit()}

    def sysbench(self, database: str, action: str, *options: str) -> str:
        return sh(
            f"sysbench oltp_write_only --db-driver=mysql --mysql-socket={self.socket} "
            f"--mysql-user=root --mysql-db={database} --tables=2 --table-size=20000 "
            f"{' '.join(options)} {action}"
        )

    def bench(self, seconds: float, threads: int = 8, database: str = "lab") -> Json:
        text = self.sysbench(database, "run", f"--threads={threads}", f"--time={round(seconds)}")
        transactions = int(found(r"transactions: +(\d+)", text))
        return {
            "transactions": transactions,
            "tps": float(found(r"transactions: +\d+ +\(([\d.]+) per sec", text)),
            "latency_ms": float(found(r"avg: +([\d.]+)", text)),
        }


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if not match:
        raise RuntimeError(f"no {pattern} in:\n{text}")
    return match[1]


def sectors_written(disk: str) -> int:
    """Sectors of 512 bytes that a disk has been asked to write, e.g. of vdb."""
    return int(Path(f"/sys/block/{disk}/stat").read_text().split()[6])


def advise(*words: str) -> Json:
    done = run(["zfstune", "advise", *words, "--json"])
    if done["status"] not in (0, 1) or not done["stdout"]:
        raise RuntimeError(f"advise {words}: {done}")
    lines = [json.loads(line) for line in done["stdout"].splitlines()]
    return dict(lines[-1])


def copy(source: str, target: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    sh(f"cp -a {source} {target}")
