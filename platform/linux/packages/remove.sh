# Of a package, before its files go: restores all parameters that zfstune has changed, because
# afterwards nothing here could. While a session runs, or where something cannot be restored, the
# package stays.
# shellcheck shell=sh
# one of `make install` may be older
PATH=/usr/sbin:/usr/bin:/sbin:/bin
if [ -e /run/zfstune/lock ] && ! flock -w 2 /run/zfstune/lock true; then
	running=$(zfstune status 2>/dev/null | grep 'is running' || true)
	echo "zfstune: error: the package stays: ${running:-a session is running}" >&2
	echo "hint: wait until it ends, or stop it; it restores the parameters itself" >&2
	exit 1
fi
# without the module there are no values; the copy in /var/lib says what there was
[ -d /sys/module/zfs ] || rm -f /run/zfstune/journal
if [ -d /sys/module/zfs ] && { [ -e /run/zfstune/journal ] || [ -e /var/lib/zfstune/journal ]; }; then
	zfstune revert || {
		echo "zfstune: error: the package stays: not all parameters are restored" >&2
		echo "hint: \`zfstune status\` says what is left; then remove the package again" >&2
		exit 1
	}
fi
