"""Zarr stores of assets: in a catalog on disk, on a web server, in a bucket, or as an Icechunk repository.

Only Icechunk repositories are read by their own library; files of all others through the requests of this package.

How STAC describes them: https://github.com/radiantearth/stac-best-practices (best-practices-zarr.md), and the items of
the EOPF Sentinel Zarr Samples, whose assets are single arrays.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from eopipe.errors import BadInputError, UsageError
from eopipe.fetch.range_reader import catalog_file, catalog_root
from eopipe.fetch.retry import FetchSession
from eopipe.scenes.item import safe_href, scheme

if TYPE_CHECKING:
    from zarr.abc.store import Store

MEDIA_TYPE = re.compile(r"application/(vnd[.+]|x-)?zarr\b")
RASTERS = (".tif", ".tiff", ".jp2")
# Replaces the files of an Icechunk repository: the snapshot that is read never changes.
SNAPSHOT = "snapshot_id"
# Fields of an asset that name the version of an Icechunk repository, and what each is for its library.
VERSIONS = {"icechunk:branch": "branch", "icechunk:tag": "tag", "icechunk:snapshot_id": "snapshot_id"}


def is_zarr(asset: dict[str, Any]) -> bool:
    """Whether an asset is a Zarr store or a part of one, by its media type, its Icechunk fields or its address."""
    if is_icechunk(asset) or MEDIA_TYPE.match(str(asset.get("type") or "").lower()):
        return True
    href = str(asset["href"])
    is_store = bool(_split(href, (".zarr",)))
    return not asset.get("type") and is_store and not urlsplit(href).path.lower().endswith(RASTERS)


def is_icechunk(asset: dict[str, Any]) -> bool:
    """Whether an asset is an Icechunk repository or a part of one."""
    has_field = any(key.startswith("icechunk:") for key in asset) or "icechunk" in (asset.get("roles") or [])
    is_typed = "icechunk" in str(asset.get("type") or "").lower()
    return has_field or is_typed or bool(_split(str(asset["href"]), (".icechunk",)))


def open_store(asset: dict[str, Any], label: str, catalog: Path | None, session: FetchSession) -> tuple["Store", str]:
    """The store of an asset, to read, and the path of the asset in it.

    Raises RefusedError (address), BadInputError (missing), UsageError (Icechunk without its package).
    """
    href = safe_href(asset["href"], label)
    if is_icechunk(asset):
        return _open_icechunk(asset, href, label, catalog)
    root, path = _split(href, (".zarr",)) or _last_segment(href)
    # zarr is imported only now.
    from eopipe.fetch.zarr_files import FileStore, LocalFiles, ServerFiles

    if scheme(href):
        return FileStore(ServerFiles(root, label, session)), path
    folder = catalog_file(root, label, catalog, folder=True)
    return FileStore(LocalFiles(folder, catalog_root(catalog or folder), label)), path


def read_versions(store: "Store") -> dict[str, str | None]:
    """The version of each file that was read of a store; of an Icechunk repository its snapshot alone."""
    versions: dict[str, str | None] | None = getattr(store, "versions", None)
    return {SNAPSHOT: store.session.snapshot_id} if versions is None else versions  # type: ignore[attr-defined]


def check_versions(store: "Store", versions: dict[str, str | None], label: str) -> None:
    """Raise UpstreamError where a store is no longer what was read of it (`read_versions`)."""
    from eopipe.fetch.zarr_files import FileStore, changed_error

    if isinstance(store, FileStore):
        key = store.changed(versions)
    else:
        key = "" if read_versions(store) == versions else "its branch"
    if key:
        raise changed_error(label, key)


def _split(href: str, suffixes: tuple[str, ...]) -> tuple[str, str] | None:
    """The address of the store and the path in it, by the name of the folder; None where no name has a suffix."""
    if scheme(href) == "broken":
        # Refused as any other address that is not one.
        return None
    parts = urlsplit(href)
    names = parts.path.rstrip("/").split("/")
    place = next((number for number, name in enumerate(names) if name.lower().endswith(suffixes)), None)
    if place is None:
        return None
    return parts._replace(path="/".join(names[: place + 1])).geturl(), "/".join(names[place + 1 :])


def _last_segment(href: str) -> tuple[str, str]:
    """The address of the folder above, and the name in it."""
    parts = urlsplit(href)
    folder, _, name = parts.path.rstrip("/").rpartition("/")
    return parts._replace(path=folder).geturl(), name


def _open_icechunk(asset: dict[str, Any], href: str, label: str, catalog: Path | None) -> tuple["Store", str]:
    """The store of a version of an Icechunk repository: the version in the asset's fields, else the branch main.

    Chunks in other files (virtual chunks) are not authorised: a repository could name any file or server.
    """
    try:
        import icechunk
    except ModuleNotFoundError as error:
        raise UsageError(f"{label} is in an Icechunk repository: pip install 'eopipe[icechunk]'") from error
    stated = {name: str(asset[key]) for key, name in VERSIONS.items() if asset.get(key)}
    if len(stated) > 1:
        raise BadInputError(f"{label} states {' and '.join(stated)} of its Icechunk repository; state only one")
    root, path = _split(href, (".icechunk", ".zarr")) or (href, "")
    if scheme(href) == "s3":
        storage: Any = _bucket_storage(icechunk, root)
    elif scheme(href):
        raise BadInputError(f"{label} is an Icechunk repository on a web server; s3 and paths in a catalog are read")
    else:
        storage = icechunk.local_filesystem_storage(str(catalog_file(root, label, catalog, folder=True)))
    try:
        repository = icechunk.Repository.open(storage)
        session = repository.readonly_session(**(stated or {"branch": "main"}))  # type: ignore[arg-type]
    except (icechunk.IcechunkError, ValueError) as error:
        version = " ".join(f"with the {name} {value}" for name, value in stated.items()) or "with a branch main"
        reason = str(error).strip().splitlines()[0] if not scheme(href) else type(error).__name__
        raise BadInputError(f"{label} is not an Icechunk repository {version}: {reason}") from None
    return session.store, path


def _bucket_storage(icechunk: Any, address: str) -> Any:
    """The storage of a repository in a bucket, with the usual AWS_* variables."""
    from eopipe.fetch.s3 import CREDENTIALS

    parts = urlsplit(address)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    has_login = any(map(os.environ.get, CREDENTIALS))
    return icechunk.s3_storage(
        bucket=parts.netloc,
        prefix=parts.path.strip("/"),
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        endpoint_url=endpoint,
        allow_http=bool(endpoint and endpoint.startswith("http://")),
        force_path_style=endpoint is not None,
        anonymous=None if has_login else True,
        from_env=True if has_login else None,
        requester_pays=os.environ.get("AWS_REQUEST_PAYER") == "requester",
    )
