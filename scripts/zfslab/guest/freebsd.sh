#!/bin/sh
# What the image's rc.local runs in a FreeBSD guest, from /job, where it has unpacked the disk of this
# run: sets up what a command finds, then executes the agent, which runs it.
zfs='' share='' hostname=''
# shellcheck source=/dev/null # made for each run
. /job/config

die() {
	echo "zfslab: $*" >/dev/console
	exec shutdown -p now
}

# a panic ends the run at once
sysctl -q debug.debugger_on_panic=0 kern.panic_reboot_wait_time=0 >/dev/null
hostname "$hostname"
# under emulation each reading of another clock leaves the virtual machine
sysctl -q kern.timecounter.hardware=TSC-low >/dev/null
[ -d /dev/vtcon ] || kldload virtio_console || die "there is no virtio_console"
if [ "$zfs" = yes ]; then
	kldload -n zfs || die "zfs cannot be loaded"
elif kldstat -q -n zfs; then
	kldunload zfs || die "zfs cannot be unloaded"
fi

# after a reboot by the command they are there
if [ ! -d /zfstune ]; then
	mv /job/zfstune /zfstune || die "/zfstune cannot be made"
	mkdir -p /out /usr/local/bin
	ln -s /zfstune/bin/zfstune /usr/local/bin/zfstune
	if [ "$share" = yes ]; then
		mkdir /share
		tar -xf /dev/diskid/DISK-zfslab-share -C /share || die "/share cannot be unpacked"
	fi
fi

PYTHONPATH=/zfstune/tracers:/zfstune/tuner:/zfstune/platform/freebsd
export PYTHONPATH # for the scenarios; the command does not need it
cd /zfstune || die "/zfstune does not exist"
exec python3 -I /job/agent.py
