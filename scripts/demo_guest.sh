#!/bin/sh
# The part of `make demo` in the guest: a mixed load, its traces, a recorder that sees it begin, and
# a session that makes its fsyncs faster. Arguments: the session's budget and block.
set -eu

say() {
	printf '\n\033[1m%s\033[0m\n' "$*"
}

# A low limit of dirty data, as on a small server: txgs are short, and so are the waits for them.
echo $((16 << 20)) >/sys/module/zfs/parameters/zfs_dirty_data_max
echo $((32 << 20)) >/sys/module/zfs/parameters/zfs_wrlog_data_max

zpool create -o ashift=12 -O compression=off -O atime=off tank /dev/vdb
# Large records for the bulk take less CPU time, which is scarce when this machine is emulated beside
# a busy one. For the log they would cost the disk a whole record for each small write.
zfs create -o recordsize=1M tank/bulk
zfs create -o recordsize=4k tank/db

# Each log writer commits once a second, whether commits are slow or fast: if faster ones were more
# of them, they would take bandwidth from the bulk writer.
cat >/tmp/load.fio <<END
[global]
fallocate=none
time_based
runtime=3600
[bulk]
directory=/tank/bulk
rw=write
bs=1M
size=1500M
[wal]
directory=/tank/db
rw=write
bs=4k
size=8M
numjobs=20
thread
fsync=1
rate_iops=1
startdelay=10ms-1010ms
END
say "# zfstune record run --trigger 'commit.p99>50ms' &"
zfstune record run --trigger 'commit.p99>50ms' --dump-dir /run/record &
recorder=$!
until [ -e /run/record/record.sock ]; do
	kill -0 $recorder
	sleep 0.1
done

fio --output=/dev/null /tmp/load.fio &
load=$!
trap 'kill $load $recorder 2>/dev/null || true' EXIT

say "# zfstune trace fsync tank --duration 5s --histogram"
zfstune trace fsync tank --duration 5s --histogram | tee /out/fsync.txt
# its file is written after the diagnosis that the trigger asked for
tries=0
until ls /run/record/incident-*.gz >/dev/null 2>&1 || [ $tries -eq 120 ]; do
	tries=$((tries + 1))
	sleep 1
done
kill $recorder
wait $recorder || true
# scripts/demo says so if there is none
for file in /run/record/incident-*.gz; do
	[ ! -e "$file" ] || cp "$file" /out/incident.jsonl.gz
done
# by local, as without optuna: to load that takes a part of the budget on an emulated machine
say "# zfstune tune tank --observe --sampler local --budget $1 --block $2"
zfstune tune tank --observe --staging --yes --sampler local --budget "$1" --block "$2" --seed 1 \
	--out /tmp/tune >/out/tune.txt || [ $? -eq 1 ]
cat /out/tune.txt
cp -r /tmp/tune /out/tune
say "# zfstune revert"
zfstune revert
