# Of a package, when it is installed: another zfstune may be found first.
# shellcheck shell=sh
if [ -e /usr/local/bin/zfstune ]; then
	echo "zfstune: warning: /usr/local/bin/zfstune comes first in PATH: remove it if it is older" >&2
fi
