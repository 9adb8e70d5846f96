"""An image and an emulator for scripts/lab's tests: no real guest hangs at boot on request."""

from __future__ import annotations

import sys
from pathlib import Path

from zfslab import image, qemu

# The first boots, so many as `hangs`, do not come to the agent.
_EMULATOR = """#!{python}
import os, re, sys, time
from pathlib import Path
boots = Path(__file__).with_name("boots")
with boots.open("a") as f:
    f.write("boot\\n")
if boots.read_text().count("boot") <= {hangs}:
    {fault}
port = int(re.search(r"socket,id=agent,fd=(\\d+)", " ".join(sys.argv))[1])
for kind, content in {frames}:
    os.write(port, kind + len(content).to_bytes(4, "big") + content)
time.sleep(60)
"""


def fake_image(path: Path) -> image.Image:
    for name in ("disk.img", "vmlinuz", "initrd"):
        (path / name).write_bytes(b"x")
    return image.Image("trixie", "abc", path)


class FakeEmulator:
    """A program in `path` for QEMU that, at its first boots, hangs, fails an assertion, or ends
    when the kernel has printed `console`; then it sends the agent's frames."""

    def __init__(
        self,
        path: Path,
        hangs: int,
        frames: list[tuple[bytes, bytes]],
        *,
        crashes: bool = False,
        console: str = "",
    ) -> None:
        program = path / "qemu"
        fault = "sys.exit('physmem.c:2678: Assertion failed.')" if crashes else "time.sleep(60)"
        if console:
            fault = (
                'out = re.search(r"id=console,path=(\\S+)", " ".join(sys.argv))[1]; '
                f"Path(out).write_text({console!r}); sys.exit(0)"
            )
        program.write_text(
            _EMULATOR.format(python=sys.executable, hangs=hangs, frames=frames, fault=fault)
        )
        program.chmod(0o755)
        self.qemu = qemu.Qemu(str(program), (10, 0, 2))
        self._boots = path / "boots"

    def boots(self) -> int:
        """How often it was started."""
        return self._boots.read_text().count("boot")
