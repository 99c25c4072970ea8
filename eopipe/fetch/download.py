"""Downloads one whole asset: resumed where it broke off, and verified against size and checksum of its item."""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from eopipe.errors import BadInputError, IntegrityError, RefusedError, UpstreamError, is_full
from eopipe.fetch.range_reader import catalog_file, is_same_version, remote_file
from eopipe.fetch.retry import ChangedError, FetchSession, RangeResponse, RetryBudget, TransientError, retry
from eopipe.scenes.item import safe_href, scene_name, scheme
from eopipe.tiles.raster_end import RASTER, truncation

if TYPE_CHECKING:
    from eopipe.fetch.http import RemoteFile

log = logging.getLogger("eopipe")
# No asset of a scene is larger; a body without an end would fill the disk.
MAX_BYTES = 1 << 36
# Multihash codes (https://github.com/multiformats/multicodec) of the hashes that STAC catalogs use.
MULTIHASH = {
    "1220": "sha256",
    "1340": "sha512",
    "1114": "sha1",
    "d50110": "md5",
    "1440": "sha3_512",
    "1620": "sha3_256",
    "c0e40240": "blake2b",
    "e0e40220": "blake2s",
}
# Roots of the text files that GDAL takes for rasters or layers.
GDAL_XML = re.compile(rb"<\s*(VRTDataset|OGRVRTDataSource|GDAL_W[MC]S\w*|GDALTileIndexDataset|WCS_GDAL)\b")
# The first bytes of archives, and at which byte they are.
ARCHIVE = {
    b"PK": (0, "zip"),
    b"\x1f\x8b": (0, "gzip"),
    b"BZh": (0, "bzip2"),
    b"\xfd7zXZ": (0, "xz"),
    b"7z\xbc\xaf": (0, "7z"),
    b"\x28\xb5\x2f\xfd": (0, "zstd"),
    b"ustar": (257, "tar"),
}


def part_name(name: str, asset: dict[str, Any], *more: str) -> str:
    """The file name of an unfinished download: another address, checksum or `more` gives another name."""
    key = json.dumps([*(asset.get(field) for field in ("href", "file:size", "file:checksum")), *more])
    return f"{scene_name(name)}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.part"


def download_asset(
    asset: dict[str, Any], label: str, catalog: Path | None, part: Path, session: FetchSession | None = None
) -> Path:
    """Fetch an asset into the file `part` and verify it; return the part.

    Raises BadInputError (missing, not a raster), IntegrityError (size, checksum), UpstreamError (server).
    """
    href = safe_href(asset["href"], label)
    source = None if scheme(href) else catalog_file(href, label, catalog)
    budget = RetryBudget(label, urlsplit(href).hostname or "", session or FetchSession())
    for is_last in (source is not None, True):
        if source:
            _copy(source, part, label)
        elif not _is_complete(asset, part):
            _download(remote_file(href, label, budget.session), asset, part, budget)
        damage = damage_of_part(asset, part)
        if not damage:
            break
        quarantined = _quarantine(part)
        if is_page(quarantined):
            raise not_a_raster(quarantined, label)
        if is_last:
            raise IntegrityError(f"{label} ({Path(urlsplit(asset['href']).path).name}) {damage}")
        log.warning("event=refetch asset=%s reason=%r", label, damage)
    raster_suffix(part, label)
    return mark_complete(part)


def _copy(source: Path, part: Path, label: str) -> None:
    """Copy a file of a catalog on this disk; always again, since it may have changed."""
    part.unlink(missing_ok=True)
    status = source.stat()
    shutil.copyfile(source, part)
    if not is_same_version(status, source.stat()):
        raise UpstreamError(f"{label} changed while it was copied; try again later")


def _is_complete(asset: dict[str, Any], part: Path) -> bool:
    """Whether an earlier run fetched the whole file: its mark or the checksum of the item proves it."""
    if not part.exists():
        return False
    is_marked = part.with_suffix(".whole").exists() or bool(asset.get("file:checksum"))
    return is_marked and not damage_of_part(asset, part)


def missing_bytes(asset: dict[str, Any], part: Path) -> int:
    """Bytes of an asset that are still to be fetched; 0 where the item does not state its size."""
    size = asset.get("file:size")
    return max(0, size - _size(part)) if isinstance(size, int) else 0


