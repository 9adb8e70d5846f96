"""TLS of the exporter's port, with certificates made by openssl(1) and real handshakes."""

from __future__ import annotations

import _ssl
import array
import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import socket
import ssl
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.scraping import GET, PATIENT_S, Scrape, Serving, parts, read, serving
from support.waiting import wait_for

from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.exporter import tls
from zfstune.exporter.server import Limits
from zfstune.exporter.tls import PIECE, Secured, Tls, TlsOptions, tls_options

EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def self_signed(directory: Path, name: str, *more: str) -> None:
    """NAME.crt and NAME.key for localhost."""
    openssl(
        *("req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}", *EC),
        *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", *more),
        *("-keyout", directory / f"{name}.key", "-out", directory / f"{name}.crt"),
    )


def signed(directory: Path, authority: str, name: str) -> None:
    """NAME.crt and NAME.key, signed by an authority."""
    request, key = directory / f"{name}.csr", directory / f"{name}.key"
    openssl("req", "-nodes", "-subj", f"/CN={name}", *EC, "-keyout", key, "-out", request)
    openssl(
        *("x509", "-req", "-days", "2", "-in", request, "-CAcreateserial"),
        *("-CA", directory / f"{authority}.crt", "-CAkey", directory / f"{authority}.key"),
        *("-out", directory / f"{name}.crt"),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of pairs: first, second, ca and what it signed, alien, encrypted."""
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("first", "second", "ca", "alien"):
        self_signed(directory, name)
    signed(directory, "ca", "prometheus")
    signed(directory, "alien", "stranger")
    openssl(
        *("pkey", "-in", directory / "first.key", "-aes256", "-passout", "pass:secret"),
        *("-out", directory / "encrypted.key"),
    )
    return directory


@pytest.fixture
def files(made: Path, tmp_path: Path) -> TlsOptions:
    """The files of a server, with the pair first."""
    options = TlsOptions(tmp_path / "server.crt", tmp_path / "server.key")
    install(made, "first", options)
    return options


def install(made: Path, name: str, options: TlsOptions) -> None:
    install_one(made / f"{name}.crt", options.cert)
    install_one(made / f"{name}.key", options.key)


def install_one(source: Path, to: Path) -> None:
    """Replaces a file by a rename, as clients of ACME do."""
    new = to.with_suffix(".new")
    shutil.copy(source, new)
    new.replace(to)


def context(trusted: Path, client: Path | None = None) -> ssl.SSLContext:
    """A client that trusts one certificate, and may have one of its own, with a .key beside."""
    made = ssl.create_default_context(cafile=str(trusted))
    if client:
        made.load_cert_chain(client, client.with_suffix(".key"))
    return made


def scrape(up: Serving, client: ssl.SSLContext) -> bytes:
    with up.connect() as raw, client.wrap_socket(raw, server_hostname="localhost") as connection:
        connection.sendall(GET)
        return parts(read(connection))[1]


def test_a_scrape_is_encrypted_and_the_server_known(made: Path, files: TlsOptions) -> None:
    with serving(tls=files) as up:
        assert scrape(up, context(made / "first.crt")) == up.scrape.body
        with pytest.raises(ssl.SSLCertVerificationError):
            scrape(up, context(made / "second.crt"))
        wait_for(lambda: not up.server.open)
        assert up.told("handshake") == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_present_versions_work(made: Path, files: TlsOptions, version: ssl.TLSVersion) -> None:
    client = context(made / "first.crt")
    client.minimum_version = client.maximum_version = version
    large = bytes(range(256)) * (32 << 10)
    with serving(Scrape(large), tls=files) as up:
        assert scrape(up, client) == large


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_older_versions_are_refused(made: Path, files: TlsOptions) -> None:
    client = context(made / "first.crt")
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
    # or OpenSSL would not offer it
    client.set_ciphers("ALL:@SECLEVEL=0")
    with serving(tls=files) as up:
        with pytest.raises(ssl.SSLError) as caught:
            scrape(up, client)
        # the server said so
        assert caught.value.reason == "TLSV1_ALERT_PROTOCOL_VERSION"
        wait_for(lambda: up.errors == ["handshake"])


def test_the_end_is_told_so_that_nobody_can_cut_an_answer(made: Path, files: TlsOptions) -> None:
    client = context(made / "first.crt")
    # without these two an end that is not told is an error; OpenSSL 1.1 has only one of them
    client.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    strict = {"server_hostname": "localhost", "suppress_ragged_eofs": False}
    with (
        serving(tls=files) as up,
        up.connect() as raw,
        client.wrap_socket(raw, **strict) as connection,  # type: ignore[arg-type]
    ):
        connection.sendall(GET)
        assert parts(read(connection))[1] == up.scrape.body


# clients' certificates


def test_only_clients_of_the_authority_get_in(made: Path, files: TlsOptions) -> None:
    options = TlsOptions(files.cert, files.key, made / "ca.crt")
    with serving(tls=options) as up:
        for client in (None, made / "stranger.crt", made / "alien.crt"):
            with pytest.raises(OSError):
                scrape(up, context(made / "first.crt", client))
        wait_for(lambda: up.errors == ["handshake"] * 3)
        assert up.scrape.accepts == []
        good = context(made / "first.crt", made / "prometheus.crt")
        assert scrape(up, good) == up.scrape.body


def test_an_authority_that_is_replaced_counts_at_once(
    made: Path, files: TlsOptions, tmp_path: Path
) -> None:
    options = TlsOptions(files.cert, files.key, tmp_path / "ca.crt")
    install_one(made / "ca.crt", tmp_path / "ca.crt")
    old = context(made / "first.crt", made / "prometheus.crt")
    with serving(tls=options) as up:
        assert scrape(up, old) == up.scrape.body
        install_one(made / "alien.crt", tmp_path / "ca.crt")
        with pytest.raises(OSError):
            scrape(up, old)
        assert scrape(up, context(made / "first.crt", made / "stranger.crt")) == up.scrape.body


# renewal


def test_a_renewed_pair_is_used_by_the_next_handshake(made: Path, files: TlsOptions) -> None:
    with serving(tls=files) as up:
        assert scrape(up, context(made / "first.crt")) == up.scrape.body
        install(made, "second", files)
        assert scrape(up, context(made / "second.crt")) == up.scrape.body
        assert up.told() == []


def test_a_renewed_pair_behind_links_is_seen(made: Path, tmp_path: Path) -> None:
    # certbot: live/NAME/fullchain.pem is a link to archive/NAME/fullchain2.pem
    options = TlsOptions(tmp_path / "cert.pem", tmp_path / "key.pem")
    options.cert.symlink_to(made / "first.crt")
    options.key.symlink_to(made / "first.key")
    with serving(tls=options) as up:
        assert scrape(up, context(made / "first.crt")) == up.scrape.body
        for link, target in ((options.cert, "second.crt"), (options.key, "second.key")):
            link.unlink()
            link.symlink_to(made / target)
        assert scrape(up, context(made / "second.crt")) == up.scrape.body


def test_a_renewed_pair_behind_the_link_of_a_directory_is_seen(made: Path, tmp_path: Path) -> None:
    # a secret of Kubernetes: tls.crt is a link to ..data/tls.crt, and only ..data is replaced
    options = TlsOptions(tmp_path / "tls.crt", tmp_path / "tls.key")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        shutil.copy(made / f"{name}.crt", tmp_path / name / "tls.crt")
        shutil.copy(made / f"{name}.key", tmp_path / name / "tls.key")
    data = tmp_path / "..data"
    data.symlink_to("first")
    for path in options.files():
        path.symlink_to(f"..data/{path.name}")
    with serving(tls=options) as up:
        assert scrape(up, context(made / "first.crt")) == up.scrape.body
        data.unlink()
        data.symlink_to("second")
        assert scrape(up, context(made / "second.crt")) == up.scrape.body


def test_half_a_renewal_keeps_the_old_pair_and_says_so_once(made: Path, files: TlsOptions) -> None:
    with serving(tls=files) as up:
        install_one(made / "second.crt", files.cert)
        for _ in range(3):
            assert scrape(up, context(made / "first.crt")) == up.scrape.body
        files.key.unlink()
        assert scrape(up, context(made / "first.crt")) == up.scrape.body
        wait_for(lambda: up.said)
        (said,) = up.said
        why = f"cannot use {files.key}: it is not the key of {files.cert}"
        assert said.startswith(f"the previous certificate stays in use: {why}; ")
        wait_for(lambda: up.errors == ["certificate"] * 2)
        install_one(made / "second.key", files.key)
        assert scrape(up, context(made / "second.crt")) == up.scrape.body
        assert up.told("certificate", "certificate")[1:] == ["the new certificate is in use"]


def test_a_pair_that_could_not_be_read_is_read_again(
    made: Path, files: TlsOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with serving(tls=files) as up:
        install(made, "second", files)
        with monkeypatch.context() as patch:
            patch.setattr(tls, "_read", fails)
            assert scrape(up, context(made / "first.crt")) == up.scrape.body
        # not yet
        assert scrape(up, context(made / "first.crt")) == up.scrape.body
        wait_for(lambda: up.errors == ["certificate"])
        monkeypatch.setattr(tls, "AGAIN_S", -1.0)
        files.key.touch()
        with monkeypatch.context() as patch:
            patch.setattr(tls, "_read", fails)
            assert scrape(up, context(made / "first.crt")) == up.scrape.body
        # the files are as they were
        assert scrape(up, context(made / "second.crt")) == up.scrape.body


# hostile clients


@pytest.mark.parametrize(
    "sent", [GET, b"\x16\x03\x01\xff\xff", b"\x80" * 100_000, b"\x16\x03\x01\x00\x05" + b"\0" * 5]
)
def test_what_is_no_handshake_is_dropped(made: Path, files: TlsOptions, sent: bytes) -> None:
    with serving(tls=files) as up:
        for _ in range(3):
            # any of these may find that the server has reset the connection
            with up.connect() as raw, contextlib.suppress(OSError):
                raw.sendall(sent)
                raw.shutdown(socket.SHUT_WR)
                assert b"zfstune" not in read(raw)
        assert scrape(up, context(made / "first.crt")) == up.scrape.body
        assert up.told(*["handshake"] * 3) == []


def test_handshakes_that_stop_do_not_stop_the_next_scrape(made: Path, files: TlsOptions) -> None:
    with contextlib.ExitStack() as clients, serving(tls=files) as up:
        for _ in range(200):
            clients.enter_context(up.connect()).sendall(b"\x16\x03\x01\x02\x00\x01")
        assert scrape(up, context(made / "first.crt")) == up.scrape.body
        assert up.server.refused == 201 - 128


def test_a_slow_handshake_is_cut(files: TlsOptions) -> None:
    limits = Limits(request_s=0.2, answer_s=PATIENT_S)
    with serving(limits=limits, tls=files) as up, up.connect() as raw:
        with contextlib.suppress(ConnectionError):
            raw.sendall(b"\x16\x03\x01\x02\x00\x01")
            assert read(raw) == b""
        wait_for(lambda: up.errors == ["timeout"])


def test_a_reader_that_stops_is_cut(made: Path, files: TlsOptions) -> None:
    limits = Limits(request_s=PATIENT_S, answer_s=0.2)
    large = bytes(64 << 20)
    client = context(made / "first.crt")
    with (
        serving(Scrape(large), limits, tls=files) as up,
        up.connect() as raw,
        client.wrap_socket(raw, server_hostname="localhost") as connection,
    ):
        connection.sendall(GET)
        wait_for(lambda: up.errors == ["timeout"])


def test_a_renegotiation_is_refused(made: Path, files: TlsOptions) -> None:
    with serving(tls=files) as up:
        # R at the start of a line renegotiates, s_client(1)
        words = ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{up.server.port}"]
        done = subprocess.run(words, input=b"R\n", capture_output=True, timeout=60, check=False)
        assert b"no renegotiation" in done.stderr
        assert scrape(up, context(made / "first.crt")) == up.scrape.body


class Rekeying:
    """A client by OpenSSL itself: Python's ssl cannot send new keys."""

    def __init__(self, connection: socket.socket) -> None:
        # the libssl of this Python
        self._call = ctypes.CDLL(_ssl.__file__)
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(self._call, name).restype = ctypes.c_void_p
        context = self._call.SSL_CTX_new(ctypes.c_void_p(self._call.TLS_client_method()))
        self._tls = ctypes.c_void_p(self._call.SSL_new(ctypes.c_void_p(context)))
        self._call.SSL_set_fd(self._tls, connection.fileno())

    def shake(self, server: Secured) -> None:
        while True:
            done = self._call.SSL_connect(self._tls) == 1
            with contextlib.suppress(ssl.SSLWantReadError):
                server.do_handshake()
                if done:
                    return

    def send_keys(self, times: int) -> None:
        """New keys so many times, or until the connection takes no more."""
        for _ in range(times):
            self._call.SSL_key_update(self._tls, 0)
            if self._call.SSL_do_handshake(self._tls) != 1:
                return


def unread(connection: socket.socket) -> int:
    found = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, found)
    return found[0]


