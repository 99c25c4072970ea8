"""Bring only the part of an asset that a grid needs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.errors import IntegrityError
from eopipe.fetch.download import finish
from eopipe.fetch.range_reader import open_remote
from eopipe.fetch.retry import Terms
from eopipe.publish import sha256

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# What a catalog says of the whole file and does not hold for a part of it.
OF_THE_WHOLE = ("proj:bbox", "proj:centroid", "proj:geometry", "proj:projjson", "proj:wkt2")


def clip(asset: dict[str, Any], where: str, catalog: Path | None, part: Path, grid: "GeoBox", terms: Terms) -> Path:
    """Keep the blocks of a cloud-optimised GeoTIFF that a grid needs, as the file `part`; return it.

    Raises BadInputError (missing, no GeoTIFF, outside the grid), IntegrityError (damaged, another size than the
    catalog says), UpstreamError (server).
    """
    from eopipe.fetch.cog_window import window_of

    if part.with_suffix(".whole").exists():
        return part
    remote = open_remote(asset["href"], where, terms, catalog)
    want = asset.get("file:size")
    if want is not None and want != remote.size:
        raise IntegrityError(f"{where} has {remote.size} bytes, the catalog says {want}: it is another version")
    window_of(remote, grid, part, where)
    return finish(part)


def describe(asset: dict[str, Any], file: Path) -> dict[str, Any]:
    """The asset of the item for a part of its file: its own size, checksum and place."""
    import rasterio

    kept = {key: value for key, value in asset.items() if key not in OF_THE_WHOLE}
    with rasterio.open(file, driver="GTiff") as source:
        place = {"proj:shape": list(source.shape), "proj:transform": list(source.transform)[:6]}
    return kept | place | {"file:size": file.stat().st_size, "file:checksum": f"1220{sha256(file)}"}
