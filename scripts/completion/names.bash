# Names of this host for the completion in bash; $1 is what is typed already. Pools and
# datasets come from the kstats, so that no command of ZFS runs on a host in trouble.
# shellcheck shell=bash

# Those of the lines that begin with $1.
_zfstune_match() {
	local line
	while IFS= read -r line; do
		[[ $line != "$1"* ]] || printf '%s\n' "${line// /\\ }"
	done
}

_zfstune_pools() {
	local dir
	{
		if [[ $OSTYPE == freebsd* ]]; then
			# a dot in a name is %25 there
			sysctl -N kstat.zfs 2>/dev/null |
				sed -n 's/%25/./g; s/^kstat\.zfs\.\(.*\)\.misc\..*/\1/p' | sort -u
		fi
		for dir in /proc/spl/kstat/zfs/*/; do
			[[ -d $dir ]] || continue
			dir=${dir%/}
			printf '%s\n' "${dir##*/}"
		done
	} | _zfstune_match "$1"
}

_zfstune_datasets() {
	if [[ $OSTYPE == freebsd* ]]; then
		sysctl kstat.zfs 2>/dev/null | sed -n 's/^kstat\.zfs\..*\.dataset_name: //p'
	else
		sed -n 's/^dataset_name *7 *//p' /proc/spl/kstat/zfs/*/objset-0x* 2>/dev/null
	fi | _zfstune_match "$1"
}

_zfstune_pools_datasets() {
	_zfstune_pools "$1"
	_zfstune_datasets "$1"
}

_zfstune_datasets_dirs() {
	_zfstune_datasets "$1"
	compgen -d -- "$1"
}

# Parameters of the loaded module.
_zfstune_parameters() {
	local file
	{
		[[ $OSTYPE != freebsd* ]] || sysctl -N vfs.zfs 2>/dev/null
		for file in /sys/module/zfs/parameters/*; do
			[[ ! -e $file ]] || printf '%s\n' "${file##*/}"
		done
	} | _zfstune_match "$1"
}

_zfstune_pids() {
	compgen -W "$(ps -axo pid=)" -- "$1"
}

_zfstune_users() {
	compgen -u -- "$1"
}

# One of the other words after the last comma of $1, without those that are there already.
_zfstune_list() {
	local typed=$1 before="" word
	shift
	[[ $typed != *,* ]] || before=${typed%,*},
	for word in "$@"; do
		[[ ,$before == *",$word,"* || ,$before == *",$word="* ]] || printf '%s\n' "$before$word"
	done | _zfstune_match "$typed"
}
