# Of a package, when its files are gone: removes the journal, but not that of another zfstune, e.g.
# of a checkout, and what the flight recorder has kept.
# shellcheck shell=sh
if [ -e /run/zfstune/lock ] && ! flock -w 2 /run/zfstune/lock true ||
	{ [ -d /sys/module/zfs ] && [ -e /run/zfstune/journal ]; }; then
	echo "zfstune: error: /run/zfstune stays: another zfstune has changed parameters" >&2
	echo "hint: run its \`zfstune revert\`, then purge this one again" >&2
	exit 1
fi
rm -rf /run/zfstune /run/zfstune-exporter /var/lib/zfstune
