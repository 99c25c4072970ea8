"""Zarr stores of assets: in a catalog on disk, on a web server, or in a bucket.

Their files are read through the requests of this package.

How STAC describes them: https://github.com/radiantearth/stac-best-practices (best-practices-zarr.md), and the items of
the EOPF Sentinel Zarr Samples, whose assets are single arrays.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from eopipe.fetch.range_reader import catalog_file, catalog_root
from eopipe.fetch.retry import FetchSession
from eopipe.scenes.item import safe_href, scheme

if TYPE_CHECKING:
    from eopipe.fetch.zarr_files import FileStore

MEDIA_TYPE = re.compile(r"application/(vnd[.+]|x-)?zarr\b")
RASTERS = (".tif", ".tiff", ".jp2")


def is_zarr(asset: dict[str, Any]) -> bool:
    """Whether an asset is a Zarr store or a part of one, by its media type or its address."""
    if MEDIA_TYPE.match(str(asset.get("type") or "").lower()):
        return True
    href = str(asset["href"])
    is_store = bool(_split(href))
    return not asset.get("type") and is_store and not urlsplit(href).path.lower().endswith(RASTERS)


def open_store(
    asset: dict[str, Any], label: str, catalog: Path | None, session: FetchSession
) -> tuple["FileStore", str]:
    """The store of an asset, to read, and the path of the asset in it.

    Raises RefusedError (address), BadInputError (missing).
    """
    href = safe_href(asset["href"], label)
    root, path = _split(href) or _last_segment(href)
    # zarr is imported only now.
    from eopipe.fetch.zarr_files import FileStore, LocalFiles, ServerFiles

    if scheme(href):
        return FileStore(ServerFiles(root, label, session)), path
    folder = catalog_file(root, label, catalog, folder=True)
    return FileStore(LocalFiles(folder, catalog_root(catalog or folder), label)), path


def _split(href: str) -> tuple[str, str] | None:
    """The address of the store and the path in it, by the name of the folder; None where no folder is called ….zarr."""
    if scheme(href) == "broken":
        # Refused as any other address that is not one.
        return None
    parts = urlsplit(href)
    names = parts.path.rstrip("/").split("/")
    place = next((number for number, name in enumerate(names) if name.lower().endswith(".zarr")), None)
    if place is None:
        return None
    return parts._replace(path="/".join(names[: place + 1])).geturl(), "/".join(names[place + 1 :])


def _last_segment(href: str) -> tuple[str, str]:
    """The address of the folder above, and the name in it."""
    parts = urlsplit(href)
    folder, _, name = parts.path.rstrip("/").rpartition("/")
    return parts._replace(path=folder).geturl(), name
