"""The scenes and the grid of a run: the list that is frozen already, or the search made anew aside."""

import shlex
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.arrays import BoolArray
from eopipe.contract import Input, Option, stage, to_args
from eopipe.fetch.sizes import AssetSize
from eopipe.planning.footprints import footprint, grid_extent, grid_outline
from eopipe.provenance.redact import redact_for_record
from eopipe.publish import MANIFEST, read_json, verify
from eopipe.run.rules import periods
from eopipe.scenes.item import Item, read_item
from eopipe.tiles.grid import read_grid

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox


Config = dict[str, Any]
# What search makes, by its ports.
MADE = {"items": "items", "grid": "grid.json", "selection": "selection.json"}


@dataclass(frozen=True)
class Frozen:
    """Scenes by name, the run's grid, files and bytes of both, whether the run holds them, scenes of composites."""

    items: dict[str, Item]
    grid: "GeoBox"
    files: int
    bytes: int
    kept: bool
    periods: dict[str, list[str]]


def frozen(config: Config) -> Frozen:
    """What search finds; a list that the run froze with the same settings is used as it is.

    Raises what search raises: nothing found, an asset missing, a server that does not answer.
    """
    results = Path(config["results"])
    if _fits(config, results):
        return _read(config, results, kept=True)
    with tempfile.TemporaryDirectory(prefix="eopipe-plan-") as room:
        made = {name: Path(room, file) for name, file in MADE.items()}
        stage("search").function(**made, **config["search"])
        return _read(config, Path(room), kept=False)


def _fits(config: Config, results: Path) -> bool:
    """Whether the run's list is whole and was made with these settings, as its record tells."""
    record, alone = results / "items.run.json", [results / "grid.json", results / "selection.json"]
    if not (record.is_file() and all(p.is_file() for p in alone) and (results / "items" / MANIFEST).is_file()):
        return False
    verify(results / "items")
    told, wanted, search = read_json(record), config["search"], stage("search")
    given = {port.name: wanted[port.name] for port in search.of(Option)}
    if told["status"] != "completed" or any(told["settings"].get(k) != redact_for_record(v) for k, v in given.items()):
        return False
    words = shlex.join(told["arguments"])
    paths = {port.flag: shlex.join(redact_for_record(to_args(port, wanted[port.name]))) for port in search.of(Input)}
    return all(path in words if path else flag not in words for flag, path in paths.items())


def _read(config: Config, room: Path, *, kept: bool) -> Frozen:
    items, grid = room / "items", room / "grid.json"
    paths = sorted(items.glob("*.geojson"))
    files = [*items.iterdir(), grid, room / "selection.json"]
    size = sum(p.stat().st_size for p in files)
    made = periods(config, items) if config["composite"]["method"] != "none" else {}
    return Frozen({p.stem: read_item(p) for p in paths}, read_grid(grid), len(files), size, kept, made)


def when(item: Item) -> str:
    """The day of a scene; empty where it does not tell."""
    told = item["properties"]
    return str(told.get("datetime") or told.get("start_datetime") or "")[:10]


def cloud(item: Item) -> float | None:
    """Cloud cover of a scene in percent, where it tells."""
    told = item["properties"].get("eo:cloud_cover")
    return float(told) if isinstance(told, int | float) else None


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
