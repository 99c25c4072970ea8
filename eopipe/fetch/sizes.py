"""How many bytes the assets of scenes are, without fetching them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError, RefusedError, UpstreamError, UsageError
from eopipe.fetch.range_reader import catalog_file, remote_file
from eopipe.fetch.retry import ChangedError, FetchSession, RetryBudget, TransientError
from eopipe.fetch.zarr_store import is_zarr
from eopipe.scenes.item import Item, safe_href, scheme

REQUESTS_AT_A_TIME = 8


@dataclass(frozen=True)
class AssetSize:
    """Bytes of one asset; an unknown size is 0."""

    scene: str
    asset: str
    bytes: int


def asset_sizes(items: Sequence[Item], catalog: Path | None, session: FetchSession) -> list[AssetSize]:
    """The size of every asset: from the item (`file:size`), its local file, or the server.

    A server is asked once for one byte of a file, since not all servers answer HEAD. Raises RefusedError for an
    address that is not safe.
    """
    rows = [(str(item["id"]), name, asset) for item in items for name, asset in sorted(item["assets"].items())]
    with ThreadPoolExecutor(REQUESTS_AT_A_TIME) as pool:
        sizes = pool.map(lambda row: _size(row[2], f"scene {row[0]}, asset {row[1]}", catalog, session), rows)
        return [AssetSize(scene, name, size) for (scene, name, _), size in zip(rows, sizes, strict=True)]


def local_file(asset: dict[str, Any], label: str, catalog: Path | None) -> Path | None:
    """The asset's file in a local catalog; None where it is elsewhere."""
    href = safe_href(asset["href"], label)
    with suppress(BadInputError, RefusedError):
        return None if scheme(href) else catalog_file(href, label, catalog)
    return None


def _size(asset: dict[str, Any], label: str, catalog: Path | None, session: FetchSession) -> int:
    if is_zarr(asset):
        # Many files, but only the files of the area are read.
        safe_href(asset["href"], label)
        return 0
    stated = asset.get("file:size")
    if isinstance(stated, int) and stated > 0:
        return stated
    file = local_file(asset, label, catalog)
    if file is not None:
        return file.stat().st_size
    href = safe_href(asset["href"], label)
    return _server_size(href, label, session) if scheme(href) else 0


def _server_size(href: str, label: str, session: FetchSession) -> int:
    """The length that the server reports; 0 where it reports none. A plan does not retry."""
    try:
        file = remote_file(href, label, session)
        with file.request(0, 1, "", RetryBudget(label, file.host, session)) as response:
            return response.total or 0
    except (TransientError, ChangedError, BadInputError, UpstreamError, UsageError):
        return 0
