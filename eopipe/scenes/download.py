"""Bring one asset to disk: whole, checked, resumed where it broke off."""

import fcntl
import hashlib
import ipaddress
import json
import logging
import os
import random
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from eopipe.errors import (
    BadInputError,
    EopipeError,
    IntegrityError,
    RefusedError,
    UpstreamError,
    UsageError,
    is_full,
    no_space,
)
from eopipe.scenes.content import damage, is_page, no_raster, suffix
from eopipe.scenes.item import safe_href, scene_name, scheme

log = logging.getLogger("eopipe")
ATTEMPTS = 6
TIMEOUT = (10.0, 60.0)
BACKOFF = 0.5
MAX_WAIT = 120.0
# Slower than this (bytes a second, after so many seconds) is a server that hangs.
SLOWEST, GRACE = 1000.0, 60.0
BLOCK = 1 << 16
RETRY_CODES = (408, 425, 429)


@dataclass(frozen=True)
class Again:
    """Why a request has to be made again, and how many seconds the server wants us to wait."""

    reason: str
    wait: float = 0.0
    slow: bool = False


@contextmanager
def alone_in(room: Path) -> Iterator[None]:
    """Make the folder of unfinished downloads and keep other processes out of it until the block ends.

    Raises UsageError when another process is at work there, NoSpaceError when the disk or quota fills up.
    """
    handle = -1
    try:
        room.mkdir(parents=True, exist_ok=True)
        handle = os.open(room, os.O_RDONLY)
        _lock(handle, room)
        yield
    except OSError as error:
        if is_full(error):
            raise no_space(room) from error
        raise
    finally:
        if handle >= 0:
            os.close(handle)


