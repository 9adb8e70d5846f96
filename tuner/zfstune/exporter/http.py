"""Requests of HTTP, as far as a scrape needs them, and the answers."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """What matters of a request."""

    method: str
    path: str
    accept: str
    gzip: bool


END = re.compile(rb"\r?\n\r?\n")
# Two expressions: as one they would backtrack, and 8 KiB of nonsense take a tenth of a second.
_REQUEST = re.compile(rb"([A-Z]+) ([!-~]*) HTTP/1\.[01]")
_ORIGIN = re.compile(rb"https?://[^/?]*")
_HEADER = re.compile(rb"([!-9;-~]+):[ \t]*(.*)")


def parse(got: bytes, most: int) -> Request | int:
    """A request, or the status that refuses what a client sent."""
    end = END.search(got)
    if (end.start() if end else len(got)) > most:
        return 431
    lines = re.split(rb"\r?\n", got[: end.start()]) if end else [b""]
    first = _REQUEST.fullmatch(lines[0])
    headers = [_HEADER.fullmatch(line) for line in lines[1:]]
    if not first:
        return 400
    found: dict[str, str] = {}
    for header in headers:
        if not header:
            return 400
        name, value = header[1].decode("ascii").lower(), header[2].decode("latin-1").strip()
        found[name] = f"{found[name]},{value}" if name in found else value
    origin = _ORIGIN.match(first[2])
    path = first[2][origin.end() if origin else 0 :].decode("ascii").partition("?")[0] or "/"
    accepts = _accepts_gzip(found.get("accept-encoding", ""))
    return Request(first[1].decode("ascii"), path, found.get("accept", ""), accepts)


def _accepts_gzip(text: str) -> bool:
    """Whether an Accept-Encoding names gzip, or all encodings, with a weight above 0."""
    weights: dict[str, float] = {}
    for part in text.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        weights[name] = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                weights[name] = _weight(value)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
}
_TEXT = "text/plain; charset=utf-8"
_INDEX = b'<!DOCTYPE html><title>zfstune exporter</title>\n<a href="/metrics">metrics</a>\n'
# Those that need no scrape
_PAGES = {"/": (_INDEX, "text/html; charset=utf-8"), "/-/healthy": (b"healthy\n", _TEXT)}


def answer(
    status: int, body: bytes, kind: str = _TEXT, *, encoded: bool = False, bodiless: bool = False
) -> list[memoryview]:
    """The pieces of an answer. The body is not copied: all clients of a scrape share it."""
    head = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if encoded:
        head.append("Content-Encoding: gzip")
    if status == 405:
        head.append("Allow: GET, HEAD")
    start = "\r\n".join([*head, "", ""]).encode("ascii")
    return [memoryview(start), *([] if bodiless else [memoryview(body)])]


def refusal(status: int, *, bodiless: bool = False) -> list[memoryview]:
    """An answer that says no more than its status."""
    body = f"{status} {_REASONS[status].lower()}\n".encode()
    return answer(status, body, bodiless=bodiless)


def page(request: Request) -> list[memoryview]:
    """The answer to a request that needs no scrape; [] if it needs one."""
    bodiless = request.method == "HEAD"
    if request.path != "/metrics" and request.path not in _PAGES:
        return refusal(404, bodiless=bodiless)
    if request.method not in ("GET", "HEAD"):
        return refusal(405)
    if request.path == "/metrics":
        return []
    return answer(200, *_PAGES[request.path], bodiless=bodiless)
