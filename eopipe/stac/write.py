"""STAC that eopipe writes, as pystac objects: extent, projection, files with checksums, collections.

Extensions are named with the version that these bytes follow, whatever version pystac knows. Nothing that is written
contains a time of writing, a host or an absolute path, and pystac reads nothing from a network.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.publish import sha256
from eopipe.scenes.item import Item, moment_of
from eopipe.tiles.globe import Geometry, bounds_of, counter_clockwise, outline_of, split
from eopipe.tiles.grid import crs_fields
from eopipe.tiles.store import CHIP_SET

if TYPE_CHECKING:
    import pystac
    from odc.geo.geobox import GeoBox
    from shapely.geometry.base import BaseGeometry

VERSION = "1.1.0"
EXTENSION = "https://stac-extensions.github.io/{}/schema.json"
CLASSIFICATION, FILE, MLM, PROCESSING, PROJECTION, RASTER, RENDER = (
    EXTENSION.format(name)
    for name in (
        "classification/v2.0.0",
        "file/v2.1.0",
        "mlm/v1.4.0",
        "processing/v1.1.0",
        "projection/v2.0.0",
        "raster/v1.1.0",
        "render/v2.0.0",
    )
)
ITEM, JSON = "application/geo+json", "application/json"
# What the MLM extension advises for a model without limits in time.
BEGIN, END = datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
# Seven digits of a degree are a centimetre.
DIGITS = 7


@dataclass(frozen=True)
class ItemExtent:
    """Where on Earth (GeoJSON and its bounds, in degrees) and when (UTC), from the first moment to the last."""

    geometry: Geometry | None = None
    bbox: tuple[float, ...] = ()
    start: datetime = BEGIN
    end: datetime = END

    @classmethod
    def of_item(cls, item: dict[str, Any]) -> "ItemExtent":
        """The extent of an item that `item` made, which is complete."""
        properties = item["properties"]
        times = (properties.get(f"{key}_datetime") or properties["datetime"] for key in ("start", "end"))
        return cls(
            item["geometry"], tuple(item.get("bbox") or ()), *(moment_of(time).astimezone(UTC) for time in times)
        )

    def item(self, name: str, extensions: Iterable[str], properties: dict[str, Any]) -> "pystac.Item":
        import pystac

        is_moment = self.start == self.end
        return pystac.Item(
            name,
            self.geometry,
            list(self.bbox) or None,
            self.start if is_moment else None,
            dict(properties),
            start_datetime=None if is_moment else self.start,
            end_datetime=None if is_moment else self.end,
            stac_extensions=sorted(extensions),
        )


def extent_of(grids: "Sequence[GeoBox]", properties: Iterable[dict[str, Any]]) -> ItemExtent:
    """The footprint of grids, and the time that properties of items or attributes of stores cover together.

    For stores of packed chips it is the bounds of their true places.
    """
    properties = list(properties)
    keys = ("datetime", "start_datetime", "end_datetime")
    times = sorted(moment_of(fields[key]).astimezone(UTC) for fields in properties for key in keys if fields.get(key))
    chip_sets = [fields[CHIP_SET]["bbox"] for fields in properties if fields.get(CHIP_SET)]
    areas = [_area_of_bounds(bounds) for bounds in chip_sets] or [outline_of(grid) for grid in grids]
    geometry, bbox = located(areas)
    return ItemExtent(geometry, bbox, *((times[0], times[-1]) if times else (BEGIN, END)))


def document(value: "pystac.STACObject") -> Item:
    """The JSON of a STAC object, with hrefs as they were given."""
    fields: Item = value.to_dict(include_self_link=False, transform_hrefs=False)
    return fields | {"stac_version": VERSION}


def located(areas: "Sequence[BaseGeometry]") -> tuple[Geometry, tuple[float, ...]]:
    """Areas (degrees, cut at 180) as one GeoJSON geometry, and the narrowest box around it."""
    from shapely import union_all
    from shapely.geometry import mapping

    # A ring begins with the same vertex whatever made it.
    whole = union_all(list(areas)).normalize()
    geometry = counter_clockwise({key: _rounded(value) for key, value in mapping(whole).items()})
    return geometry, tuple(round(edge, DIGITS) for edge in bounds_of(whole))


def _area_of_bounds(bounds: Sequence[float]) -> "BaseGeometry":
    """Bounds in degrees as an area, cut at 180 degrees where west is greater than east."""
    from shapely import box

    west, south, east, north = bounds
    return split(box(west, south, east + 360 * (west > east), north))


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_rounded(part) for part in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def add_projection(item: "pystac.Item", grid: "GeoBox") -> None:
    """Add the fields of the projection extension."""
    from pystac.extensions.projection import ProjectionExtension

    crs = crs_fields(grid)
    ProjectionExtension.ext(item).apply(
        code=crs["proj:code"],
        wkt2=crs.get("proj:wkt2"),
        shape=list(grid.shape),
        transform=list(grid.affine)[:6],
        bbox=list(grid.extent.boundingbox.bbox),
    )


def asset(href: str, media_type: str, title: str, roles: Sequence[str], file: Path | None = None) -> "pystac.Asset":
    """An asset; of a file with its size and its sha256 as a multihash."""
    import pystac
    from pystac.extensions.file import FileExtension

    described = pystac.Asset(href, title=title, media_type=media_type, roles=list(roles))
    if file:
        FileExtension.ext(described).apply(size=file.stat().st_size, checksum=f"1220{sha256(file)}")
    return described


def add_raster_bands(described: "pystac.Asset", bands: Iterable[dict[str, Any]]) -> None:
    """Add the bands of the raster extension to an asset."""
    from pystac.extensions.raster import RasterBand, RasterExtension

    RasterExtension.ext(described).apply([RasterBand(band) for band in bands])


def class_objects(names: Sequence[str], key: str = "title") -> list[dict[str, Any]]:
    """Classes as the classification extension has them; a name there is one plain word, so the names are under a key.

    The key is `title`, which version 2.0 has, or `description`.
    """
    return [{"value": n, "name": slug(name, f"class-{n}"), key: name} for n, name in enumerate(names)]


def slug(text: str, otherwise: str) -> str:
    """A text as one word of letters, digits, - and _."""
    word = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in text).strip("-")
    return word or otherwise


def link(rel: str, href: str, media_type: str = JSON, title: str | None = None) -> "pystac.Link":
    """A link of a STAC document."""
    import pystac

    return pystac.Link(rel, href, media_type, title)


def collection(
    name: str, title: str, description: str, license_id: str, items: "Sequence[pystac.Item]"
) -> "pystac.Collection":
    """A STAC Collection one folder below the root catalog, over items that are one folder below it."""
    import pystac

    extent = pystac.Extent.from_items(items)
    # A box across 180 degrees has its west in the east, so the whole circle holds both.
    if any(item.bbox and item.bbox[0] > item.bbox[2] for item in items):
        extent.spatial.bboxes[0][::2] = [-180.0, 180.0]
    described = pystac.Collection(name, description, extent, title=title, license=license_id)
    described.clear_links()
    described.add_links([link(rel, "../catalog.json") for rel in ("root", "parent")])
    described.add_links([link("item", f"./{path}", ITEM) for path in sorted(item_path(item.id) for item in items)])
    return described


def item_path(name: str) -> str:
    """Where an item is below its collection."""
    return f"{name}/{name}.json"
