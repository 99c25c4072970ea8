"""What a run made as a static STAC catalog that stands alone: the model, the maps, and the tiles they came from.

Everything lies in one folder with relative links, so that the folder can be moved, served, and searched again:

    catalog.json
    model/model.json              the folder of the model as train published it
    maps/collection.json          and maps/ID/ID.json with its two rasters
    tiles/collection.json         and tiles/SCENE/SCENE.json with its store
    scenes/SCENE.geojson          scenes without an address of their own, for derived_from
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from eopipe import __version__
from eopipe.errors import BadInputError
from eopipe.fetch.signing import redact_href
from eopipe.publish import MANIFEST, link_or_copy, write_json
from eopipe.scenes.item import read_item, scene_name
from eopipe.stac.write import (
    CLASSIFICATION,
    FILE,
    ITEM,
    JSON,
    PROCESSING,
    PROJECTION,
    RASTER,
    VERSION,
    class_objects,
    collection,
    extent_of,
    file_asset,
    item_place,
    link,
    projection,
)
from eopipe.tiles.store import NO_LABEL, Tiles

COG = "image/tiff; application=geotiff; profile=cloud-optimized"
ZARR = "application/vnd.zarr; version=3"
Item = dict[str, Any]
# Names of the two rasters of a map: assets as a later search asks for them.
RASTERS = {"regression": ("values", "spread")}


@dataclass(frozen=True)
class Sources:
    """What a catalog is made from; the model as its item and what that says, by plain names."""

    model_item: Path
    card: dict[str, Any]
    classes: Sequence[Path]
    probabilities: Sequence[Path]
    tiles: Sequence[Path]
    scenes: Sequence[Path]
    metrics: Path | None = None


@dataclass(frozen=True)
class About:
    """What a person says of a catalog; the licence is an SPDX id, or `other`."""

    title: str
    description: str
    license: str


def build(draft: Path, sources: Sources, about: About) -> None:
    """Fill a folder with a catalog and everything that it names.

    Raises BadInputError for maps of other tiles than those given, or tiles of other scenes.
    """
    if len(sources.classes) != len(sources.probabilities):
        raise BadInputError(
            f"{len(sources.classes)} maps of classes and {len(sources.probabilities)} of probabilities; give both "
            "of each map, in the same order"
        )
    card, model = sources.card, sources.model_item
    link_or_copy(model.parent, draft / "model")
    origins = _origins(draft, sources.scenes)
    stores = {store.scene: store for store in sorted(map(Tiles, sources.tiles), key=lambda store: store.scene)}
    tiles = [_tile(draft, store, origins) for store in stores.values()]
    pairs = sorted(zip(sources.classes, sources.probabilities, strict=True))
    maps = [_map(draft, pair, stores, card, model.name) for pair in pairs]
    parts = {
        "maps": _write(draft, "maps", f"Maps: {', '.join(card['classes'])}", about, maps),
        "tiles": _write(draft, "tiles", f"Tiles: {', '.join(card['bands'])}", about, tiles),
    }
    if sources.metrics:
        link_or_copy(sources.metrics, draft / "maps" / "metrics.json")
        scores = file_asset(sources.metrics, "./metrics.json", JSON, "scores of the maps", ("metadata",))
        parts["maps"]["assets"] = {"metrics": scores}
    for name, part in parts.items():
        write_json(draft / name / "collection.json", part)
    write_json(draft / "catalog.json", _root(about, parts, model.name))


def _root(about: About, parts: dict[str, Item], model: str) -> Item:
    links = [link("root", "./catalog.json")]
    links += [link("child", f"./{name}/collection.json", JSON, part["title"]) for name, part in parts.items()]
    links.append(link("item", f"./model/{model}", ITEM, "the model"))
    return {
        "type": "Catalog",
        "stac_version": VERSION,
        "id": "eopipe-run",
        "title": about.title,
        "description": about.description,
        "links": links,
    }


def _write(draft: Path, name: str, title: str, about: About, items: Sequence[Item]) -> Item:
    """Write the items of a collection; give the collection. Raises BadInputError for two of one name."""
    names = [item["id"] for item in items]
    if twice := sorted({one for one in names if names.count(one) > 1}):
        raise BadInputError(f"two {name} have the name {', '.join(twice)}; give maps and tiles of one run")
    up = [link("root", "../../catalog.json"), *(link(rel, "../collection.json") for rel in ("parent", "collection"))]
    for item in items:
        whole = item | {"collection": name, "links": up + item["links"]}
        write_json(draft / name / item_place(item), whole)
    return collection(name, title, about.description, about.license, items)


def _origins(draft: Path, scenes: Sequence[Path]) -> dict[str, dict[str, str]]:
    """A link to each scene, by its name: where it says that it is, else the copy that the catalog keeps."""
    found = {}
    for path in sorted(scenes, key=lambda path: path.name):
        item = read_item(path)
        name = scene_name(item["id"])
        links = [str(one.get("href")) for one in item.get("links", []) if one.get("rel") == "self"]
        own = [redact_href(href) for href in links if href.startswith(("http://", "https://"))]
        if not own:
            link_or_copy(path, draft / "scenes" / f"{name}.geojson")
        href = own[0] if own else f"../../scenes/{name}.geojson"
        found[name] = link("derived_from", href, ITEM, f"scene {item['id']}")
    return found


def _tile(draft: Path, store: Tiles, origins: dict[str, dict[str, str]]) -> Item:
    told = store.attributes
    scenes = told.get("scenes", [store.scene])
    if lost := sorted(set(scenes) - origins.keys()):
        raise BadInputError(f"{store.path} is made from {', '.join(lost)}, which is not among the scenes given")
    place = draft / "tiles" / store.scene / f"{store.scene}.zarr"
    link_or_copy(store.path, place)
    scale, offset = store.scaling
    image = store.array("image")
    band = {"data_type": str(image.dtype), "scale": scale, "offset": offset, "spatial_resolution": _pixel(store)}
    assets = {
        "tiles": {
            "href": f"./{place.name}",
            "type": ZARR,
            "title": "image and valid mask on the grid of the run",
            "roles": ["data"],
            "bands": [{"name": name} for name in store.names],
            "raster:bands": [{"name": name} | band for name in store.names],
        },
        "manifest": file_asset(
            place / MANIFEST, f"./{place.name}/{MANIFEST}", JSON, "sha256 of every file of the store", ("metadata",)
        ),
    }
    lineage = f"eopipe: {', '.join(scenes)} on the grid of the run."
    when = [told] if told.get("datetime") else []
    return _item(store.scene, store, when, lineage) | {"assets": assets, "links": [origins[name] for name in scenes]}


def _pixel(store: Tiles) -> float:
    return abs(float(store.grid.resolution.x))


def _item(name: str, store: Tiles, when: Sequence[dict[str, Any]], lineage: str) -> Item:
    done = {"processing:lineage": lineage, "processing:software": {"eopipe": __version__}}
    extensions = (FILE, PROCESSING, PROJECTION, RASTER)
    return extent_of(store.grid, when).item(name, extensions, projection(store.grid) | done)


def _map(draft: Path, pair: tuple[Path, Path], stores: dict[str, Tiles], card: dict[str, Any], model: str) -> Item:
    """A map of classes with its probabilities, or of values with how far they agree."""
    scenes = _scenes(pair[0], stores)
    name = f"map-{scenes[0]}" if len(scenes) == 1 else "map"
    of = [stores[scene] for scene in scenes]
    lineage = f"eopipe predict: mean of what the model says of {', '.join(scenes)}, where they are valid."
    item = _item(name, of[0], [store.attributes for store in of], lineage)
    regression = card["task"] == "regression"
    for key, path in zip(RASTERS.get(card["task"], ("classes", "probabilities")), pair, strict=True):
        target = draft / "maps" / name / f"{key}.tif"
        link_or_copy(path, target)
        item["assets"][key] = _raster(target, key, _pixel(of[0]))
    if not regression:
        nothing = {"value": NO_LABEL, "name": "nothing", "title": "no scene is valid", "nodata": True}
        item["assets"]["classes"]["classification:classes"] = [*class_objects(card["classes"]), nothing]
        item["stac_extensions"] = sorted([*item["stac_extensions"], CLASSIFICATION])
    made = [link("derived_from", f"../../tiles/{scene}/{scene}.json", ITEM, f"tiles of {scene}") for scene in scenes]
    return item | {"links": [link("derived_from", f"../../model/{model}", ITEM, "the model"), *made]}


def _scenes(path: Path, stores: dict[str, Tiles]) -> list[str]:
    """The scenes that a map names. Raises BadInputError for a map of others than those given."""
    import rasterio

    try:
        with rasterio.open(path) as source:
            scenes: list[str] = source.tags().get("scenes", "").split()
    except rasterio.errors.RasterioIOError as error:
        raise BadInputError(f"{path} is no map that can be read: {error}") from error
    if not scenes or (lost := sorted(set(scenes) - stores.keys())):
        told = f"is made from {', '.join(lost)}, whose tiles are not given" if scenes else "names no scenes"
        raise BadInputError(f"{path} {told}; give a map by predict and the tiles that it was made from")
    return scenes


def _raster(file: Path, key: str, pixel: float) -> dict[str, Any]:
    import rasterio

    with rasterio.open(file) as source:
        bands = [_band(source, n, pixel) for n in range(source.count)]
    title = {"classes": "class of each pixel", "values": "value of each pixel"}.get(key, key)
    return file_asset(file, f"./{file.name}", COG, title, ("data",), **{"raster:bands": bands})


def _band(source: Any, n: int, pixel: float) -> dict[str, Any]:
    # NaN is no number of JSON, but a word of STAC.
    nodata = source.nodatavals[n]
    told = {
        "name": source.descriptions[n] or f"band {n + 1}",
        "data_type": source.dtypes[n],
        "nodata": "nan" if isnan(nodata) else nodata,
        "spatial_resolution": pixel,
    }
    if source.scales[n] != 1:
        told["scale"] = source.scales[n]
    return told | ({"unit": source.units[n]} if source.units[n] else {})
