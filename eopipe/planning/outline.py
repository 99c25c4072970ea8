"""A plan's scenes, one row each, and where they lie as GeoJSON."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eopipe.arrays import BoolArray
from eopipe.fetch.sizes import AssetSize
from eopipe.planning.footprints import footprint, grid_extent, grid_outline
from eopipe.planning.frozen_scenes import Config, Frozen, cloud, when
from eopipe.publish import MANIFEST

# The edge of the blocks of most cloud-optimised GeoTIFFs, in pixels.
BLOCK = 512


@dataclass(frozen=True)
class Row:
    """One scene: day, cloud in percent, bytes of its assets, and how many of these tell no size.

    `share` is the part of the grid that it covers, `fetched` whether a run brought it already.
    """

    name: str
    day: str
    cloud: float | None
    bytes: int
    unknown: int
    share: float
    fetched: bool


def rows_of(config: Config, seen: Frozen, sizes: list[AssetSize], masks: dict[str, BoolArray]) -> list[Row]:
    """The scenes by day, then by name."""
    found = []
    for name, item in seen.items.items():
        own = [size for size in sizes if size.scene == item["id"]]
        unknown = sum(size.basis == "unknown" for size in own)
        there = Path(config["results"], "scenes", name, MANIFEST).is_file()
        total, share = sum(size.bytes for size in own), round(float(masks[name].mean()), 4)
        found.append(Row(name, when(item), cloud(item), total, unknown, share, there))
    return sorted(found, key=lambda row: (row.day, row.name))


def clipped(size: AssetSize, seen: Frozen) -> AssetSize:
    """The part of an asset that the grid needs, by area: blocks at the rim come whole, half a block beyond it."""
    item = next(item for item in seen.items.values() if item["id"] == size.scene)
    whole = footprint(item, str(seen.grid.crs))
    if whole is None:
        return size
    needed = whole.intersection(grid_extent(seen.grid, BLOCK // 2))
    return replace(size, bytes=round(size.bytes * needed.area / whole.area))


def geojson(seen: Frozen, rows: list[Row]) -> dict[str, Any]:
    """Footprints with dates, cloud and bytes, and the outline of the grid, in degrees."""
    features = [_feature(seen.items[row.name]["geometry"], kind="scene", **told(row)) for row in rows]
    height, width = seen.grid.shape
    outline = _feature(grid_outline(seen.grid), kind="grid", crs=str(seen.grid.crs), height=height, width=width)
    return {"type": "FeatureCollection", "features": [outline, *features]}


def told(row: Row) -> dict[str, Any]:
    """What a plan's files say of a scene."""
    return {
        "scene": row.name,
        "date": row.day,
        "cloud": row.cloud,
        "bytes": row.bytes,
        "assets_of_unknown_size": row.unknown,
        "share_of_grid": row.share,
        "fetched": row.fetched,
    }


def _feature(geometry: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "geometry": geometry, "properties": properties}
