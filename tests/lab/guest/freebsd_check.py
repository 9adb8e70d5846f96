"""Scenario: `scripts/freebsd-check`, as docs/freebsd.md asks people to run it."""

from __future__ import annotations

import json

from labkit import Json, finish, make_pool, progress, run, sh


def main() -> None:
    make_pool()
    sh("zfs create 'tank/a b'")
    progress("freebsd-check")
    options = ["--dir", "/tank/a b", "--write", "--json"]
    done = run(["/zfstune/scripts/freebsd-check", *options], timeout=1500)
    progress(done["stderr"])
    found = json.loads(done["stdout"])
    results: Json = {"status": done["status"], "stderr": done["stderr"], "found": found}
    results["summary"] = f"{len(found['items'])} items, {found['failed']} failed"
    results["left"] = sh("ls -A '/tank/a b'")
    finish(results)


main()