def mark_complete(part: Path) -> Path:
    """Note that a part is whole, for the next run."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.with_suffix(".whole").touch()
    return part


def _quarantine(part: Path) -> Path:
    """Keep a damaged download for inspection, under a name that no run resumes."""
    for suffix in (".whole", ".etag"):
        part.with_suffix(suffix).unlink(missing_ok=True)
    return part.replace(part.with_suffix(".quarantine"))


def _download(file: "RemoteFile", asset: dict[str, Any], part: Path, budget: RetryBudget) -> None:
    max_bytes = asset.get("file:size") or MAX_BYTES
    try:
        retry(lambda: _attempt(file, part, max_bytes, budget), lambda: _size(part), budget)
    except OSError as error:
        if is_full(error):
            # An unfinished part yields to those that still fit.
            part.unlink(missing_ok=True)
        raise


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _attempt(file: "RemoteFile", part: Path, max_bytes: int, budget: RetryBudget) -> None:
    """One request for the missing bytes of a part."""
    tag_file, size = part.with_suffix(".etag"), _size(part)
    tag, length = _version_begun(tag_file) if size else ("", None)
    try:
        with file.request(size if tag else 0, None, tag, budget) as response:
            if not response.start:
                # The old bytes are removed before the tag is written: it never accompanies bytes of another version.
                _begin(part, tag_file, response)
            elif response.total is None or length not in (None, response.total):
                raise ChangedError
            size = _append(part, response.start, response.body, max_bytes)
    except ChangedError:
        part.unlink(missing_ok=True)
        raise TransientError("the file on the server has changed") from None
    if size > max_bytes:
        if max_bytes == MAX_BYTES:
            raise RefusedError(f"{budget.label} does not end after {max_bytes} bytes")
        return
    if response.total is not None and size != response.total:
        raise TransientError(f"{size} of {response.total} bytes arrived")


def _version_begun(tag_file: Path) -> tuple[str, int | None]:
    """The ETag and the length of the version of which a part has the first bytes, empty and None where not known."""
    lines = tag_file.read_text().splitlines() if tag_file.exists() else []
    return "".join(lines[:1]), int(lines[1]) if lines[1:] and lines[1].isdigit() else None


def _begin(part: Path, tag_file: Path, response: RangeResponse) -> None:
    # A new file, since the old one can be the second name of a published one.
    part.unlink(missing_ok=True)
    part.touch()
    if response.tag:
        tag_file.write_text(f"{response.tag}\n{'' if response.total is None else response.total}\n")
    else:
        tag_file.unlink(missing_ok=True)


def _append(part: Path, start: int, body: Iterable[bytes], max_bytes: int) -> int:
    """Write the chunks of a body from `start` on, up to just over `max_bytes`; return where the file ends."""
    with part.open("r+b") as file:
        file.seek(start)
        for chunk in body:
            file.write(chunk)
            if file.tell() > max_bytes:
                break
        return file.tell()


def raster_suffix(part: Path, label: str) -> str:
    """The file name suffix for the first bytes of a file.

    Raises BadInputError for what is not a GeoTIFF or JPEG 2000 file, RefusedError for an archive.
    """
    with part.open("rb") as file:
        head = file.read(512)
    archives = (kind for magic, (offset, kind) in ARCHIVE.items() if head[offset:].startswith(magic))
    if kind := next(archives, ""):
        raise RefusedError(f"{label} is a {kind} archive, which is never unpacked; choose an asset that is an image")
    suffix = RASTER.get(head[:4])
    if suffix is None:
        raise not_a_raster(part, label)
    return suffix


def not_a_raster(part: Path, label: str) -> BadInputError | RefusedError:
    """The error for a file that is not a raster, with what it looks like; XML of GDAL is refused."""
    with part.open("rb") as file:
        root = GDAL_XML.search(file.read(4096))
    if root:
        return RefusedError(f"{label} is XML of GDAL ({root[1].decode()}), which can read other files")
    looks = "an HTML or XML page" if is_page(part) else "something else"
    return BadInputError(f"{label} is not a GeoTIFF or JPEG 2000 file: it looks like {looks}")


def is_page(part: Path) -> bool:
    """Whether a file is a web page, which some servers send in place of a file."""
    with part.open("rb") as file:
        return file.read(64).lstrip()[:1] == b"<"


def damage_of_part(asset: dict[str, Any], part: Path) -> str:
    """How a file differs from size and checksum of its item; empty where it does not."""
    stated, size = asset.get("file:size"), part.stat().st_size
    if stated is not None and stated != size:
        return f"has {size} bytes, the catalog says {stated}: the copy is truncated or another version"
    code = str(asset.get("file:checksum") or "").lower()
    for prefix, name in MULTIHASH.items():
        if code.startswith(prefix):
            with part.open("rb") as file:
                checksum = hashlib.file_digest(file, name).hexdigest()
            is_equal = checksum == code.removeprefix(prefix)
            return "" if is_equal else f"does not match its {name} checksum in the catalog"
    if code:
        return f"has a checksum of unknown kind ({code[:8]}…)"
    # Where neither size nor checksum are known, only its own structure shows that a file is cut.
    return "" if stated else truncation(part)
