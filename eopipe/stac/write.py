"""STAC that eopipe writes: where and when something is, its files with their checksums, collections.

Addresses of extensions name their version; nothing tells a clock, a host or an absolute path.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.publish import sha256
from eopipe.scenes.item import Item
from eopipe.stac.antimeridian import Geometry, joined, split

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

VERSION = "1.1.0"
EXTENSION = "https://stac-extensions.github.io/{}/schema.json"
CLASSIFICATION, FILE, MLM, PROCESSING, PROJECTION, RASTER = (
    EXTENSION.format(name)
    for name in (
        "classification/v2.0.0",
        "file/v2.1.0",
        "mlm/v1.4.0",
        "processing/v1.1.0",
        "projection/v2.0.0",
        "raster/v1.1.0",
    )
)
ITEM, JSON = "application/geo+json", "application/json"
# What the MLM extension advises for a model without limits in time.
BEGIN, END = "1900-01-01T00:00:00Z", "9999-12-31T23:59:59Z"
# Seven digits of a degree are a centimetre.
DIGITS = 7


@dataclass(frozen=True)
class ItemExtent:
    """Where on Earth (GeoJSON and its bounds, in degrees) and when, from the first moment to the last."""

    geometry: Geometry | None = None
    bbox: tuple[float, ...] = ()
    start: str = BEGIN
    end: str = END

    def item(self, name: str, extensions: Iterable[str], properties: dict[str, Any]) -> Item:
        """A STAC Item of this place and time, still without links and assets."""
        when: dict[str, Any] = {"datetime": self.start}
        if self.start != self.end:
            when = {"datetime": None, "start_datetime": self.start, "end_datetime": self.end}
        return {
            "type": "Feature",
            "stac_version": VERSION,
            "stac_extensions": sorted(extensions),
            "id": name,
            "geometry": self.geometry,
            **({"bbox": list(self.bbox)} if self.bbox else {}),
            "properties": when | properties,
            "links": [],
            "assets": {},
        }


def extent_of(grid: "GeoBox", told: Iterable[dict[str, Any]]) -> ItemExtent:
    """The place of a grid and the time that properties of items, or attributes of stores, tell together."""
    words = ("datetime", "start_datetime", "end_datetime")
    times = sorted(datetime.fromisoformat(one[key]) for one in told for key in words if one.get(key))
    start, end = (_moment(times[0]), _moment(times[-1])) if times else (BEGIN, END)
    geometry, bbox = outline(grid)
    return ItemExtent(geometry, bbox, start, end)


def _moment(time: datetime) -> str:
    known = time if time.tzinfo else time.replace(tzinfo=UTC)
    return known.astimezone(UTC).isoformat().replace("+00:00", "Z")


def outline(grid: "GeoBox") -> tuple[Geometry, tuple[float, ...]]:
    """The border of a grid as GeoJSON in degrees, cut at 180 degrees, and its bounds; its edges bend there."""
    import numpy as np
    from pyproj import Transformer
    from shapely import get_parts, segmentize, transform, union_all
    from shapely.geometry import box, mapping

    change = Transformer.from_crs(str(grid.crs), "EPSG:4326", always_xy=True)
    bounds = grid.extent.boundingbox
    fine = segmentize(box(*bounds), max(bounds.span_x, bounds.span_y) / 4)
    whole = joined(mapping(transform(fine, lambda p: np.column_stack(change.transform(p[:, 0], p[:, 1])))))
    west, south, east, north = whole.bounds
    # A cut can leave lines beside the areas.
    areas = union_all([part for part in get_parts(split(whole)) if part.area])
    place = {key: _rounded(value) for key, value in mapping(areas).items()}
    return place, (_wrapped(west), round(south, DIGITS), _wrapped(east), round(north, DIGITS))


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_rounded(one) for one in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def _wrapped(longitude: float) -> float:
    around = longitude if -180 <= longitude <= 180 else (longitude + 180) % 360 - 180
    return round(around, DIGITS)


def projection(grid: "GeoBox") -> dict[str, Any]:
    """The fields of the projection extension."""
    return {
        "proj:code": str(grid.crs),
        "proj:shape": list(grid.shape),
        "proj:transform": list(grid.affine)[:6],
        "proj:bbox": list(grid.extent.boundingbox.bbox),
    }


def file_asset(file: Path, href: str, kind: str, title: str, roles: Sequence[str], **more: Any) -> dict[str, Any]:
    """An asset that is a file: with its size and its sha256 as a multihash."""
    told = {"href": href, "type": kind, "title": title, "roles": list(roles)}
    return told | {"file:size": file.stat().st_size, "file:checksum": f"1220{sha256(file)}"} | more


def class_objects(names: Sequence[str]) -> list[dict[str, Any]]:
    """Classes as the classification extension has them; a name there is one plain word, so titles are the names."""
    return [{"value": n, "name": plain(name, f"class-{n}"), "title": name} for n, name in enumerate(names)]


def plain(text: str, otherwise: str) -> str:
    """A text as one word of letters, digits, - and _."""
    word = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in text).strip("-")
    return word or otherwise


def link(rel: str, href: str, kind: str = JSON, title: str = "") -> dict[str, str]:
    """A link of a STAC document."""
    return {"rel": rel, "href": href, "type": kind} | ({"title": title} if title else {})


def collection(name: str, title: str, description: str, license_: str, items: Sequence[Item]) -> Item:
    """A STAC Collection one folder below the root catalog, over items that lie one folder below it."""
    boxes = [item["bbox"] for item in items]
    times = [item["properties"] for item in items]
    starts, ends = (sorted(t.get(key) or t["datetime"] for t in times) for key in ("start_datetime", "end_datetime"))
    # A box across 180 degrees has its west in the east, so the whole circle holds both.
    across = any(west > east for west, _, east, _ in boxes)
    west, east = (-180.0, 180.0) if across else (min(b[0] for b in boxes), max(b[2] for b in boxes))
    bbox = [west, min(b[1] for b in boxes), east, max(b[3] for b in boxes)]
    links = [link("root", "../catalog.json"), link("parent", "../catalog.json")]
    links += [link("item", f"./{place}", ITEM) for place in sorted(map(item_place, items))]
    return {
        "type": "Collection",
        "stac_version": VERSION,
        "id": name,
        "title": title,
        "description": description,
        "license": license_,
        "extent": {"spatial": {"bbox": [bbox]}, "temporal": {"interval": [[starts[0], ends[-1]]]}},
        "links": links,
    }


def item_place(item: Item) -> str:
    """Where an item lies below its collection."""
    return f"{item['id']}/{item['id']}.json"
