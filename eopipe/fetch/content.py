"""What a downloaded file is: a raster by its first bytes, and the one that the catalog means by its checksum."""

import hashlib
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError, RefusedError

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
