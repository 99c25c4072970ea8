"""Bring one asset to disk: whole, checked, resumed where it broke off."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eopipe.errors import BadInputError, IntegrityError, RefusedError, is_full
from eopipe.fetch.range_reader import inside
from eopipe.fetch.retry import Again, Changed, FetchSession, Patience, insist
from eopipe.fetch.sources import Source, source_of
from eopipe.scenes.item import safe_href, scene_name, scheme

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
RASTER = {b"II*\0": ".tif", b"MM\0*": ".tif", b"II+\0": ".tif", b"MM\0+": ".tif", b"\0\0\0\x0c": ".jp2"}
# How archives begin, and at which byte.
ARCHIVE = {
    b"PK": (0, "zip"),
    b"\x1f\x8b": (0, "gzip"),
    b"BZh": (0, "bzip2"),
    b"\xfd7zXZ": (0, "xz"),
    b"7z\xbc\xaf": (0, "7z"),
    b"\x28\xb5\x2f\xfd": (0, "zstd"),
    b"ustar": (257, "tar"),
}


def suffix(part: Path, where: str) -> str:
    """The file ending that the first bytes tell; refuse what is no GeoTIFF or JPEG 2000."""
    with part.open("rb") as file:
        head = file.read(512)
    found = RASTER.get(head[:4])
    kind = next((kind for start, (place, kind) in ARCHIVE.items() if head[place:].startswith(start)), "")
    if kind:
        raise RefusedError(f"{where} is a {kind} archive; none is unpacked here, so choose an asset that is an image")
    if found is None:
        raise no_raster(part, where)
    return found


def no_raster(part: Path, where: str) -> BadInputError:
    """Make the error for a file that is no raster, which says what it looks like."""
    looks = "an HTML or XML page" if is_page(part) else "something else"
    return BadInputError(f"{where} is no GeoTIFF or JPEG 2000 file: it looks like {looks}")


def is_page(part: Path) -> bool:
    """Tell whether a file is a web page, as servers send in place of a file."""
    with part.open("rb") as file:
        return file.read(64).lstrip()[:1] == b"<"


def damage(asset: dict[str, Any], part: Path) -> str:
    """What is wrong with a file in the light of the item, or nothing."""
    want, have = asset.get("file:size"), part.stat().st_size
    if want is not None and want != have:
        return f"has {have} bytes, the catalog says {want}: the copy is truncated or another version"
    if not have:
        return "is empty"
    code = str(asset.get("file:checksum") or "").lower()
    for prefix, name in MULTIHASH.items():
        if code.startswith(prefix):
            with part.open("rb") as file:
                found = hashlib.file_digest(file, name).hexdigest()
            return "" if found == code.removeprefix(prefix) else f"does not match its {name} checksum in the catalog"
    return f"has a checksum of unknown kind ({code[:8]}…)" if code else ""


log = logging.getLogger("eopipe")
# No asset of a scene is larger; a body without an end would fill the disk.
MOST = 1 << 36


def part_name(name: str, asset: dict[str, Any], *more: str) -> str:
    """Where an asset is brought: another address, checksum or `more` gets another part, never a mixture."""
    told = json.dumps([*(asset.get(key) for key in ("href", "file:size", "file:checksum")), *more])
    return f"{scene_name(name)}-{hashlib.sha256(told.encode()).hexdigest()[:12]}.part"


def bring(
    asset: dict[str, Any], where: str, catalog: Path | None, part: Path, terms: FetchSession | None = None
) -> Path:
    """Fetch an asset into the file `part` and check it; return the part.

    Raises BadInputError (missing, no raster), IntegrityError (size, checksum), UpstreamError (server).
    """
    href = safe_href(asset["href"], where)
    if not scheme(href):
        return _copy(asset, where, inside(href, where, catalog), part)
    patience = Patience(where, urlsplit(href).hostname or "", terms or FetchSession())
    for attempt in (1, 2):
        if not _is_done(asset, part):
            _download(source_of(href, where, patience.terms), asset, part, patience)
        wrong = damage(asset, part)
        if not wrong:
            break
        kept = _quarantine(part)
        if is_page(kept) or attempt == 2:
            raise no_raster(kept, where) if is_page(kept) else _damaged(where, href, wrong)
        log.warning("event=refetch asset=%s reason=%r", where, wrong)
    suffix(part, where)
    return finish(part)


def _copy(asset: dict[str, Any], where: str, source: Path, part: Path) -> Path:
    """Bring an asset of a catalog on this disk; it is copied anew each time, since it may have changed."""
    part.unlink(missing_ok=True)
    shutil.copyfile(source, part)
    if wrong := damage(asset, part):
        kept = _quarantine(part)
        raise no_raster(kept, where) if is_page(kept) else _damaged(where, asset["href"], wrong)
    suffix(part, where)
    return finish(part)


def _damaged(where: str, href: str, wrong: str) -> IntegrityError:
    return IntegrityError(f"{where} ({Path(urlsplit(href).path).name}) {wrong}")


def _is_done(asset: dict[str, Any], part: Path) -> bool:
    """Whether an earlier run brought the whole file: it says so, or its checksum does."""
    if not part.exists():
        return False
    whole = part.with_suffix(".whole").exists() or bool(asset.get("file:checksum"))
    return whole and not damage(asset, part)


def missing(asset: dict[str, Any], part: Path) -> int:
    """Bytes of an asset that are not here yet; 0 where the catalog does not tell its size."""
    size = asset.get("file:size")
    return max(0, size - _bytes(part)) if isinstance(size, int) else 0


def finish(part: Path) -> Path:
    """Note that a part is whole, for the next run."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.with_suffix(".whole").touch()
    return part