def test_new_keys_without_end_leave_others_their_turn(files: TlsOptions) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        secured, client = Tls(files).wrap(ours), Rekeying(theirs)
        client.shake(secured)
        client.send_keys(1000)
        before = unread(ours)
        assert before > 3 * PIECE
        for turn in (1, 2):
            with pytest.raises(ssl.SSLWantReadError):
                secured.recv(1)
            assert unread(ours) == before - turn * PIECE


# at start


@contextlib.contextmanager
def fails(kind: type[CommandError], message: str) -> Iterator[None]:
    """In the block the command would end with this line, and a hint."""
    with pytest.raises(CommandError) as caught:
        yield
    assert type(caught.value) is kind
    assert str(caught.value) == message
    assert caught.value.hint
    assert "\n" not in caught.value.hint


def damaged(path: Path) -> None:
    """Spoils what is between the lines of a PEM file."""
    first, *_, last = path.read_text().splitlines()
    path.write_text(f"{first}\nAAAA\n{last}\n")


def make(path: Path, what: str) -> None:
    path.unlink(missing_ok=True)
    if what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "empty":
        path.touch()


@pytest.mark.parametrize("role", ["cert", "key", "client_ca"])
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("missing", "cannot read {}: No such file or directory"),
        ("directory", "cannot read {}: Is a directory"),
        ("pipe", "cannot read {}: not a regular file"),
        ("empty", "cannot use {}: there is no {} in it"),
    ],
)
def test_a_file_at_fault_is_named(
    made: Path, files: TlsOptions, role: str, what: str, why: str
) -> None:
    options = TlsOptions(files.cert, files.key, files.cert.with_name("ca.crt"))
    assert options.client_ca
    install_one(made / "ca.crt", options.client_ca)
    Tls(options)
    path = getattr(options, role)
    make(path, what)
    kind = "private key" if role == "key" else "certificate"
    with fails(UsageError, why.format(path, kind)):
        Tls(options)


