"""The control socket, with clients that mean no good."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zfstrace.types import Json
from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.record.control import MOST_CLIENTS, MOST_REQUEST, TIMEOUT_NS, Reply, Server, ask
from zfstune.term.units import SECOND


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


class Answers:
    """Remembers the requests."""

    def __init__(self) -> None:
        self.asked: list[Json] = []

    def __call__(self, request: Json) -> Reply:
        self.asked.append(request)
        if request.get("do") == "refuse":
            raise UsageError("no such thing", "ask for another")
        if request.get("do") == "full":
            raise OSError(28, "No space left on device")
        if request.get("do") == "file":
            read, write = os.pipe()
            os.write(write, b"content")
            os.close(write)
            return Reply({"ok": True}, read)
        return Reply({"ok": True})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.sock"


@pytest.fixture
def server(path: Path) -> Iterator[Server]:
    found = Server(path, Answers())
    found.open()
    yield found
    found.close()


def client(path: Path, data: bytes = b"") -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(5)
    found.connect(str(path))
    found.sendall(data)
    return found


def reply(one: socket.socket) -> Json:
    found: Json = json.loads(one.recv(65536) or b"{}")
    return found


def asked(server: Server, path: Path, request: Json) -> Reply:
    """ask() in a thread, while the server is polled."""
    found: list[Reply | CommandError] = []

    def run() -> None:
        try:
            found.append(ask(path, request, 20))
        except CommandError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        server.poll(0)
        thread.join(0.001)
    (one,) = found
    if isinstance(one, CommandError):
        raise one
    return one


def test_only_its_user_may_connect(server: Server, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_request_has_a_reply(server: Server, path: Path) -> None:
    assert asked(server, path, {"do": "status"}) == Reply({"ok": True})
    assert server.served == 1


def test_a_file_comes_with_its_reply(server: Server, path: Path) -> None:
    found = asked(server, path, {"do": "file"})
    assert found.fd is not None
    assert not os.get_inheritable(found.fd)
    with os.fdopen(found.fd, "rb") as file:
        assert file.read() == b"content"


def test_errors_are_the_reply(server: Server, path: Path) -> None:
    with pytest.raises(UsageError, match="the recorder: no such thing") as caught:
        asked(server, path, {"do": "refuse"})
    assert caught.value.hint == "ask for another"
    with pytest.raises(NotPossible, match="cannot write: No space left on device"):
        asked(server, path, {"do": "full"})


@pytest.mark.parametrize("line", [b"\n", b"[]\n", b"{\n", b"\xff\n", b"[" * 4000 + b"\n"])
def test_a_line_that_is_no_request_is_refused(server: Server, path: Path, line: bytes) -> None:
    with client(path, line) as one:
        server.poll(0)
        assert reply(one) == {"error": "the request is not a JSON object"}
        assert one.recv(1) == b""
    assert (server.served, server.refused) == (0, 1)


def test_a_long_line_is_refused(server: Server, path: Path) -> None:
    with client(path, b"x" * (MOST_REQUEST + 1)) as one:
        server.poll(0)
        assert reply(one) == {"error": "the request is too long"}


def test_one_byte_at_a_time_is_read_until_its_time_is_over(server: Server, path: Path) -> None:
    with client(path) as slow, client(path) as quick:
        for i, byte in enumerate(b'{"do":"x"}'):
            slow.sendall(bytes([byte]))
            server.poll(i * SECOND // 10)
        quick.sendall(b"{")
        server.poll(TIMEOUT_NS)
        assert reply(slow) == reply(quick) == {"error": "no request within 5 s"}


def test_silence_ends_after_five_seconds(server: Server, path: Path) -> None:
    with client(path) as one:
        server.poll(0)
        server.poll(TIMEOUT_NS - 1)
        assert len(server._clients) == 1
        server.poll(TIMEOUT_NS)
        assert reply(one) == {"error": "no request within 5 s"}
        assert one.recv(1) == b""
    assert server._clients == []


def test_many_connections_do_not_stop_it(server: Server, path: Path) -> None:
    """Four are silent; all others are turned away, and later the next is served."""
    many = []
    for _ in range(200):
        many.append(client(path))
        server.poll(0)
    assert len(server._clients) == MOST_CLIENTS
    assert [reply(one) for one in many[MOST_CLIENTS:]] == [{"error": "too many connections"}] * 196
    server.poll(TIMEOUT_NS)
    assert asked(server, path, {"do": "status"}).body == {"ok": True}
    for one in many:
        one.close()


def test_a_client_that_leaves_is_forgotten(server: Server, path: Path) -> None:
    before = descriptors()
    for _ in range(20):
        client(path).close()
        client(path, b'{"do":"file"}\n').close()
        server.poll(0)
        server.poll(0)
    assert server._clients == []
    assert descriptors() == before


def test_of_two_descriptors_one_is_kept(path: Path) -> None:
    """There is room for two, because FreeBSD pads one."""
    before = descriptors()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)

        def answer() -> None:
            with listening.accept()[0] as connection, Path("/dev/null").open("rb") as null:
                connection.recv(100)
                socket.send_fds(connection, [b"{}\n"], [null.fileno()] * 2)

        thread = threading.Thread(target=answer)
        thread.start()
        reply = ask(path, {})
        thread.join()
    assert reply.fd is not None
    os.close(reply.fd)
    assert descriptors() == before


def test_without_a_recorder_there_is_a_hint(path: Path) -> None:
    with pytest.raises(NotPossible, match=r"no recorder runs: .*record\.sock: No such") as caught:
        ask(path, {})
    assert caught.value.hint.startswith("start `zfstune exporter`")
    Server(path, Answers()).open()  # nobody polls it, and it is closed as it is forgotten
    with pytest.raises(NotPossible, match=r"no recorder runs|does not answer"):
        ask(path, {}, 0.01)


def test_a_recorder_that_gives_nonsense_is_refused(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def run() -> None:
            for answer in (b"", b"[1]\n", b"{\n"):
                with listening.accept()[0] as connection:
                    connection.recv(100)
                    connection.sendall(answer)

        thread = threading.Thread(target=run)
        thread.start()
        for _ in range(3):
            with pytest.raises(NotPossible, match="gave no answer"):
                ask(path, {}, 20)
        thread.join()


def test_a_path_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match="cannot listen on"):
        Server(tmp_path / ("x" * 120), Answers()).open()
