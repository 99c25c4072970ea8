"""A PostgreSQL of the tests: loopback only, in a folder that goes away with it."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from processes import free_port, program, running, skip_as_missing

FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=64MB", "max_connections=30")


@dataclass(frozen=True)
class Database:
    """Where a database listens; `environment` is what libpq and stac-fastapi read."""

    port: int
    password: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": "eopipe",
            "PGPASSWORD": self.password,
            "PGDATABASE": "postgres",
        }


@contextmanager
def postgres() -> Iterator[Database]:
    """Start a database with PostGIS at hand."""
    folders = [str(p) for p in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    initdb, server, psql = (program(name, *folders) for name in ("initdb", "postgres", "psql"))
    # The path of a socket must be short, and the database's user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="eopg-"))
    database = Database(free_port(), secrets.token_hex(16))
    try:
        become = _become(folder)
        _initialise(folder, [*become, initdb], database.password)
        settings = [f"port={database.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", *FAST]
        command = [*become, server, "-D", str(folder / "data"), *(w for s in settings for w in ("-c", s))]
        with running(command, folder / "log", lambda: _answers(psql, database), cwd=folder):
            yield database
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _become(folder: Path) -> list[str]:
    """The prefix of a command that runs it as another user than root, as PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        skip_as_missing("the user postgres does not exist")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return [program("setpriv"), f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups", "--pdeathsig=TERM"]


def _initialise(folder: Path, initdb: list[str], password: str) -> None:
    secret = folder / "password"
    secret.write_text(password)
    arguments = [
        "-D",
        str(folder / "data"),
        "-U",
        "eopipe",
        "-A",
        "scram-sha-256",
        f"--pwfile={secret}",
        "-N",
        "-E",
        "UTF8",
    ]
    subprocess.run([*initdb, *arguments, "--locale=C.UTF-8"], check=True, stdout=subprocess.DEVNULL, cwd=folder)


def _answers(psql: str, database: Database) -> bool:
    command = [psql, "-qtAc", "SELECT 1"]
    completed = subprocess.run(command, env=os.environ | database.environment, capture_output=True, check=False)
    return completed.returncode == 0
