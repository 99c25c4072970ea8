"""A real HTTP server on the loopback that serves a folder or a STAC API, and misbehaves as told."""

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
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    value: dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """How one answer goes wrong; what is not said goes right."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    cut: int | None = None  # so many bytes of the body are sent, then the line breaks
    deaf: bool = False  # ignores Range
    pause: float = 0.0  # seconds before the answer
    drip: float = 0.0  # seconds between pieces of the body
    drop: tuple[str, ...] = ()  # headers that are not sent
    reset: bool = False  # the line is torn down instead of an answer


class Loopback:
    """Serves the files of a folder with Range, If-Range and ETag; `routes` answer with JSON instead."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.asked: list[Asked] = []
        self.routes: dict[str, Callable[[Asked], Any]] = {}
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.always: dict[str, Fault] = {}
        self.luck: Callable[[Asked], Fault] = lambda _: Fault()
        self.sent, self.lock = 0, threading.Lock()
        self.server = ThreadingHTTPServer((host, 0), _handler(self))
        self.url = f"http://{host}:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> "Loopback":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def fail(self, path: str, *, times: int | None = 1, **fault: Any) -> None:
        """Let the next answers for a path go wrong, or all of them when times is None."""
        if times is None:
            self.always[path] = Fault(**fault)
        else:
            self.faults[path] += [Fault(**fault)] * times

    def heal(self) -> None:
        """Answer properly from now on, and forget what was asked."""
        self.faults.clear()
        self.always.clear()
        self.luck = lambda _: Fault()
        self.asked.clear()

    def requests(self, path: str) -> list[Asked]:
        """What was asked of one path, in order."""
        return [asked for asked in self.asked if asked.path == path]

    def fault(self, asked: Asked) -> Fault:
        """What goes wrong with the answer: what was said for its path, else what luck has."""
        told = self.faults[asked.path]
        return told.pop(0) if told else self.always.get(asked.path) or self.luck(asked)

    def count(self, sent: int) -> None:
        """Add to the bytes of bodies that were sent."""
        with self.lock:
            self.sent += sent


def _handler(web: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            self.answer(Asked("GET", unquote(parts.path), self.told(), query))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.answer(Asked("POST", unquote(self.path), self.told(), json.loads(body or b"{}")))

        def told(self) -> dict[str, str]:
            # Some clients write names of headers small.
            return {name.title(): value for name, value in self.headers.items()}

        def answer(self, asked: Asked) -> None:
            web.asked.append(asked)
            fault = web.fault(asked)
            time.sleep(fault.pause)
            if fault.reset:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                return
            code, headers, body = _content(web, asked, fault)
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


def _content(web: Loopback, asked: Asked, fault: Fault) -> tuple[int, dict[str, str], bytes]:
    if fault.status >= 400 and fault.body is None:
        return fault.status, {}, b"no"
    if asked.path in web.routes and fault.body is None:
        return 200, {"Content-Type": "application/json"}, json.dumps(web.routes[asked.path](asked)).encode()
    file = web.folder / asked.path.lstrip("/")
    if fault.body is None and not file.is_file():
        return 404, {}, b"there is no such file"
    body = file.read_bytes() if fault.body is None else fault.body
    tag = fault.headers.get("ETag", f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    headers = {"ETag": tag, "Accept-Ranges": "bytes"}
    wanted = asked.headers.get("Range", "")
    if asked.headers.get("If-Match", tag) != tag:
        return 412, headers, b""
    if fault.deaf or not wanted or asked.headers.get("If-Range", tag) != tag:
        return 200, headers, body
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start, stop = int(first), min(int(last or len(body)) + 1, len(body))
    if start >= len(body):
        return 416, headers | {"Content-Range": f"bytes */{len(body)}"}, b""
    return 206, headers | {"Content-Range": f"bytes {start}-{stop - 1}/{len(body)}"}, body[start:stop]


def serve_api(
    web: Loopback, items: list[dict[str, Any]], *, page: int = 2, follow: str = "POST", knows: tuple[str, ...] = ()
) -> str:
    """Turn the server into a STAC API that pages through items; return its address."""
    search = f"{web.url}/api/search"

    def landing(_: Asked) -> Any:
        core = "https://api.stacspec.org/v1.0.0"
        return {
            "type": "Catalog",
            "stac_version": "1.0.0",
            "id": "api",
            "description": "a STAC API",
            "conformsTo": [f"{core}/core", f"{core}/item-search", *(f"{core}/item-search#{name}" for name in knows)],
            "links": [
                {"rel": "self", "href": f"{web.url}/api"},
                {"rel": "root", "href": f"{web.url}/api"},
                {"rel": "search", "href": search, "method": "GET", "type": "application/geo+json"},
                {"rel": "search", "href": search, "method": "POST", "type": "application/geo+json"},
            ],
        }

    def found(asked: Asked) -> Any:
        start = int(asked.value.get("token", 0))
        links = []
        if start + page < len(items):
            more = {"rel": "next", "method": follow, "href": search, "body": {**asked.value, "token": start + page}}
            links = [more if follow == "POST" else {"rel": "next", "href": f"{search}?token={start + page}"}]
        return {"type": "FeatureCollection", "features": items[start : start + page], "links": links}

    web.routes |= {"/api": landing, "/api/search": found}
    return f"{web.url}/api"
