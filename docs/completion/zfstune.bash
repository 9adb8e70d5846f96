# Completion of zfstune for bash. Pools and datasets come from the kstats, so
# that no command of ZFS runs on a host in trouble.
# shellcheck shell=bash

_zfstune_pools() {
	local dir
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
}

_zfstune_datasets() {
	if [[ $OSTYPE == freebsd* ]]; then
		sysctl kstat.zfs 2>/dev/null | sed -n 's/^kstat\.zfs\..*\.dataset_name: //p'
	else
		sed -n 's/^dataset_name *7 *//p' /proc/spl/kstat/zfs/*/objset-0x* 2>/dev/null
	fi
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

# Parameters of the loaded module.
_zfstune_parameters() {
	local file
	[[ $OSTYPE != freebsd* ]] || sysctl -N vfs.zfs 2>/dev/null
	for file in /sys/module/zfs/parameters/*; do
		[[ -e $file ]] && printf '%s\n' "${file##*/}"
	done
}

# The words for params: of a subcommand, or all subcommands and the options of list.
_zfstune_params() {
	if ((COMP_CWORD == 2)); then
		echo "list get explain set --all --changed --json --help"
		return
	fi
	case ${COMP_WORDS[2]} in
	get) _zfstune_parameters; echo "--value --json --help" ;;
	explain) _zfstune_parameters; echo "--json --help" ;;
	set) _zfstune_parameters; echo "--dry-run --force --json --help" ;;
	*) echo "--all --changed --json --help" ;;
	esac
}

# What a session can change, and what it measures.
_zfstune_tuned="zfs_dirty_data_max zfs_vdev_async_write_max_active zfs_vdev_async_write_min_active
zfs_dirty_data_sync_percent zfs_delay_min_dirty_percent
zfs_vdev_async_write_active_min_dirty_percent zfs_vdev_async_write_active_max_dirty_percent
zfs_delay_scale zfs_txg_timeout zfs_commit_timeout_pct zil_slog_bulk zfs_arc_max zfs_arc_min"
_zfstune_metrics="fsync.p50 fsync.p99 fsync.p999 fsync.mean write.throughput"

# One of the words $2 after the last comma of $1, without those that are there already.
_zfstune_list() {
	local before="" word
	[[ $1 != *,* ]] || before=${1%,*},
	for word in $2; do
		[[ ,$before == *",$word,"* || ,$before == *",$word="* ]] || printf '%s\n' "$before$word"
	done
}

# Directories are offered beside these.
_zfstune_bench() {
	_zfstune_datasets
	echo "--duration --test --jobs --with --size --raw --stages --no-trace --json --html --matrix --disk"
	echo "--slog --rows --yes --force-erase --keep-going --help"
}
_zfstune_tests="fdatasync fsync o_dsync two-fdatasync committers-2 committers-8 plain"

_zfstune_tune() {
	_zfstune_pools
	echo "--workload --observe --as --shell --budget --objective --limit --parameters --arc --block"
	echo "--max-latency --sampler --storage --study --seed --out --resume --no-flame --dry-run --yes"
	echo "--staging --json --help"
}

_zfstune() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local words=""

	COMPREPLY=()
	# bash makes a word of each = as well
	if [[ $cur == "=" ]]; then
		cur=""
	elif [[ $prev == "=" ]]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	# --objective fsync.p99=0.7,
	[[ " $_zfstune_metrics " != *" ${prev##*,} "* ]] || prev=--objective
	case $prev in
	--dataset) words=$(_zfstune_datasets) ;;
	--pid) mapfile -t COMPREPLY < <(compgen -W "$(ps -axo pid=)" -- "$cur") ;;
	--duration) words="5s 10s 30s 1m 5m" ;;
	--interval) words="1s 2s 5s 10s 1m" ;;
	--over) words="1ms 5ms 10ms 50ms 100ms 1s" ;;
	--pool) words=$(_zfstune_pools) ;;
	--source) words="bpf kstat" ;;
	--unit) words="ns us samples" ;;
	--kind) words="off-cpu on-cpu wakeup other" ;;
	-o | --output | --config) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--budget) words="10m 15m 30m 1h" ;;
	--block) words="10s 20s 30s" ;;
	--objective)
		words=$(_zfstune_list "$cur" "$_zfstune_metrics")
		compopt -o nospace 2>/dev/null
		;;
	--limit)
		words=$_zfstune_metrics
		compopt -o nospace 2>/dev/null
		;;
	--parameters)
		words=$(_zfstune_list "$cur" "$_zfstune_tuned")
		compopt -o nospace 2>/dev/null
		;;
	--sampler) words="tpe random grid" ;;
	--test)
		words=$(_zfstune_list "$cur" "$_zfstune_tests")
		compopt -o nospace 2>/dev/null
		;;
	--with) words="fio pg_test_fsync" ;;
	--matrix) words="reports-2014" ;;
	--for) words="postgresql mysql vm nfs files" ;;
	--as) mapfile -t COMPREPLY < <(compgen -u -- "$cur") ;;
	--from | --out | --resume | --storage | --html | --raw | --disk | --slog | --force-erase) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--count | --title | --workload | --max-latency | --seed | --study | --jobs | --size | --rows) ;;
	*)
		case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
		"doctor "* | "status "*) words="--json --help" ;;
		"flame "*)
			words=$(_zfstune_flame)
			if [[ ${COMP_WORDS[2]} == @(diff|convert) && $cur != -* ]]; then
				((COMP_CWORD == 2)) || words=""
				mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			fi
			;;
		"trace "*) words=$(_zfstune_trace) ;;
		"diagnose "*) words="$(_zfstune_pools) --duration --from --json --no-fentry --help" ;;
		"params "*) words=$(_zfstune_params) ;;
		"bench "*)
			words="$(_zfstune_bench)"
			[[ $cur == -* ]] || mapfile -t COMPREPLY < <(compgen -d -- "$cur")
			;;
		"advise "*) words="$(_zfstune_pools) $(_zfstune_datasets) --for --config --json --help" ;;
		"tune "*) words=$(_zfstune_tune) ;;
		"revert "*) words="--print --json --help" ;;
		"keep "*) words="$(_zfstune_parameters) --print --remove --json --help" ;;
		"recover "*) words="--wait --forget --help" ;;
		"report "*)
			words="--output --help"
			if [[ $cur != -* ]]; then
				words=""
				mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			fi
			;;
		*) words="doctor trace diagnose flame params advise bench tune status revert keep recover report --help --version" ;;
		esac
		;;
	esac
	[[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _zfstune zfstune
