"""An nginx of the tests that serves folders with range requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from processes import free_port, listens, program, running

CONFIG = """
daemon off; master_process off; pid {work}/pid; error_log {work}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log {work}/access.log; default_type application/octet-stream; sendfile on;
  client_body_temp_path {work}/body; proxy_temp_path {work}/proxy; fastcgi_temp_path {work}/fastcgi;
  uwsgi_temp_path {work}/uwsgi; scgi_temp_path {work}/scgi;
  server {{ listen 127.0.0.1:{port}; {locations} }}
}}
"""


@dataclass(frozen=True)
class Served:
    """A web server: its address, and the log of what was asked of it."""

    url: str
    log: Path


@contextmanager
def nginx(folders: dict[str, Path], work: Path) -> Iterator[Served]:
    """Serve each folder under its name."""
    port = free_port()
    locations = " ".join(f'location /{name}/ {{ alias "{folder.resolve()}/"; }}' for name, folder in folders.items())
    work.mkdir(parents=True)
    (work / "nginx.conf").write_text(CONFIG.format(work=work, port=port, locations=locations))
    command = [program("nginx", "/usr/sbin", "/sbin"), "-c", str(work / "nginx.conf"), "-e", str(work / "error.log")]
    with running(command, work / "log", lambda: listens(port)):
        yield Served(f"http://127.0.0.1:{port}", work / "access.log")
