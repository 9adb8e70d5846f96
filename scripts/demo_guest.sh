#!/bin/sh
# The part of `make demo` that runs in the guest: a mixed load, and the traces of it.
set -eu

say() {
	printf '\n\033[1m%s\033[0m\n' "$*"
}

zpool create -o ashift=12 -O compression=off -O atime=off tank /dev/vdb
zfs create tank/bulk
zfs create tank/db

fio --name=bulk --directory=/tank/bulk --rw=write --bs=1M --size=1500M --fallocate=none \
	--time_based --runtime=600 --output=/dev/null &
fio --name=wal --directory=/tank/db --rw=write --bs=8k --size=64M --fallocate=none --fsync=1 \
	--time_based --runtime=600 --output=/dev/null &
trap 'kill %1 %2 2>/dev/null || true' EXIT
sleep 5

# One trace after the other: a second one that attaches meanwhile makes the kernel skip the
# return probes of the threads that are inside, and the first counts them as lost.
say "# zfstune trace --duration 12s"
zfstune trace --duration 12s | tee /out/trace.txt
say "# zfstune trace fsync tank --duration 25s --histogram"
zfstune trace fsync tank --duration 25s --histogram | tee /out/fsync.txt
say "# zfstune trace slow --over 50ms tank --duration 12s"
zfstune trace slow --over 50ms tank --duration 12s | tee /out/slow.txt
say "# zfstune flame --duration 12s -o fsync.svg"
zfstune flame --duration 12s -o /out/fsync.svg
say "# fsync and slow once more with --json"
zfstune trace fsync tank --duration 12s --json >/out/fsync.jsonl
zfstune trace slow --over 50ms tank --duration 8s --json >/out/slow.jsonl
