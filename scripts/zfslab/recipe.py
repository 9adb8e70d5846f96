"""What is in an image. The flavours are data; the key of an image is a hash of its recipe."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from .errors import USAGE, LabError

FORMAT = 1
"""Raised when the way an image is laid out changes, so that older ones are not used."""

_PACKAGES = (
    # the kernel and OpenZFS, compiled by DKMS in the chroot
    "linux-image-amd64",
    "linux-headers-amd64",
    "dkms",
    "zfs-dkms",
    "zfsutils-linux",
    # what is under test, and what it is compared with
    "bpftrace",
    "bpftool",
    "bpfcc-tools",
    "python3",
    "zlib1g",
    "libbpf1",
    "pahole",
    "gcc",
    "make",
    # workloads
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
    "udev",
    "util-linux",
)

# Kernel, ZFS and bpftool come from backports together with what has to match them.
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

# A kernel in backports may be newer than ZFS there can be compiled for: take the newest that the
# ZFS installed before it declares to support, with the initrd generator that needs no systemd.
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

# Documentation is not read in a guest, and the initial RAM disk that these hooks would fill is
# not used; leaving them out makes the build faster, too.
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
rm -rf /boot/initrd.img* /var/lib/dkms/zfs/*/build /var/cache/apt /var/lib/apt/lists
"""


@dataclass(frozen=True)
class Flavour:
    """One kernel and OpenZFS version of Debian."""

    name: str
    suite: str
    backports: bool
    about: str


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
    )
}
DEFAULT_FLAVOUR = "trixie"


def flavour(name: str) -> Flavour:
    """The flavour called `name`, or a LabError that lists them."""
    try:
        return FLAVOURS[name]
    except KeyError:
        raise LabError(f"flavour {name!r} is not known: use {', '.join(FLAVOURS)}", USAGE) from None


def mmdebstrap(flavour: Flavour, target: str, mirror: str | None = None) -> list[str]:
    """The command that writes the root file system of `flavour` as a tar archive to `target`.

    Without `mirror`, mmdebstrap's own default is used (Debian's mirror, security and updates).
    """
    packages = list(_PACKAGES)
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
        command += [f"--setup-hook={_backports_hook(flavour.suite)}"]
        command += [_in_chroot(_NEWEST_KERNEL)]
    command += [_in_chroot(_CLEAN)]
    command += [flavour.suite, target]
    return command if mirror is None else [*command, mirror]


def key(flavour: Flavour) -> str:
    """Twelve hexadecimal digits that change whenever the image would."""
    text = json.dumps([FORMAT, mmdebstrap(flavour, "-")])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _in_chroot(script: str) -> str:
    quoted = script.replace("'", "'\\''")
    return f"--customize-hook=chroot \"$1\" sh -c '{quoted}'"


def _backports_hook(suite: str) -> str:
    """Shell text that adds SUITE-backports on the mirror that SUITE itself comes from."""
    pins = "".join(
        f"Package: {pattern}\\nPin: release n={suite}-backports\\nPin-Priority: 990\\n\\n"
        for pattern in _BACKPORTED
    )
    return (
        f"sed -n 's/^\\(deb.*\\) {suite} \\(.*\\)$/\\1 {suite}-backports \\2/p' "
        '"$1/etc/apt/sources.list" >"$1/etc/apt/sources.list.d/backports.list" && '
        f"printf '{pins}' >\"$1/etc/apt/preferences.d/backports\""
    )