def _quarantine(part: Path) -> Path:
    """Keep what arrived for inspection, where nothing resumes from it."""
    for ending in (".whole", ".etag"):
        part.with_suffix(ending).unlink(missing_ok=True)
    return part.replace(part.with_suffix(".quarantine"))


def _download(source: Source, asset: dict[str, Any], part: Path, patience: Patience) -> None:
    most = asset.get("file:size") or MOST
    try:
        insist(lambda: _attempt(source, part, most, patience), lambda: _bytes(part), patience)
    except OSError as error:
        if is_full(error):
            # What is not whole makes room for what can be.
            part.unlink(missing_ok=True)
        raise


def _bytes(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _attempt(source: Source, part: Path, most: int, patience: Patience) -> None:
    """One request for what is missing of a part."""
    note, have = part.with_suffix(".etag"), _bytes(part)
    tag = note.read_text() if have and note.exists() else ""
    try:
        with source.ask(have if tag else 0, None, tag, patience) as reply:
            if not reply.start:
                # The old bytes go before the tag comes: a tag must never stand beside bytes of another version.
                _begin(part, note, reply.tag)
            have = _append(part, reply.start, reply.body, most)
    except Changed:
        part.unlink(missing_ok=True)
        raise Again("the file on the server has changed") from None
    if have > most:
        if most == MOST:
            raise RefusedError(f"{patience.where} does not end after {most} bytes")
        return
    if reply.total is not None and have != reply.total:
        raise Again(f"{have} of {reply.total} bytes came")


def _begin(part: Path, note: Path, tag: str) -> None:
    # A new file, since the old one can be a published one's second name.
    part.unlink(missing_ok=True)
    part.touch()
    if tag:
        note.write_text(tag)
    else:
        note.unlink(missing_ok=True)


def _append(part: Path, start: int, body: Iterable[bytes], most: int) -> int:
    """Write the pieces of a body from `start` on, up to just over `most` bytes; return where the file ends."""
    with part.open("r+b") as file:
        file.seek(start)
        for block in body:
            file.write(block)
            if file.tell() > most:
                break
        return file.tell()


def place(part: Path, target: Path) -> None:
    """Put a part that is whole into a folder, without a second copy of its bytes where the disk is the same."""
    try:
        target.hardlink_to(part)
    except OSError:
        shutil.copyfile(part, target)
