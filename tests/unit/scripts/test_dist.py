"""`make dist`: the one file holds what it needs, runs anywhere, and says why where it cannot."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import io
import marshal
import os
import re
import shutil
import subprocess
import sys
import threading
import tokenize
import zipfile
import zlib
from pathlib import Path

import pytest
from support.paths import ROOT

from benchmarks import start
from dist import importer, pack
from zfstune import __version__

MACHINES = ("x86_64", "aarch64")
HERE = os.uname().machine
GLIBC = (2, 28)
LIBC = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


@pytest.fixture(scope="module")
def made() -> Path:
    """The folder of the files, as `make dist` makes them of this checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--no-print-directory", "dist", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return ROOT / "dist"


def one_file(made: Path, machine: str = HERE) -> Path:
    return made / f"zfstune-{__version__}-linux-{machine}.pyz"


def library(machine: str) -> Path:
    return ROOT / f"build/dist/{machine}/libzfstrace.so"


def run(*command: str | Path, cwd: Path, **env: str) -> tuple[int, str]:
    """Status and output of a command with nothing but env."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout


def readelf(option: str, path: Path) -> str:
    command = ["readelf", "-W", option, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("machine", MACHINES)
def test_it_is_less_than_a_megabyte_and_has_a_checksum(made: Path, machine: str) -> None:
    data = one_file(made, machine).read_bytes()
    assert len(data) < 1_000_000
    line = f"{hashlib.sha256(data).hexdigest()}  {one_file(made, machine).name}"
    assert line in (made / "SHA256SUMS").read_text().split("\n")


def test_packing_it_again_makes_equal_bytes(made: Path, tmp_path: Path) -> None:
    """From another folder, too; and the libraries do not know in which one they were made."""
    command = [sys.executable, "-X", "no_debug_ranges", str(ROOT / "scripts/dist/pack.py")]
    env = os.environ | {"PYTHONHASHSEED": "0"}
    libraries = [str(library(machine)) for machine in MACHINES]
    subprocess.run([*command, *libraries, "--output", "again"], cwd=tmp_path, env=env, check=True)
    for machine in MACHINES:
        assert (
            one_file(tmp_path / "again", machine).read_bytes()
            == one_file(made, machine).read_bytes()
        )
        assert str(ROOT).encode() not in library(machine).read_bytes()


@pytest.mark.usefixtures("made")
def test_a_change_of_its_rules_compiles_all_again() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    for changed, again in (("scripts/dist/rules.mk", True), ("README.md", False)):
        command = ["make", "--dry-run", "--what-if", changed, "dist", f"PYTHON={sys.executable}"]
        text = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=True
        ).stdout
        for machine in MACHINES:
            for name in ("libbpf.a", "libelf.a", "libz.a", "fsync.bpf.o.tmp", "libzfstrace.so.tmp"):
                assert (f"build/dist/{machine}/{name}" in text) == again, (changed, machine, name)


@pytest.mark.usefixtures("made")
def test_an_archive_is_made_of_no_object_of_older_sources() -> None:
    """A newer release may lack one of the files."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    folder = f"build/dist/{HERE}/libz"
    command = ["make", "--dry-run", "--what-if", "scripts/dist/rules.mk", f"{folder}.a"]
    text = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=True
    ).stdout
    assert f"rm -rf {folder}\n" in text[: text.index("xargs")]


def test_two_packers_take_turns(tmp_path: Path) -> None:
    """`make -j2 dist wheel`: the sum of a file that is half written would be wrong."""
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    packer = threading.Thread(target=pack.write, args=(tmp_path, "a.pyz", b"a"), daemon=True)
    packer.start()
    packer.join(0.3)
    assert list(tmp_path.iterdir()) == []
    os.close(other)
    packer.join(60)
    sums = (tmp_path / "SHA256SUMS").read_text()
    assert sums == f"{hashlib.sha256(b'a').hexdigest()}  a.pyz\n"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.usefixtures("made")
