"""A real HTTP server on the loopback interface that serves a folder or a STAC API, with faults on request."""

import hashlib
import json
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    """One request that the server received."""

    method: str
    path: str
    headers: dict[str, str]
    value: dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """The fault of one response; by default it has none."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    cut: int | None = None  # number of bytes of the body that are sent before the connection breaks
    ignore_range: bool = False  # the whole file is sent
    pause: float = 0.0  # seconds before the response
    drip: float = 0.0  # seconds between pieces of the body
    drop: tuple[str, ...] = ()  # headers that are not sent
    reset: bool = False  # the connection is reset instead of a response


class Loopback:
    """Serves the files of a folder with Range, If-Range and ETag; `routes` answer with JSON instead."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.received: list[Request] = []
        self.routes: dict[str, Callable[[Request], Any]] = {}
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.always: dict[str, Fault] = {}
        self.random_fault: Callable[[Request], Fault] = lambda _: Fault()
        self.sent, self.lock, self.closed = 0, threading.Lock(), threading.Event()
        self.server = ThreadingHTTPServer((host, 0), _handler(self))
        self.url = f"http://{host}:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> "Loopback":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def fail(self, path: str, *, times: int | None = 1, **fault: Any) -> None:
        """Give the next responses for a path a fault, or all of them when times is None."""
        if times is None:
            self.always[path] = Fault(**fault)
        else:
            self.faults[path] += [Fault(**fault)] * times

    def reset(self) -> None:
        """Remove all faults and received requests."""
        self.faults.clear()
        self.always.clear()
        self.random_fault = lambda _: Fault()
        self.received.clear()

    def requests(self, path: str) -> list[Request]:
        """The requests for one path, in order."""
        return [request for request in self.received if request.path == path]

    def fault(self, request: Request) -> Fault:
        """The fault of a response: that of its path, else a random one."""
        faults = self.faults[request.path]
        return faults.pop(0) if faults else self.always.get(request.path) or self.random_fault(request)

    def count(self, sent: int) -> None:
        """Add to the bytes of bodies that were sent."""
        with self.lock:
            self.sent += sent


def _handler(web: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            self.respond(Request("GET", unquote(parts.path), self.title_case_headers(), query))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.respond(Request("POST", unquote(self.path), self.title_case_headers(), json.loads(body or b"{}")))

        def title_case_headers(self) -> dict[str, str]:
            # Some clients write header names in lower case.
            return {name.title(): value for name, value in self.headers.items()}

        def respond(self, request: Request) -> None:
            web.received.append(request)
            fault = web.fault(request)
            if web.closed.wait(fault.pause) or (fault.reset and _reset(self.connection)):
                return
            code, headers, body = _content(web, request, fault)
            headers |= {"Content-Length": str(len(body))} | fault.headers
            self.send_response(fault.status or code)
            for name, value in headers.items():
                if name not in fault.drop:
                    self.send_header(name, value)
            self.end_headers()
            piece = 16_384 if fault.drip else len(body) or 1
            with suppress(ConnectionError):
                for start in range(0, len(body[: fault.cut]), piece):
                    web.count(self.wfile.write(body[: fault.cut][start : start + piece]))
                    time.sleep(fault.drip)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _reset(connection: socket.socket) -> bool:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    return True


def _content(web: Loopback, request: Request, fault: Fault) -> tuple[int, dict[str, str], bytes]:
    if fault.status >= 400 and fault.body is None:
        return fault.status, {}, b"no"
    if request.path in web.routes and fault.body is None:
        return 200, {"Content-Type": "application/json"}, json.dumps(web.routes[request.path](request)).encode()
    file = web.folder / request.path.lstrip("/")
    if fault.body is None and not file.is_file():
        return 404, {}, b"there is no such file"
    body = file.read_bytes() if fault.body is None else fault.body
    tag = fault.headers.get("ETag", f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    headers = {"ETag": tag, "Accept-Ranges": "bytes"}
    byte_range = request.headers.get("Range", "")
    if request.headers.get("If-Match", tag) != tag:
        return 412, headers, b""
    if fault.ignore_range or not byte_range or request.headers.get("If-Range", tag) != tag:
        return 200, headers, body
    first, _, last = byte_range.removeprefix("bytes=").partition("-")
    start, stop = int(first), min(int(last or len(body)) + 1, len(body))
    if start >= len(body):
        return 416, headers | {"Content-Range": f"bytes */{len(body)}"}, b""
    return 206, headers | {"Content-Range": f"bytes {start}-{stop - 1}/{len(body)}"}, body[start:stop]


def serve_api(
    web: Loopback,
    items: list[dict[str, Any]],
    *,
    page: int = 2,
    follow: str = "POST",
    conformance: tuple[str, ...] = (),
) -> str:
    """Turn the server into a STAC API with pages of items; return its URL."""
    search = f"{web.url}/api/search"

    def landing(_: Request) -> Any:
        core = "https://api.stacspec.org/v1.0.0"
        return {
            "type": "Catalog",
            "stac_version": "1.0.0",
            "id": "api",
            "description": "a STAC API",
            "conformsTo": [
                f"{core}/core",
                f"{core}/item-search",
                *(f"{core}/item-search#{name}" for name in conformance),
            ],
            "links": [
                {"rel": "self", "href": f"{web.url}/api"},
                {"rel": "root", "href": f"{web.url}/api"},
                {"rel": "search", "href": search, "method": "GET", "type": "application/geo+json"},
                {"rel": "search", "href": search, "method": "POST", "type": "application/geo+json"},
            ],
        }

    def search_page(request: Request) -> Any:
        start = int(request.value.get("token", 0))
        links = []
        if start + page < len(items):
            next_link = {
                "rel": "next",
                "method": follow,
                "href": search,
                "body": {**request.value, "token": start + page},
            }
            links = [next_link if follow == "POST" else {"rel": "next", "href": f"{search}?token={start + page}"}]
        return {"type": "FeatureCollection", "features": items[start : start + page], "links": links}

    web.routes |= {"/api": landing, "/api/search": search_page}
    return f"{web.url}/api"