@pytest.mark.parametrize("role", ["cert", "client_ca"])
def test_a_damaged_certificate_is_named(made: Path, files: TlsOptions, role: str) -> None:
    options = TlsOptions(files.cert, files.key, files.cert.with_name("ca.crt"))
    assert options.client_ca
    install_one(made / "ca.crt", options.client_ca)
    damaged(getattr(options, role))
    with fails(UsageError, f"cannot use {getattr(options, role)}: it is damaged"):
        Tls(options)


def test_a_damaged_key_is_named(files: TlsOptions) -> None:
    damaged(files.key)
    with fails(UsageError, f"cannot use {files.key} with {files.cert}: it is damaged"):
        Tls(files)


def test_files_that_are_exchanged_are_named(files: TlsOptions) -> None:
    with fails(UsageError, f"cannot use {files.key}: there is no certificate in it"):
        Tls(TlsOptions(files.key, files.cert))


def test_the_key_of_another_certificate_is_named(made: Path, files: TlsOptions) -> None:
    install_one(made / "second.key", files.key)
    with fails(UsageError, f"cannot use {files.key}: it is not the key of {files.cert}"):
        Tls(files)


def test_an_encrypted_key_is_refused_and_nobody_is_asked(made: Path, files: TlsOptions) -> None:
    install_one(made / "encrypted.key", files.key)
    with fails(UsageError, f"cannot use {files.key}: it is encrypted"):
        Tls(files)


