"""Bring one asset to disk: whole, checked, resumed where it broke off."""

import hashlib
import logging
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eopipe.errors import BadInputError, IntegrityError, RefusedError, UpstreamError, is_full
from eopipe.scenes.item import safe_href

log = logging.getLogger("eopipe")
ATTEMPTS = 6
TIMEOUT = (10.0, 60.0)
MAX_WAIT = 120.0
RETRY_CODES = (408, 429, 500, 502, 503, 504)
# Multihash codes (https://github.com/multiformats/multicodec) of the hashes that STAC catalogs use.
MULTIHASH = {"1220": "sha256", "1340": "sha512", "1114": "sha1", "d50110": "md5", "1620": "sha3_256"}
RASTER = {b"II*\0": ".tif", b"MM\0*": ".tif", b"II+\0": ".tif", b"MM\0+": ".tif", b"\0\0\0\x0c": ".jp2"}


def bring(asset: dict[str, Any], where: str, catalog: Path | None, part: Path) -> Path:
    """Fetch an asset into the file `part` and check it; return the part.

    Raises BadInputError (missing, no raster), IntegrityError (size, checksum), UpstreamError (server).
    """
    href = safe_href(asset["href"], where)
    fetch = _from_http if urlsplit(href).scheme else _from_folder
    for attempt in (1, 2):
        if not _is_done(asset, part):
            fetch(href, where, catalog, part)
        wrong = _damage(asset, part)
        if not wrong:
            break
        # Keep what arrived for inspection, and never resume from it.
        part.replace(part.with_suffix(".quarantine"))
        if attempt == 2 or fetch is _from_folder:
            raise IntegrityError(f"{where} ({Path(urlsplit(href).path).name}) {wrong}")
        log.warning("event=refetch asset=%s reason=%r", where, wrong)
    suffix(part, where)
    return part


def _is_done(asset: dict[str, Any], part: Path) -> bool:
    """Whether an earlier run brought the whole file, as far as a checksum can tell."""
    return part.exists() and bool(asset.get("file:checksum")) and not _damage(asset, part)


def suffix(part: Path, where: str) -> str:
    """The file ending that the first bytes tell; refuse what is no GeoTIFF or JPEG 2000."""
    with part.open("rb") as file:
        head = file.read(64)
    found = RASTER.get(head[:4])
    if found is None:
        looks = "an HTML or XML page" if head.lstrip()[:1] == b"<" else "something else"
        raise BadInputError(f"{where} is no GeoTIFF or JPEG 2000 file: it looks like {looks}")
    return found


def _damage(asset: dict[str, Any], part: Path) -> str:
    """What is wrong with a file in the light of the item, or nothing."""
    want, have = asset.get("file:size"), part.stat().st_size
    if want is not None and want != have:
        return f"has {have} bytes, the catalog says {want}: the copy is truncated or another version"
    code = str(asset.get("file:checksum", "")).lower()
    for prefix, name in MULTIHASH.items():
        if code.startswith(prefix):
            with part.open("rb") as file:
                found = hashlib.file_digest(file, name).hexdigest()
            if found != code.removeprefix(prefix):
                return f"does not match its {name} checksum in the catalog"
            return ""
    if code:
        return f"has a checksum of unknown kind ({code[:8]}…)"
    return ""


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

    host = urlsplit(href).hostname
    with requests.Session() as session:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                wait = _attempt(session, href, where, part)
            except (requests.RequestException, OSError) as error:
                if is_full(error):
                    raise
                wait = type(error).__name__
            if wait is None:
                return
            if attempt < ATTEMPTS:
                _pause(wait, attempt, where)
    raise UpstreamError(f"{host} did not deliver {where} in {ATTEMPTS} attempts (last: {wait}); try again later")


def _pause(reason: str | float, attempt: int, where: str) -> None:
    told = reason if isinstance(reason, float) else 0.25 * 2**attempt
    log.warning("event=retry asset=%s attempt=%d reason=%s", where, attempt, reason)
    time.sleep(min(told, MAX_WAIT) + random.random() * 0.1)


def _attempt(session: Any, href: str, where: str, part: Path) -> str | float | None:
    """One request; None when the file is complete, else why to try again (or how many seconds to wait)."""
    tag, have = part.with_suffix(".etag"), part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if have and tag.exists():
        headers |= {"Range": f"bytes={have}-", "If-Range": tag.read_text()}
    with session.get(href, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code in RETRY_CODES:
            after = response.headers.get("Retry-After", "")
            return float(after) if after.isdigit() else f"status {response.status_code}"
        if response.status_code == 416:
            part.unlink()
            return "the server has nothing after what came before"
        if response.status_code not in (200, 206):
            part.unlink(missing_ok=True)
            raise BadInputError(f"{where} is not there: {urlsplit(href).hostname} answered {response.status_code}")
        start = have if _continues(response, have) else 0
        if not start and response.headers.get("ETag", "W/").startswith('"'):
            tag.write_text(response.headers["ETag"])
        return _stream(response, part, start)


def _continues(response: Any, have: int) -> bool:
    told = response.headers.get("Content-Range", "")
    return bool(response.status_code == 206 and told.startswith(f"bytes {have}-"))


def _stream(response: Any, part: Path, start: int) -> str | None:
    want = response.headers.get("Content-Length")
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        for block in response.iter_content(1 << 20):
            file.write(block)
        got = file.tell() - start
    return None if want is None or got == int(want) else f"{got} of {want} bytes came"


def all_of(tasks: list[Callable[[], Path]], workers: int) -> list[Path]:
    """Run downloads side by side; when some fail, the rest still finish and every failure is told."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(task) for task in tasks]
    failed = [f.exception() for f in futures if f.exception()]
    if failed:
        if any(not isinstance(e, (BadInputError, IntegrityError, UpstreamError, RefusedError)) for e in failed):
            raise next(e for e in failed if e)
        raise type(failed[0])("; ".join(str(e) for e in failed))  # type: ignore[misc]
    return [f.result() for f in futures]
