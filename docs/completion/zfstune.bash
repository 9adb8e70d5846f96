# Completion of zfstune for bash. Pools and datasets come from the kstats, so
# that no command of ZFS runs on a host in trouble.
# shellcheck shell=bash

_zfstune_pools() {
	local dir
	for dir in /proc/spl/kstat/zfs/*/; do
		[[ -d $dir ]] || continue
		dir=${dir%/}
		printf '%s\n' "${dir##*/}"
	done
}

_zfstune_datasets() {
	sed -n 's/^dataset_name *7 *//p' /proc/spl/kstat/zfs/*/objset-0x* 2>/dev/null
}

_zfstune() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local words="" options="--dataset --pid --duration --json --no-fentry --help"

	COMPREPLY=()
	case $prev in
	--dataset) words=$(_zfstune_datasets) ;;
	--pid) mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur") ;;
	--duration) words="5s 10s 30s 1m 5m" ;;
	--interval) words="1s 2s 5s 10s 1m" ;;
	--over) words="1ms 5ms 10ms 50ms 100ms 1s" ;;
	--count) ;;
	*)
		case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
		"doctor "*) words="--json --help" ;;
		"trace fsync" | "trace slow")
			if ((COMP_CWORD == 2)); then
				words="fsync slow"
			elif [[ ${COMP_WORDS[2]} == fsync ]]; then
				words="$(_zfstune_pools) $options --interval --histogram"
			else
				words="$(_zfstune_pools) $options --over --count"
			fi
			;;
		"trace "*) words="fsync slow --help" ;;
		*) words="doctor trace --help --version" ;;
		esac
		;;
	esac
	[[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _zfstune zfstune
