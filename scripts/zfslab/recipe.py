"""What is in an image. The flavours are data; the key of an image is a hash of its recipe."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from .errors import USAGE, LabError

# Increased when the layout of an image changes, so that older ones are not used
FORMAT = 1

_PACKAGES = (
    # the kernel and OpenZFS, compiled by DKMS in the chroot
    "linux-image-amd64",
    "linux-headers-amd64",
    "dkms",
    "zfs-dkms",
    "zfsutils-linux",
    # what is tested, and what it is compared with
    "bpftrace",
    "bpftool",
    "bpfcc-tools",
    "python3",
    "zlib1g",
    "libbpf1",
    "pahole",
    "gcc",
    "make",
    # for `zfstune tune`; optuna, which Debian lacks, comes from .venv/guest
    "python3-alembic",
    "python3-colorlog",
    "python3-numpy",
    "python3-packaging",
    "python3-sqlalchemy",
    "python3-tqdm",
    "python3-yaml",
    # workloads
    "e2fsprogs",
    "fio",
    "stress-ng",
    # the system around it
    "busybox-static",
    "dmsetup",
    "kmod",
    "mount",
    "procps",
    "psmisc",
    "strace",
    "systemd",
    "udev",
    "util-linux",
)

# Kernel, ZFS and bpftool come from backports, with everything that must match them.
_BACKPORTED = (
    "linux-image-*",
    "linux-headers-*",
    "linux-kbuild-*",
    "linux-base",
    "linux-binary-*",
    "linux-modules-*",
    "linux-libc-dev",
    "zfs*",
    "libzfs*",
    "libnvpair*",
    "libuutil*",
    "libzpool*",
    "bpftool",
)

# A kernel in backports may be too new for ZFS there: take the newest that the ZFS installed before
# declares to support, with the initrd generator that needs no systemd.
_NO_KERNEL = {"linux-image-amd64", "linux-headers-amd64"}
_NEWEST_KERNEL = """
set -e
maximum=$(sed -n "s/^Linux-Maximum: *//p" /usr/src/zfs-*/META)
release=$(apt-cache pkgnames linux-image- |
    sed -n 's/^linux-image-\\([0-9.]*+deb[0-9]*-amd64\\)$/\\1/p' | sort -V |
    awk -v maximum="$maximum" '
        BEGIN { split(maximum, most, ".") }
        { split($0, is, ".") }
        is[1] < most[1] || (is[1] == most[1] && is[2] <= most[2]) { found = $0 }
        END { print found }')
echo "ZFS supports kernels up to $maximum, taking ${release:?no kernel found}"
apt-get install -y --no-install-recommends "linux-image-$release" "linux-headers-$release" || {
    tail -n 60 /var/lib/dkms/zfs/*/build/make.log
    exit 1
}
"""

# DTrace for Linux is in sid only. Its dependencies come from Debian 13 where they are new enough;
# apt fails rather than remove or upgrade anything for it (it would remove zfs-dkms).
_DTRACE = """
set -e
apt-get install -y --no-install-recommends --no-remove --no-upgrade dtrace
dpkg-query -W zfs-dkms zfsutils-linux
dtrace -V
"""

# OpenZFS from a source tree or archive takes the place of these.
_OF_ZFS = {"dkms", "zfs-dkms", "zfsutils-linux"}
_TO_COMPILE_ZFS = (
    "autoconf",
    "automake",
    "libblkid-dev",
    "libelf-dev",
    "libssl-dev",
    "libtirpc-dev",
    "libtool",
    "libudev-dev",
    "uuid-dev",
    "xz-utils",
    "zlib1g-dev",
)
_SOURCE = "/usr/src/zfs.tar"

# The modules go where DKMS would put them.
_COMPILE_ZFS = f"""
set -e
mkdir /usr/src/zfs
cd /usr/src/zfs
tar -xf {_SOURCE} --strip-components=1
[ -e configure ] || sh autogen.sh
release=$(ls /lib/modules)
./configure --prefix=/usr --sysconfdir=/etc --localstatedir=/var \\
    --libdir="/usr/lib/$(gcc -print-multiarch)" --disable-pyzfs --disable-static \\
    --with-linux="/lib/modules/$release/source" --with-linux-obj="/lib/modules/$release/build"
# ZFS's own tests are not needed, and archives made from git may lack their binary files
subdirs=$(make -s --eval='zfslab: ; @echo $(filter-out tests tests/%,$(SUBDIRS))' zfslab)
echo "SUBDIRS = $subdirs" >>Makefile
make -j"$(nproc)"
make install INSTALL_MOD_DIR=updates/dkms INSTALL_MOD_STRIP=1
ldconfig
modinfo -F version "/lib/modules/$release/updates/dkms/zfs.ko" >/etc/zfs-source
cd /
rm -rf /usr/src/zfs /usr/share/zfs/zfs-tests {_SOURCE}
"""

# What docs/tools/zfstune-doctor.md tells the user to do. In a chroot /sys is not that of the
# image's kernel, so its BTF comes from its file, in which the kernel is compressed by xz.
_KEEP_DEBUG = 'echo ZFS_DKMS_DISABLE_STRIP=y >"$1/etc/dkms/zfs.conf"'
_BTF = """
set -e
release=$(ls /lib/modules)
python3 - "/boot/vmlinuz-$release" /tmp/vmlinux <<END
import lzma, sys
image = open(sys.argv[1], "rb").read()
kernel = lzma.LZMADecompressor().decompress(image[image.index(b"\\xfd7zXZ\\0"):])
open(sys.argv[2], "wb").write(kernel)
END
cd "/lib/modules/$release/updates/dkms"
export LLVM_OBJCOPY=objcopy
for module in zfs.ko spl.ko; do
    pahole -J --btf_base /tmp/vmlinux "$module"
    strip -g "$module"
    readelf -S "$module" | grep -q "\\.BTF"
done
rm /tmp/vmlinux
"""

# Nobody reads documentation in a guest, and the initial RAM disk that these hooks fill is not used;
# the build is faster without them.
_EXCLUDED = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/initramfs-tools/hooks/*",
)

_CLEAN = """
set -e
for module in /lib/modules/*/updates/dkms/*.ko.xz; do
    [ -e "$module" ] && xz -d "$module"
done
for release in /lib/modules/*; do
    [ -e "$release/updates/dkms/zfs.ko" ] || {
        echo "zfs.ko is missing for $release; the end of DKMS' log:" >&2
        tail -n 40 /var/lib/dkms/zfs/*/build/make.log >&2 || :
        exit 1
    }
    depmod "${release##*/}"
done
mkdir -p /etc/zfslab /zfstune /share /out
dpkg-query -W -f '${Package} ${Version}\\n' >/etc/zfslab/packages
[ ! -e /etc/zfs-source ] || echo "zfs-source $(cat /etc/zfs-source)" >>/etc/zfslab/packages
echo /zfstune/.venv/guest >/usr/lib/python3/dist-packages/zfslab.pth
rm -rf /boot/initrd.img* /var/lib/dkms/zfs/*/build /var/cache/apt /var/lib/apt/lists
"""


@dataclass(frozen=True)
class Flavour:
    """One kernel and OpenZFS version of Debian."""

    name: str
    suite: str
    backports: bool
    about: str
    dtrace: bool = False
    btf: bool = False  # the module is given BTF
    source: bool = False  # OpenZFS is compiled from a tree or archive given at the build


FLAVOURS = {
    flavour.name: flavour
    for flavour in (
        Flavour("trixie", "trixie", False, "Debian 13: kernel 6.12, ZFS 2.3, module BTF"),
        Flavour("bookworm", "bookworm", False, "Debian 12: kernel 6.1, ZFS 2.1, no module BTF"),
        Flavour(
            "trixie-backports",
            "trixie",
            True,
            "Debian 13, kernel and ZFS 2.4 from backports, module BTF",
        ),
        Flavour(
            "trixie-dtrace",
            "trixie",
            False,
            "trixie with DTrace for Linux, which is from sid",
            dtrace=True,
        ),
        Flavour(
            "bookworm-btf",
            "bookworm",
            False,
            "bookworm whose ZFS was given BTF as the manual says",
            btf=True,
        ),
    )
}
DEFAULT_FLAVOUR = "trixie"


@dataclass(frozen=True)
class Release:
    """A release of FreeBSD, whose own VM image is prepared unless another one is given."""

    name: str
    release: str
    about: str


FREEBSD = {
    one.name: one
    for one in (
        Release("freebsd-15", "15.1-RELEASE", "FreeBSD 15, ZFS 2.4, DTrace"),
        Release("freebsd-14", "14.4-RELEASE", "FreeBSD 14, ZFS 2.2, DTrace"),
    )
}
NAMES = (*FLAVOURS, *FREEBSD)

# What nuageinit(7) runs at the first boot of FreeBSD's image. An image must do what its rc.local
# does: unpack the disk with the serial number VZJOB into /job, and run /job/run.sh.
PREPARE = r"""#!/bin/sh
exec >/dev/console 2>&1
export ASSUME_ALWAYS_YES=yes PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin
pkg bootstrap && pkg install python3 fio || { echo "pkg failed"; shutdown -p now; exit 1; }
sysrc kld_list+=" zfs dtraceall" zfs_enable=NO sshd_enable=NO sendmail_enable=NONE \
    cron_enable=NO dumpdev=NO growfs_enable=NO ifconfig_DEFAULT= ifconfig_vtnet0=
cat >>/boot/loader.conf.local <<END
autoboot_delay="-1"
boot_serial="YES"
console="comconsole"
kern.geom.label.disk_ident.enable="1"
END
cat >/etc/rc.local <<'END'
#!/bin/sh
export PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin HOME=/root
[ -e /dev/diskid/DISK-VZJOB ] || exit 0
mkdir -p /job
tar -xf /dev/diskid/DISK-VZJOB -C /job && cd /job && sh ./run.sh
END
rm -f /firstboot
kldload -n zfs
echo "zfslab-prepared $(uname -r) $(sysctl -n vfs.zfs.version.module)"
shutdown -p now
"""


def flavour(name: str) -> Flavour | Release:
    """The flavour called `name`: one of the tables, or trixie or bookworm with a word of the
    user's for the OpenZFS that is compiled for it, "bookworm-2.2". Raises LabError, which lists
    them."""
    if name in FREEBSD:
        return FREEBSD[name]
    if name in FLAVOURS:
        return FLAVOURS[name]
    base, _, word = name.partition("-")
    if base in FLAVOURS and re.fullmatch(r"[a-z0-9][a-z0-9.]*", word):
        about = f"{base} with OpenZFS from source"
        return Flavour(name, FLAVOURS[base].suite, False, about, source=True)
    hint = f"use {', '.join(NAMES)}, or one like bookworm-2.2 built with --zfs-source"
    raise LabError(f"unknown flavour {name!r}", hint, status=USAGE)


def compiles(name: str) -> bool:
    """Whether OpenZFS is compiled for flavour `name` from a source that is given."""
    found = flavour(name)
    return isinstance(found, Flavour) and found.source


def mmdebstrap(
    flavour: Flavour, target: str, mirror: str | None = None, source: str | None = None
) -> list[str]:
    """The command that writes the root file system of `flavour` as a tar archive to `target`.

    Without `mirror`, mmdebstrap uses its default (Debian's mirror, security and updates). `source`
    is the archive of OpenZFS for a flavour that compiles it.
    """
    packages = list(_PACKAGES)
    if flavour.source:
        packages = [*(name for name in packages if name not in _OF_ZFS), *_TO_COMPILE_ZFS]
    if flavour.backports:
        packages = [name for name in packages if name not in _NO_KERNEL] + ["initramfs-tools"]
    command = [
        "mmdebstrap",
        "--variant=apt",
        "--format=tar",
        "--components=main,contrib",
        f"--include={','.join(packages)}",
        "--dpkgopt=force-unsafe-io",
    ]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED]
    if flavour.backports:
        hook = _other_suite_hook(flavour.suite, f"{flavour.suite}-backports", _BACKPORTED, 990)
        command += [f"--setup-hook={hook}"]
        command += [_in_chroot(_NEWEST_KERNEL)]
    if flavour.dtrace:
        # sid's Release file is not always renewed in time
        command += ['--aptopt=Acquire::Check-Valid-Until "false"']
        command += [f"--setup-hook={_other_suite_hook(flavour.suite, 'sid', ('*',), 50)}"]
        command += [_in_chroot(_DTRACE)]
    if flavour.btf:
        command += [f'--essential-hook=mkdir -p "$1/etc/dkms"; {_KEEP_DEBUG}', _in_chroot(_BTF)]
    if flavour.source:
        command += [f"--customize-hook=upload {source or '-'} {_SOURCE}", _in_chroot(_COMPILE_ZFS)]
    command += [_in_chroot(_CLEAN)]
    command += [flavour.suite, target]
    return command if mirror is None else [*command, mirror]


def key(flavour: Flavour | Release) -> str:
    """Twelve hexadecimal digits that change whenever the image would."""
    if isinstance(flavour, Release):
        return _hash([FORMAT, flavour.release, PREPARE])
    return _hash([FORMAT, mmdebstrap(flavour, "-")])


def _hash(made: list[object]) -> str:
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()[:12]


def _in_chroot(script: str) -> str:
    quoted = script.replace("'", "'\\''")
    return f"--customize-hook=chroot \"$1\" sh -c '{quoted}'"


def _other_suite_hook(suite: str, other: str, packages: tuple[str, ...], priority: int) -> str:
    """Shell text that adds suite `other` from the mirror of `suite`."""
    name = other.removeprefix(f"{suite}-")
    pins = "".join(
        f"Package: {pattern}\\nPin: release n={other}\\nPin-Priority: {priority}\\n\\n"
        for pattern in packages
    )
    return (
        f"sed -n 's/^\\(deb.*\\) {suite} \\(.*\\)$/\\1 {other} \\2/p' "
        f'"$1/etc/apt/sources.list" >"$1/etc/apt/sources.list.d/{name}.list" && '
        f"printf '{pins}' >\"$1/etc/apt/preferences.d/{name}\""
    )
