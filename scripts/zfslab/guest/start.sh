#!/bin/sh
# Second program of the guest, in the root file system: sets up the minimum that an init would, then
# executes the agent, which runs the command; or systemd, which has the agent as its only unit.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8
zfs='' share='' out='' delays='' hostname='' systemd=''
# shellcheck source=/dev/null # made for each run
. /run/zfslab/config

die() {
	echo "zfslab: $*" >/dev/console
	exec busybox poweroff -f
}

# The slowest step starts first and runs in parallel.
if [ "$zfs" = yes ]; then
	modprobe zfs &
	zfs_pid=$!
fi

mkdir -p /dev/pts /dev/shm /run/lock
mount -t devpts -o mode=620,gid=5 devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf
ln -sf /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr
echo "$hostname" >/proc/sys/kernel/hostname
busybox ip link set lo up

# Without udev, `zpool create` does not find the partitions that it has just made.
/usr/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add --subsystem-match=block --subsystem-match=misc

mount_9p() { # TAG DIRECTORY OPTIONS
	mkdir -p "$2"
	mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2" ||
		die "$1 cannot be mounted"
}
mount_9p checkout /run/zfslab/checkout ro,cache=loose
mkdir -p /run/zfslab/overlay /zfstune /out
mount -t tmpfs overlay /run/zfslab/overlay
mkdir /run/zfslab/overlay/upper /run/zfslab/overlay/work
mount -t overlay -o "lowerdir=/run/zfslab/checkout,upperdir=/run/zfslab/overlay/upper,\
workdir=/run/zfslab/overlay/work" zfstune /zfstune || die "/zfstune cannot be mounted"
[ "$share" = yes ] && mount_9p share /share ro,cache=loose
[ "$out" = yes ] && mount_9p out /out rw

PYTHONPATH=/zfstune/tracers:/zfstune/tuner:/zfstune/platform/linux
export PYTHONPATH # for the scenarios; the command does not need it
ln -s /zfstune/bin/zfstune /usr/local/bin/zfstune

udevadm settle --timeout=60
for delay in $delays; do # NAME:READ:WRITE:FLUSH, delays in milliseconds
	name=${delay%%:*}
	legs=$(echo "${delay#*:}" | tr : ' ')
	# shellcheck disable=SC2086 # the legs are three words
	set -- $legs
	dmsetup create "$name-delay" --table "0 $(blockdev --getsz "/dev/$name") delay \
/dev/$name 0 $1 /dev/$name 0 $2 /dev/$name 0 $3" || die "dm-delay for $name failed"
done

if [ "$zfs" = yes ]; then
	wait "$zfs_pid" || die "modprobe zfs failed"
	udevadm settle --timeout=60
fi
cd /zfstune || die "/zfstune does not exist"
[ "$systemd" = yes ] || exec python3 -I /run/zfslab/agent.py

udevadm control --exit # systemd starts its own
mkdir -p /run/systemd/system
cp /run/zfslab/agent.service /run/systemd/system/
# or it would rebuild indexes for minutes, as at the first boot of a new /usr
touch /etc/.updated /var/.updated
echo "$hostname" >/etc/hostname
[ -s /etc/machine-id ] || busybox md5sum /proc/sys/kernel/random/uuid | cut -c 1-32 >/etc/machine-id
exec /usr/lib/systemd/systemd --unit=agent.service --show-status=no --log-target=null
