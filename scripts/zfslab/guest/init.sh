#!/bin/busybox sh
# shellcheck shell=dash
# First program of the guest, in the initial RAM disk: finds the root file system and switches to it.
export PATH=/bin
/bin/busybox --install -s /bin 2>/dev/null

die() {
	echo "zfslab: $*" >/dev/console
	poweroff -f
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mode=''
# shellcheck source=/dev/null # made for each run
. /zfslab/config

if [ "$mode" = probe ]; then
	echo "zfslab: guest code runs" >/dev/console
	poweroff -f
fi

while read -r module; do
	insmod "/modules/$module" 2>/dev/null
done </modules/order

tries=0
while [ ! -b /dev/vda ]; do
	tries=$((tries + 1))
	[ $tries -gt 100 ] && die "the disk with the root file system did not appear"
	sleep 0.05
done
mount -t ext4 -o noatime /dev/vda /root || die "the root file system cannot be mounted"

mount -t tmpfs -o mode=755 run /root/run
cp -r /zfslab /root/run/zfslab
for dir in proc sys dev; do
	mount -o move /$dir /root/$dir
done
exec switch_root /root /bin/sh /run/zfslab/start.sh