def _lock(handle: int, room: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(f"another eopipe is fetching into {room}; wait until it has ended") from error
    except OSError:
        log.info("event=no_lock folder=%s reason='the file system has no locks'", room.name)


def part_name(name: str, asset: dict[str, Any]) -> str:
    """Where an asset is brought: another address or checksum gets another part, never a mixture."""
    told = json.dumps([asset.get(key) for key in ("href", "file:size", "file:checksum")])
    return f"{scene_name(name)}-{hashlib.sha256(told.encode()).hexdigest()[:12]}.part"


def bring(asset: dict[str, Any], where: str, catalog: Path | None, part: Path) -> Path:
    """Fetch an asset into the file `part` and check it; return the part.

    Raises BadInputError (missing, no raster), IntegrityError (size, checksum), UpstreamError (server).
    """
    href = safe_href(asset["href"], where)
    fetch = _from_http if scheme(href) else _from_folder
    for attempt in (1, 2):
        if fetch is _from_folder or not _is_done(asset, part):
            fetch(href, where, catalog, part)
        wrong = damage(asset, part)
        if not wrong:
            break
        kept = _quarantine(part)
        if is_page(kept) or attempt == 2 or fetch is _from_folder:
            raise no_raster(kept, where) if is_page(kept) else IntegrityError(f"{where} ({_name(href)}) {wrong}")
        log.warning("event=refetch asset=%s reason=%r", where, wrong)
    suffix(part, where)
    _finish(part)
    return part


def _name(href: str) -> str:
    return Path(urlsplit(href).path).name


def _is_done(asset: dict[str, Any], part: Path) -> bool:
    """Whether an earlier run brought the whole file: it says so, or its checksum does."""
    if not part.exists():
        return False
    whole = part.with_suffix(".whole").exists() or bool(asset.get("file:checksum"))
    return whole and not damage(asset, part)


def _finish(part: Path) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.with_suffix(".whole").touch()


def _quarantine(part: Path) -> Path:
    """Keep what arrived for inspection, where nothing resumes from it."""
    for ending in (".whole", ".etag"):
        part.with_suffix(ending).unlink(missing_ok=True)
    return part.replace(part.with_suffix(".quarantine"))


def _from_folder(href: str, where: str, catalog: Path | None, part: Path) -> None:
    if catalog is None:
        raise BadInputError(f"{where} has the relative path {href}; name its catalog folder")
    source = (catalog / href).resolve()
    if not source.is_relative_to(catalog.resolve()):
        raise RefusedError(f"{where} points to {href!r}, outside the catalog")
    if not source.is_file():
        raise BadInputError(f"{where} is missing: there is no {href} in {catalog}")
    shutil.copyfile(source, part)


def _from_http(href: str, where: str, _catalog: Path | None, part: Path) -> None:
    import requests

    with requests.Session() as session:
        session.hooks["response"].append(_check_redirect)
        failed = 0
        while True:
            have = _bytes(part)
            try:
                again = _attempt(session, href, where, part)
            except requests.RequestException as error:
                again = Again(type(error).__name__)
            if again is None:
                return
            # An attempt that brought something is no failure, or a large file over a bad line never arrives.
            failed = 1 if _bytes(part) > have and not again.slow else failed + 1
            if failed == ATTEMPTS:
                host = urlsplit(href).hostname
                raise UpstreamError(f"{host} did not deliver {where} (last: {again.reason}); try again later")
            _pause(again, failed, where)


def _bytes(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _pause(again: Again, failed: int, where: str) -> None:
    wait = min(again.wait or BACKOFF * 2**failed, MAX_WAIT)
    log.warning("event=retry asset=%s attempt=%d reason=%r wait_s=%.1f", where, failed, again.reason, wait)
    time.sleep(wait * (1 + random.random() / 10))  # noqa: S311


def _check_redirect(response: Any, **_: Any) -> None:
    """Refuse to be sent on to a host inside this network, or to another kind of address."""
    if not response.is_redirect:
        return
    here, there = urlsplit(response.url), urlsplit(urljoin(response.url, response.headers["Location"]))
    inside = there.hostname != here.hostname and _is_private(there.hostname or "")
    if inside or there.scheme not in ("http", "https"):
        raise RefusedError(f"{here.hostname} redirects to {there.scheme}://{there.hostname}, which is not public")


def _is_private(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return any(not ipaddress.ip_address(str(address[4][0]).partition("%")[0]).is_global for address in found)


def _attempt(session: Any, href: str, where: str, part: Path) -> Again | None:
    """One request; None when the file is complete, else why to try again."""
    tag, have = part.with_suffix(".etag"), _bytes(part)
    known = tag.read_text() if have and tag.exists() else ""
    headers = {"Accept-Encoding": "identity"}
    if known:
        headers |= {"Range": f"bytes={have}-", "If-Range": known}
    with session.get(href, headers=headers, stream=True, timeout=TIMEOUT) as response:
        code, told = response.status_code, response.headers
        if code >= 500 or code in RETRY_CODES:
            after = told.get("Retry-After", "")
            return Again(f"status {code}", float(after) if after.isdigit() else 0.0)
        same = told.get("ETag", known) == known
        if code == 416 and same and told.get("Content-Range") == f"bytes */{have}":
            return None
        if code == 416 or (code == 206 and not (same and told.get("Content-Range", "").startswith(f"bytes {have}-"))):
            part.unlink()
            return Again("the file on the server has changed")
        if code not in (200, 206):
            raise BadInputError(f"{where} cannot be had: {urlsplit(href).hostname} answered {code} {response.reason}")
        if told.get("Content-Encoding", "identity") != "identity":
            raise BadInputError(f"{where} comes compressed as {told['Content-Encoding']}, which was not asked for")
        return _stream(response, part, have if code == 206 else 0)


def _stream(response: Any, part: Path, start: int) -> Again | None:
    length, began = response.headers.get("Content-Length"), time.monotonic()
    total = response.headers.get("Content-Range", "").rpartition("/")[2] if start else length
    with part.open("r+b" if start else "wb") as file:
        if not start:
            # Only now, with the old bytes gone: a tag must never stand beside bytes of another version.
            _remember(response, part.with_suffix(".etag"))
        file.seek(start)
        for block in response.iter_content(BLOCK):
            file.write(block)
            taken = time.monotonic() - began
            if taken > GRACE and file.tell() - start < SLOWEST * taken:
                return Again(f"less than {SLOWEST:.0f} bytes a second", slow=True)
        have = file.tell()
    return Again(f"{have} of {total} bytes came") if total and total.isdigit() and have != int(total) else None


def _remember(response: Any, tag: Path) -> None:
    """Keep the strong tag of a version, which alone allows to resume."""
    told = response.headers.get("ETag", "")
    if told.startswith('"'):
        tag.write_text(told)
    else:
        tag.unlink(missing_ok=True)


def all_of(tasks: Sequence[Callable[[], Path]], workers: int) -> list[Path]:
    """Run downloads side by side; when some fail, the rest still finish and every failure is told."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(task) for task in tasks]
    failed = [error for error in (future.exception() for future in futures) if error]
    foreign = next((error for error in failed if not isinstance(error, EopipeError)), None)
    if foreign:
        raise foreign
    # The gravest failure gives the exit code: waiting does not heal a file that is missing or damaged.
    for kind in (RefusedError, IntegrityError, BadInputError, UpstreamError):
        if any(isinstance(error, kind) for error in failed):
            raise kind("; ".join(map(str, failed)))
    return [future.result() for future in futures]
