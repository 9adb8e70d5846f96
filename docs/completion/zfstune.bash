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

# The words for flame: of a recording, or of a command on files.
_zfstune_flame() {
	case ${COMP_WORDS[2]} in
	diff) ((COMP_CWORD == 2)) || echo "--output --unit --title --inverted --help" ;;
	convert) ((COMP_CWORD == 2)) || echo "--output --unit --kind --title --inverted --help" ;;
	*)
		echo "--off-cpu --on-cpu --wakeup --txg-sync --all-zfs --pid --pool --duration"
		echo "--output --title --inverted --help"
		;;
	esac
	((COMP_CWORD > 2)) || echo "diff convert"
}

# The words for trace: of a subcommand, or all subcommands and the options of none.
_zfstune_trace() {
	local options="--duration --json --no-fentry --help"

	case ${COMP_WORDS[2]} in
	fsync) _zfstune_pools; options+=" --dataset --pid --interval --histogram" ;;
	slow) _zfstune_pools; options+=" --dataset --pid --over --count" ;;
	txg) _zfstune_pools; options+=" --count --source" ;;
	throttle) _zfstune_pools; options+=" --pid --interval" ;;
	device) _zfstune_pools; options+=" --interval" ;;
	arc) options+=" --interval --count --source" ;;
	*) options+=" --pool --interval" ;;
	esac
	((COMP_CWORD > 2)) || options="fsync slow txg throttle device arc $options"
	echo "$options"
}

_zfstune() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local words=""

	COMPREPLY=()
	case $prev in
	--dataset) words=$(_zfstune_datasets) ;;
	--pid) mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur") ;;
	--duration) words="5s 10s 30s 1m 5m" ;;
	--interval) words="1s 2s 5s 10s 1m" ;;
	--over) words="1ms 5ms 10ms 50ms 100ms 1s" ;;
	--pool) words=$(_zfstune_pools) ;;
	--source) words="bpf kstat" ;;
	--unit) words="ns us samples" ;;
	--kind) words="off-cpu on-cpu wakeup other" ;;
	-o | --output) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--count | --title) ;;
	*)
		case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
		"doctor "*) words="--json --help" ;;
		"flame "*)
			words=$(_zfstune_flame)
			if [[ ${COMP_WORDS[2]} == @(diff|convert) && $cur != -* ]]; then
				((COMP_CWORD == 2)) || words=""
				mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			fi
			;;
		"trace "*) words=$(_zfstune_trace) ;;
		*) words="doctor trace flame --help --version" ;;
		esac
		;;
	esac
	[[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _zfstune zfstune