def test_the_library_needs_only_an_old_libc(machine: str) -> None:
    """A later glibc than that of the compiler's host may add names: scripts/dist/old_glibc.c."""
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", library(machine))))
    assert "libc.so.6" in needed <= LIBC
    symbols = re.findall(r"UND (\S+)@GLIBC_([0-9.]+)", readelf("--dyn-syms", library(machine)))
    assert len(symbols) > 50
    late = [name for name, version in symbols if tuple(map(int, version.split("."))) > GLIBC]
    assert late == []


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.usefixtures("made")
def test_the_library_is_of_its_machine_and_exports_only_its_own(machine: str) -> None:
    assert pack.machine(library(machine).read_bytes()) == machine
    names = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
    assert names[machine] in readelf("-h", library(machine))
    exported = re.findall(
        r"(?:GLOBAL|WEAK) +DEFAULT +\d+ (\w+)", readelf("--dyn-syms", library(machine))
    )
    assert "zfstrace_abi" in exported
    assert [name for name in exported if not name.startswith("zfstrace_")] == []


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.usefixtures("made")
def test_its_programs_read_the_registers_of_its_machine(machine: str) -> None:
    objects = sorted(library(machine).parent.glob("*.bpf.o"))
    assert [path.name for path in objects] == [
        f"{path.name[:-2]}.o" for path in sorted((ROOT / "tracers/bpf").glob("*.bpf.c"))
    ]
    for path in objects:
        assert "Linux BPF" in readelf("-h", path)
        assert path.read_bytes() in library(machine).read_bytes()
    other = next(one for one in MACHINES if one != machine)
    fsync, theirs = (library(one).parent / "fsync.bpf.o" for one in (machine, other))
    assert fsync.read_bytes() != theirs.read_bytes()


