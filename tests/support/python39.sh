#!/bin/sh
# The part of scripts/python39 that runs in the chroot.
set -eu
cd /tree
export PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8
mkdir -p /usr/local/lib/python3.9/dist-packages
mv /packages/* /usr/local/lib/python3.9/dist-packages/
# tests read TOML, what is tested does not (vermin)
echo 'from tomli import *' >/usr/local/lib/python3.9/dist-packages/tomllib.py
# as on each host; mmdebstrap leaves none
echo '127.0.0.1 localhost' >/etc/hosts
python3 --version

# COMMAND: it runs without what the host of the tests has
try() {
	"$@" --version
	"$@" tools list >/dev/null
	"$@" licences >/dev/null
	# no ZFS here
	status=0
	found=$("$@" doctor) || status=$?
	echo "$found"
	[ "$status" = 3 ]
	echo "$found" | grep -q '^libzfstrace  .*\(loaded from memory\|/libzfstrace\.so\)$'
}

try python3 dist/*.pyz
python3 -m venv /wheel
/wheel/bin/pip install --quiet --no-index dist/*.whl
try /wheel/bin/zfstune

# Those of what runs on hosts. generate.py and compile_completion.py are for newer versions.
[ -n "$(cat paths)" ] || for path in tests/unit/*; do
	case ${path##*/} in
	conftest.py | lab | libzfstrace | scripts | support | test_completion.py | tools) ;;
	*) echo "$path" ;;
	esac
done >paths
# two are about the library of `make`
# shellcheck disable=SC2046 # a word for each path
PYTHONPATH=tests exec python3 -m pytest -p support.python39 -p no:cacheprovider -q \
	--deselect tests/unit/zfstrace/bpf/test_binding.py::test_the_library_runs_on_debian_12 \
	--deselect tests/unit/zfstrace/bpf/test_loading.py::test_files_that_do_not_load_are_told_apart \
	$(cat paths)
