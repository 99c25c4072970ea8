"""How many bytes the assets of scenes are, without fetching them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eopipe.errors import BadInputError, UpstreamError, UsageError
from eopipe.fetch.retry import Again, Changed, FetchSession, Patience
from eopipe.fetch.sources import source_of
from eopipe.scenes.item import Item, safe_href, scheme

Basis = Literal["item", "file", "server", "unknown"]
ASKED_AT_A_TIME = 8


@dataclass(frozen=True)
class AssetSize:
    """Bytes of one asset and who told them; unknown ones count 0."""

    scene: str
    asset: str
    bytes: int
    basis: Basis


def asset_sizes(items: Sequence[Item], catalog: Path | None, terms: FetchSession) -> list[AssetSize]:
    """The size of every asset: as the item tells it (`file:size`), its local file, or the server.

    A server is asked once for one byte of a file, since not all know what HEAD is. Raises RefusedError for an
    address that is not safe.
    """
    wanted = [(str(item["id"]), name, asset) for item in items for name, asset in sorted(item["assets"].items())]
    with ThreadPoolExecutor(ASKED_AT_A_TIME) as pool:
        found = pool.map(lambda row: _size(row[2], f"scene {row[0]}, asset {row[1]}", catalog, terms), wanted)
        return [AssetSize(scene, name, *told) for (scene, name, _), told in zip(wanted, found, strict=True)]


def local_file(asset: dict[str, Any], where: str, catalog: Path | None) -> Path | None:
    """The asset's file in a local catalog; None where it lies elsewhere."""
    href = safe_href(asset["href"], where)
    if catalog is None or scheme(href):
        return None
    path = (catalog / href).resolve()
    return path if path.is_relative_to(catalog.resolve()) and path.is_file() else None


def _size(asset: dict[str, Any], where: str, catalog: Path | None, terms: FetchSession) -> tuple[int, Basis]:
    told = asset.get("file:size")
    if isinstance(told, int) and told > 0:
        return told, "item"
    file = local_file(asset, where, catalog)
    if file is not None:
        return file.stat().st_size, "file"
    href = safe_href(asset["href"], where)
    length = _asked(href, where, terms) if scheme(href) else 0
    return (length, "server") if length else (0, "unknown")


def _asked(href: str, where: str, terms: FetchSession) -> int:
    """What the server says an address holds; 0 where it does not say. A plan does not insist."""
    try:
        source = source_of(href, where, terms)
        with source.ask(0, 1, "", Patience(where, source.host, terms)) as reply:
            return reply.total or 0
    except (Again, Changed, BadInputError, UpstreamError, UsageError):
        return 0