def test_it_runs_without_home_from_a_folder_that_only_reads(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir()
    copy = folder / "renamed"
    shutil.copy(one_file(made), copy)
    folder.chmod(0o555)
    before = set(tmp_path.rglob("*"))
    assert run(copy, "--version", cwd=tmp_path) == (0, f"zfstune {__version__}\n")
    status, doctor = run(sys.executable, "read-only/renamed", "doctor", cwd=tmp_path)
    assert status in (1, 3), doctor
    assert f"in {copy}, loaded from memory" in " ".join(doctor.split())
    assert set(tmp_path.rglob("*")) == before


def test_the_commands_that_need_no_host_work(made: Path, tmp_path: Path) -> None:
    stacks = tmp_path / "stacks"
    stacks.write_text("fsync;zil_commit;zil_commit_impl 42\n")
    command = (sys.executable, one_file(made))
    status, text = run(*command, "flame", "convert", stacks, "-o", "out.svg", cwd=tmp_path)
    assert status == 0, text
    assert "zil_commit_impl" in (tmp_path / "out.svg").read_text()
    status, text = run(*command, "params", "explain", "zfs_txg_timeout", cwd=tmp_path)
    assert "zfs_txg_timeout" in text


REFUSED = """\
import os, runpy, sys
def refuse(*_):
    raise PermissionError(13, "Permission denied")
os.memfd_create = refuse
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_without_memfd_it_loads_a_copy_and_leaves_nothing(made: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-c", REFUSED, one_file(made), "doctor")
    _, text = run(*command, cwd=tmp_path, TMPDIR=str(tmp_path))
    found = f"loaded from a copy in {tmp_path} (memory: Permission denied)"
    assert found in " ".join(text.split())
    assert list(tmp_path.iterdir()) == []


def test_what_runs_does_not_need_the_file_any_more(made: Path, tmp_path: Path) -> None:
    """It is written anew, in place, after the first command; the second loads other modules."""
    copy = tmp_path / "zfstune.pyz"
    shutil.copy(one_file(made), copy)
    script = (
        "import runpy, sys; sys.argv = [sys.argv[1], '--version']\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit: pass\n"
        "with open(sys.argv[0], 'wb') as file: file.write(b'#!/bin/false\\n' * 30000)\n"
        "from zfstune.__main__ import main\n"
        "sys.argv[1:] = ['licences']; sys.exit(main())\n"
    )
    status, text = run(sys.executable, "-I", "-c", script, str(copy), cwd=tmp_path)
    assert status == 0, text
    assert text.startswith(f"zfstune {__version__}\n")
    assert "libbpf" in text


def test_a_wrong_machine_is_one_line(made: Path, tmp_path: Path) -> None:
    other = next(machine for machine in MACHINES if machine != HERE)
    status, text = run(sys.executable, one_file(made, other), "doctor", cwd=tmp_path)
    assert status == 3
    text = " ".join(text.split())
    assert f"is for {other}, and this machine is {HERE}; use the file whose name ends in" in text


SILENT = 38  # docs/install.md: of so many bytes, all are a comment for Python


@pytest.mark.parametrize("size", [100, 5000, 500_000, -1, -30_000])
def test_a_file_cut_short_says_so(made: Path, tmp_path: Path, size: int) -> None:
    cut = tmp_path / "zfstune.pyz"
    cut.write_bytes(one_file(made).read_bytes()[:size])
    cut.chmod(0o755)
    for command in ((sys.executable, cut), (cut,)):
        status, text = run(*command, "--version", cwd=tmp_path)
        assert status == 1
        assert "zfstune-is-cut-short.copy-the-file-again" in text
        assert "Traceback" not in text


@pytest.mark.parametrize("size", [SILENT + 1, SILENT + 2, SILENT + 7, len(pack.HEAD) - 1])
def test_one_cut_in_its_first_line_says_so(tmp_path: Path, size: int) -> None:
    cut = tmp_path / "zfstune.pyz"
    cut.write_bytes(pack.HEAD[:size])
    status, text = run(sys.executable, cut, "--version", cwd=tmp_path)
    assert (status, len(text.splitlines())) == (1, 1)
    assert pack.HEAD[SILENT:size].decode().strip() in text


def test_every_cut_after_a_few_bytes_is_no_program() -> None:
    """What Python asks of a file's first line before it reads the rest, for each length."""
    for size in range(SILENT + 1, len(pack.HEAD) + 1):
        with pytest.raises(SyntaxError):
            tokenize.detect_encoding(io.BytesIO(pack.HEAD[:size]).readline)
    assert f"less than {SILENT + 1} bytes" in (ROOT / "docs/install.md").read_text()


def damage(path: Path, name: str, bad: Path) -> None:
    """Copies the one file, with zeros in the middle of a file inside."""
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        inside = archive.getinfo(name)
    at = inside.header_offset + inside.compress_size // 2
    data[at : at + 8] = b"\0" * 8
    bad.write_bytes(data)


def damage_is_said(bad: Path, *command: str) -> None:
    status, text = run(sys.executable, bad, *command, cwd=bad.parent)
    assert status == 3
    assert "is damaged" in text
    assert "copy the file again" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (importer.CODE, ("--version",)),
        ("zfstrace/bpf/libzfstrace.so.xz", ("doctor",)),
        ("zfstune/inside/tools.json.xz", ("tools", "list")),
        ("zfstune/inside/licences.json.xz", ("licences",)),
    ],
)
def test_damage_inside_it_says_so(
    name: str, command: tuple[str, ...], made: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "zfstune.pyz"
    damage(one_file(made), name, bad)
    damage_is_said(bad, *command)


def test_another_python_compiles_the_sources(made: Path, tmp_path: Path) -> None:
    """One for which there is no byte code, and to which damage of the sources matters."""
    other = tmp_path / "other.pyz"
    start.without_byte_code(one_file(made), other)
    for words in (("--version",), ("tune", "-h"), ("licences",)):
        done = run(sys.executable, other, *words, cwd=tmp_path)
        assert done == run(sys.executable, one_file(made), *words, cwd=tmp_path)
        assert done[0] == 0
    bad = tmp_path / "zfstune.pyz"
    damage(other, importer.SOURCES, bad)
    damage_is_said(bad, "--version")


@pytest.mark.parametrize("byte_code", [True, False])
def test_tracebacks_show_source(byte_code: bool, made: Path, tmp_path: Path) -> None:
    file = one_file(made)
    if not byte_code:
        file = tmp_path / "other.pyz"
        start.without_byte_code(one_file(made), file)
    script = (
        "import runpy, sys, traceback; sys.argv = [sys.argv[1], '--version']\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit: pass\n"
        "from zfstrace import packaged\n"
        "try: packaged.read('nothing', '')\n"
        "except OSError: traceback.print_exc()\n"
    )
    _, text = run(sys.executable, "-I", "-c", script, file, cwd=tmp_path)
    (line,) = [
        number
        for number, line in enumerate(
            (ROOT / "tracers/zfstrace/packaged.py").read_text().split("\n"), 1
        )
        if "raise FileNotFoundError" in line
    ]
    assert f'File "zfstrace/packaged.py", line {line}, in read\n    raise FileNotFound' in text


def doctor_where(change: str, made: Path, cwd: Path) -> tuple[int, str]:
    """`doctor` of the one file in a Python that is changed like this."""
    script = (
        f"import runpy, sys; {change}; sys.argv[:] = sys.argv[1:];"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return run(sys.executable, "-c", script, one_file(made), "doctor", cwd=cwd)


def test_an_old_python_is_refused_in_one_line(made: Path, tmp_path: Path) -> None:
    status, text = doctor_where("sys.version_info = (3, 8, 10)", made, tmp_path)
    assert status == 1
    first, hint = text.splitlines()
    assert first == "zfstune: error: Python 3.9 or newer is needed: this is 3.8"
    assert hint.startswith("hint: ")
    # an old one reads all of it before it runs the first line
    with zipfile.ZipFile(one_file(made)) as archive:
        ast.parse(archive.read("__main__.py"), feature_version=(3, 4))


def test_a_python_without_lzma_is_refused_in_one_line(made: Path, tmp_path: Path) -> None:
    status, text = doctor_where("sys.modules['_lzma'] = None", made, tmp_path)
    assert status == 1
    first, hint = text.splitlines()
    assert first == f"zfstune: error: this Python, {sys.executable}, has no module lzma"
    assert hint.startswith("hint: ")


def test_modules_keep_their_lines() -> None:
    source = (
        b'"""Doc."""\n# why\nx = "# no comment"  # one\n'
        b'def f():\n    """One\n    two."""\n    return 1\n'
    )
    bare = pack.bare(source)
    assert bare == b'\n\nx = "# no comment"\ndef f():\n\n\n return 1\n'
    for path in sorted((ROOT / "tuner/zfstune").rglob("*.py")):
        text = path.read_bytes()
        nodes = [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign)]
        after = ast.walk(ast.parse(pack.bare(text)))
        assert nodes == [node.lineno for node in after if isinstance(node, ast.Assign)]


@pytest.mark.parametrize(
    ("source", "bare"),
    [
        (
            "def f(a: int = 1, *b: str, c: 'x -> y' = '->', **d: object) -> list[int]: pass",
            "def f(a = 1, *b, c = '->', **d) : pass",
        ),
        (
            'def ü(é: "ß", b: int) -> Callable[[], int]:  # -> ü\n    return lambda x: x',
            "def ü(é, b) :\n return lambda x: x",
        ),
        (
            "def f(\n    a: tuple[\n        int, str\n    ],  # why\n) -> None:\n    g()",
            "def f(\n a,\n\n\n) :\n g()",
        ),
        ("class A:\n    a: int = 1\n    b: str", "class A:\n a: int = 1\n b: str"),
        ("if a:\n    b = '''\n    c\n    d'''\n    e()", "if a:\n b = '''\n    c\n    d'''\n e()"),
        ("if a:\n    b = f'''\n    {a}\n    '''", "if a:\n b = f'''\n    {a}\n    '''"),
    ],
)
def test_what_nothing_reads_is_left_out(source: str, bare: str) -> None:
    assert pack.bare(source.encode()).decode() == bare


def read_by_python(source: bytes) -> str:
    """All but places, docstrings and the annotations of functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, pack.DOCUMENTED) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or node.body
    return ast.dump(tree)


def test_modules_are_the_same_program() -> None:
    for name, source in pack.modules().items():
        if name.endswith(".py"):
            assert read_by_python(pack.bare(source)) == read_by_python(source), name


def test_on_freebsd_it_says_that_it_is_for_linux(made: Path, tmp_path: Path) -> None:
    status, text = doctor_where("sys.platform = 'freebsd15'", made, tmp_path)
    assert status == 3
    assert text.splitlines()[0] == "zfstune: error: cannot trace: this file is for Linux"


def test_tools_and_licences_come_out_of_it(made: Path, tmp_path: Path) -> None:
    command = (sys.executable, one_file(made))
    status, text = run(*command, "tools", "extract", "tools", cwd=tmp_path)
    assert status == 0, text
    for path in (ROOT / "tracers/bpftrace").glob("*.bt"):
        assert (tmp_path / "tools" / path.name).read_bytes() == path.read_bytes()
    status, text = run(*command, "licences", cwd=tmp_path)
    assert status == 0
    for title in ("BSD 2-Clause", "libbpf 1.", "GNU LESSER GENERAL PUBLIC", "Jean-loup Gailly"):
        assert title in text


def test_what_incidents_and_monitoring_load_is_byte_code(made: Path) -> None:
    with zipfile.ZipFile(one_file(made)) as archive:
        code = marshal.loads(zlib.decompress(archive.read(importer.CODE)))
        assert archive.testzip() is None
    for name in code:
        if pack.priority(name) <= pack.NEEDED:
            assert code[name], name


@pytest.mark.parametrize("command", start.COMMANDS)
def test_commands_whose_start_is_measured_read_no_source(
    command: str, made: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "zfstune.pyz"
    damage(one_file(made), importer.SOURCES, bad)
    _, text = run(sys.executable, bad, *command.split(), cwd=tmp_path)
    assert "is damaged" not in text


def test_a_session_of_tuning_needs_nothing_else(made: Path, tmp_path: Path) -> None:
    """On a fake module; from the search to the report with its pictures, without any package."""
    alone = ROOT / "tests/support/session_alone.py"
    words = (one_file(made), tmp_path, "0", "--budget", "40m", "--out", tmp_path / "out")
    status, said = run(sys.executable, "-I", "-S", alone, *words, cwd=tmp_path)
    assert status == 0, said
    assert (tmp_path / "out/report.html").read_text().count("<svg") >= 3
