#!/bin/sh
# Records the kernel text that the unit tests' parsers are fed, in a guest:
#   scripts/lab run --flavour F --disk size=1G --disk size=1G --disk size=1G --disk size=1G \
#     --disk size=1G --out tests/data/F -- sh /zfstune/tests/data/record.sh
set -eu
zpool create tank /dev/vdb
zfs create tank/db
zfs create -V 16M tank/vol
dd if=/dev/zero of=/tank/db/file bs=8k count=20 oflag=dsync 2>/dev/null
zpool sync tank
kstat=/proc/spl/kstat/zfs
cp $kstat/zil $kstat/arcstats $kstat/tank/txgs /out/
cp "$(grep -l 'dataset_name.*tank/db$' $kstat/tank/objset-0x*)" /out/
cp /proc/self/mountinfo /out/mountinfo
# vdevs of every kind, in the two forms from which their names are learned
zpool create -f wide mirror /dev/vdc /dev/vdd log /dev/vde cache /dev/vdf
zpool list -v -H -- wide >/out/zpool_list
zpool list -v -H -g -- wide >/out/zpool_list_guids
# the functions around the ZIL, with the inlined ones' clones: the whole list has 100,000 lines
grep -E ' (zil_|zpl_|zfs_fsync|txg_|dmu_tx_|spa_tx_|__?cv_|zio_flush)' /proc/kallsyms |
	grep -E '\[(zfs|spl)\]' >/out/kallsyms
chmod 644 /out/*