def test_a_file_that_may_not_be_read_is_named(
    files: TlsOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def denied(path: Any, *given: Any, **named: Any) -> int:
        if path == files.key:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *given, **named)

    monkeypatch.setattr(os, "open", denied)
    with fails(NotPossible, f"cannot read {files.key}: no permission"):
        Tls(files)


def test_a_weak_certificate_is_named(tmp_path: Path) -> None:
    options = TlsOptions(tmp_path / "weak.crt", tmp_path / "weak.key")
    openssl(
        *("req", "-x509", "-nodes", "-newkey", "rsa:512", "-subj", "/CN=weak"),
        *("-keyout", options.key, "-out", options.cert),
    )
    why = "ee key too small"
    with fails(UsageError, f"cannot use {options.key} with {options.cert}: {why}"):
        Tls(options)


def test_a_bad_pair_takes_no_port(files: TlsOptions) -> None:
    files.key.unlink()
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(UsageError), serving(tls=files):
        pass
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


CERT, KEY, CA = Path("a.crt"), Path("a.key"), Path("ca.crt")


def test_the_options_belong_together() -> None:
    assert tls_options(None, None, None) is None
    assert tls_options(CERT, KEY, None) == TlsOptions(CERT, KEY)
    assert tls_options(CERT, KEY, CA) == TlsOptions(CERT, KEY, CA)


@pytest.mark.parametrize(
    ("cert", "key", "client_ca", "missing"),
    [
        (CERT, None, None, "--tls-key"),
        (CERT, None, CA, "--tls-key"),
        (None, KEY, None, "--tls-cert"),
        (None, KEY, CA, "--tls-cert"),
        (None, None, CA, "--tls-cert"),
    ],
)
def test_a_missing_option_is_named(
    cert: Path | None, key: Path | None, client_ca: Path | None, missing: str
) -> None:
    with fails(UsageError, f"{missing} is missing"):
        tls_options(cert, key, client_ca)
