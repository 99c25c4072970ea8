"""What a run made as a self-contained static STAC catalog: the model, the maps, and the tiles they are made from.

All of it is in one folder with relative links, so that the folder can be moved, served, and searched again:

    catalog.json
    model/model.json              the folder of the model, its item with links and the ONNX file
    maps/collection.json          and maps/ID/ID.json with its two rasters
    tiles/collection.json         and tiles/SCENE/SCENE.json with its store
    scenes/SCENE.geojson          scenes without an address of their own, for derived_from
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from eopipe import __version__
from eopipe.errors import BadInputError
from eopipe.fetch.signing import redact_href
from eopipe.publish import MANIFEST, link_or_copy, write_manifest
from eopipe.scenes.item import Item, read_item, scene_name, tagged_scenes
from eopipe.stac.mlm import onnx_asset
from eopipe.stac.write import (
    CLASSIFICATION,
    FILE,
    ITEM,
    JSON,
    PROCESSING,
    PROJECTION,
    RASTER,
    RENDER,
    add_projection,
    add_raster_bands,
    asset,
    class_objects,
    collection,
    document,
    extent_of,
    item_path,
    link,
)
from eopipe.tasks import TASKS
from eopipe.text_files import read_json, write_json
from eopipe.tiles.geotiff import open_map
from eopipe.tiles.store import CHIP_SET, NO_LABEL, Tiles

if TYPE_CHECKING:
    import pystac
    from odc.geo.geobox import GeoBox

COG = "image/tiff; application=geotiff; profile=cloud-optimized"
ZARR = "application/vnd.zarr; version=3"


@dataclass(frozen=True)
class CatalogInputs:
    """What a catalog is made from; the model as its item and the card that the item holds."""

    model_item: Path
    card: dict[str, Any]
    classes: Sequence[Path]
    probabilities: Sequence[Path]
    tiles: Sequence[Path]
    scenes: Sequence[Path]
    metrics: Path | None = None
    onnx: Path | None = None
    areas: Path | None = None


@dataclass(frozen=True)
class CatalogText:
    """What a person says of a catalog; the licence is an SPDX id, a URL, or empty."""

    title: str
    description: str
    license: str

    @property
    def terms(self) -> str:
        """The description with a sentence on the licence where none is stated, which STAC has no value for."""
        return self.description if self.license else f"{self.description} No licence is stated."

    @property
    def spdx(self) -> str:
        """The SPDX id, or what STAC 1.1 has for any other licence, which grants no right."""
        return "other" if self.is_url or not self.license else self.license

    @property
    def is_url(self) -> bool:
        return "://" in self.license


def write_catalog(draft: Path, inputs: CatalogInputs, text: CatalogText) -> None:
    """Fill a folder with a catalog and everything that it names.

    Raises BadInputError for maps of other tiles than those given, or tiles of other scenes.
    """
    if len(inputs.classes) != len(inputs.probabilities):
        raise BadInputError(
            f"{len(inputs.classes)} maps of classes and {len(inputs.probabilities)} of probabilities; give both "
            "of each map, in the same order"
        )
    _add_model(draft / "model", inputs, text)
    origins = _origin_links(draft, inputs.scenes)
    stores = {store.scene: store for store in sorted(map(Tiles, inputs.tiles), key=lambda store: store.scene)}
    tiles = [item for store in stores.values() for item in _tiles_items(draft, store, origins)]
    pairs = sorted(zip(inputs.classes, inputs.probabilities, strict=True))
    maps = [_map_item(draft, pair, stores, inputs) for pair in pairs]
    collections = [
        _collection(draft, "maps", f"Maps: {', '.join(inputs.card['classes'])}", text, maps),
        _collection(draft, "tiles", f"Tiles: {', '.join(inputs.card['bands'])}", text, tiles),
    ]
    tables = {
        "metrics": (inputs.metrics, "scores of the maps"),
        "areas": (inputs.areas, "areas of the classes with standard errors"),
    }
    for name, (path, title) in tables.items():
        if path:
            link_or_copy(path, draft / "maps" / f"{name}.json")
            collections[0].add_asset(name, asset(f"./{name}.json", JSON, title, ("metadata",), path))
    for described in collections:
        write_json(draft / described.id / "collection.json", document(described))
    write_json(draft / "catalog.json", document(_root(text, collections, inputs.model_item.name)))


def _add_model(folder: Path, inputs: CatalogInputs, text: CatalogText) -> None:
    """Add the folder of the model; its item gets links to the catalog, the licence, and the ONNX file as an asset."""
    link_or_copy(inputs.model_item.parent, folder)
    path = folder / inputs.model_item.name
    item: Item = read_json(path)
    links = [link(rel, "../catalog.json") for rel in ("root", "parent")]
    item["links"] = [described.to_dict(transform_href=False) for described in (*links, *_licence_links(text))]
    item["properties"] |= {"license": text.spdx} if text.license else {}
    if inputs.onnx:
        link_or_copy(inputs.onnx, folder / inputs.onnx.name)
        item["assets"]["onnx"] = onnx_asset(inputs.onnx, inputs.card["bands"]).to_dict()
    # Hard links to what train published, which has to stay as it is.
    for file in (path, folder / MANIFEST):
        file.unlink(missing_ok=True)
    write_json(path, item)
    write_manifest(folder)


def _root(text: CatalogText, collections: "Sequence[pystac.Collection]", model: str) -> "pystac.Catalog":
    import pystac

    root = pystac.Catalog("eopipe-run", text.terms, text.title)
    root.clear_links()
    root.add_link(link("root", "./catalog.json"))
    root.add_links([link("child", f"./{child.id}/collection.json", JSON, child.title) for child in collections])
    root.add_link(link("item", f"./model/{model}", ITEM, "the model"))
    return root


def _collection(
    draft: Path, name: str, title: str, text: CatalogText, items: "Sequence[pystac.Item]"
) -> "pystac.Collection":
    """Write the items of a collection; return the collection. Raises BadInputError for two items of one name."""
    names = [item.id for item in items]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise BadInputError(f"two {name} have the name {', '.join(repeated)}; give maps and tiles of one run")
    for item in items:
        origins = list(item.links)
        item.clear_links()
        item.add_link(link("root", "../../catalog.json"))
        item.add_links([*(link(rel, "../collection.json") for rel in ("parent", "collection")), *origins])
        item.collection_id = name
        write_json(draft / name / item_path(item.id), document(item))
    described = collection(name, title, text.terms, text.spdx, items)
    described.add_links(_licence_links(text))
    return described


def _licence_links(text: CatalogText) -> "list[pystac.Link]":
    return [link("license", text.license, "text/html", "licence")] if text.is_url else []


def _origin_links(draft: Path, scenes: Sequence[Path]) -> "dict[str, pystac.Link]":
    """A link to each scene, by its name: to its own address if it has one, else to a copy in the catalog."""
    origins = {}
    for path in sorted(scenes, key=lambda path: path.name):
        item = read_item(path)
        name = scene_name(item["id"])
        hrefs = [str(entry.get("href")) for entry in item.get("links", []) if entry.get("rel") == "self"]
        addresses = [redact_href(href) for href in hrefs if href.startswith(("http://", "https://"))]
        if not addresses:
            link_or_copy(path, draft / "scenes" / f"{name}.geojson")
        href = addresses[0] if addresses else f"../../scenes/{name}.geojson"
        origins[name] = link("derived_from", href, ITEM, f"scene {item['id']}")
    return origins


def _tiles_items(draft: Path, store: Tiles, origins: "dict[str, pystac.Link]") -> "list[pystac.Item]":
    """The items of a tile store, one for each cell; the store is beside the first of them."""
    attributes = store.attributes
    is_chip_set = CHIP_SET in attributes
    scenes = [] if is_chip_set else attributes.get("scenes", [store.scene])
    if missing := sorted(set(scenes) - origins.keys()):
        raise BadInputError(f"{store.path} is made from {', '.join(missing)}, which is not among the scenes given")
    names = [_tiles_name(store.scene, part.cell) for part in store.parts]
    folder = draft / "tiles" / names[0] / f"{store.scene}.zarr"
    link_or_copy(store.path, folder)
    scale, offset = store.scaling
    dtype, items = str(store.array("image").dtype), []
    for name, part in zip(names, store.parts, strict=True):
        made_from = "chips, each in a slot; the store has their index" if is_chip_set else ", ".join(scenes)
        lineage = f"eopipe: {made_from}{'' if is_chip_set else ' on the grid of the run'}."
        (draft / "tiles" / name).mkdir(parents=True, exist_ok=True)
        grid = part.alone().grid
        item = _item(name, grid, [attributes] if is_chip_set or attributes.get("datetime") else [], lineage)
        item.add_links([origins[name] for name in scenes])
        band = {"data_type": dtype, "scale": scale, "offset": offset, "spatial_resolution": _resolution(grid)}
        href = f"./{folder.name}" if name == names[0] else f"../{names[0]}/{folder.name}"
        group = f"/{part.cell}" if part.cell else ""
        tiles = asset(f"{href}{group}", ZARR, "image and valid mask on the grid of the run", ("data",))
        tiles.extra_fields["bands"] = [{"name": name} for name in store.names]
        add_raster_bands(tiles, [{"name": name} | band for name in store.names])
        item.add_asset("tiles", tiles)
        title = "sha256 of every file of the store"
        item.add_asset("manifest", asset(f"{href}/{MANIFEST}", JSON, title, ("metadata",), folder / MANIFEST))
        items.append(item)
    return items


def _tiles_name(scene: str, cell: str) -> str:
    return f"{scene}.{cell}" if cell else scene


def _resolution(grid: "GeoBox") -> float:
    return abs(float(grid.resolution.x))


def _item(name: str, grid: "GeoBox", attributes: Sequence[dict[str, Any]], lineage: str) -> "pystac.Item":
    """An item on a grid, of the time that attributes of stores cover; the slots of a chip set are not a place."""
    processing = {"processing:lineage": lineage, "processing:software": {"eopipe": __version__}}
    item = extent_of([grid], attributes).item(name, (FILE, PROCESSING, PROJECTION, RASTER), processing)
    if not any(CHIP_SET in fields for fields in attributes):
        add_projection(item, grid)
    return item


def _map_item(draft: Path, pair: tuple[Path, Path], stores: dict[str, Tiles], inputs: CatalogInputs) -> "pystac.Item":
    """A map of classes with its probabilities, or of values with their spread among the scenes."""
    (scenes, cell_name), card = _sources(pair[0], stores), inputs.card
    cell = stores[scenes[0]].frame.cell(cell_name)
    name = "-".join(["map", *([scenes[0]] if len(scenes) == 1 else []), *([cell.id] if cell.id else [])])
    mapped = [stores[scene] for scene in scenes if any(part.cell == cell.id for part in stores[scene].parts)]
    lineage = f"eopipe predict: mean of what the model says of {', '.join(scenes)}, where they are valid."
    # A map without a pixel has the time of its scenes too.
    dated = mapped or [stores[scene] for scene in scenes]
    item = _item(name, cell.grid, [store.attributes for store in dated], lineage)
    item.add_link(link("derived_from", f"../../model/{inputs.model_item.name}", ITEM, "the model"))
    origins = [_tiles_name(store.scene, cell.id) for store in mapped]
    item.add_links([link("derived_from", f"../../tiles/{s}/{s}.json", ITEM, f"tiles of {s}") for s in origins])
    task = TASKS[card["task"]]
    for key, path in zip(task.rasters, pair, strict=True):
        target = draft / "maps" / name / f"{key}.tif"
        link_or_copy(path, target)
        item.add_asset(key, _raster(target, key, _resolution(cell.grid)))
    if task.has_label_sets:
        _add_meanings(item, "labels", class_objects(("absent", "present")))
    elif task.has_classes:
        _add_classes(item, draft / "maps" / name / "classes.tif", card["classes"])
    _add_renders(item)
    return item


def _add_classes(item: "pystac.Item", file: Path, names: Sequence[str]) -> None:
    """Add the classes of a map with its colours, and the names beside the file, where GDAL and QGIS read them."""
    colors = _colors(file)
    hints = [
        described | ({"color_hint": colors[described["value"]]} if described["value"] in colors else {})
        for described in class_objects(names)
    ]
    _add_meanings(item, "classes", hints)
    lines = [f"      <Category>{escape(name)}</Category>" for name in names]
    head, tail = '<PAMDataset>\n  <PAMRasterBand band="1">\n    <CategoryNames>', "    </CategoryNames>"
    beside = file.with_name(f"{file.name}.aux.xml")
    text = "\n".join([head, *lines, tail, "  </PAMRasterBand>", "</PAMDataset>", ""])
    beside.write_text(text, encoding="utf-8", newline="\n")
    title = "names of the classes for GDAL and QGIS"
    item.add_asset("names", asset(f"./{beside.name}", "application/xml", title, ("metadata",), beside))


def _add_meanings(item: "pystac.Item", key: str, classes: list[dict[str, Any]]) -> None:
    """Add what the numbers of a raster mean; of several labels the names of its bands are the classes."""
    nodata = {"value": NO_LABEL, "name": "nothing", "title": "no scene is valid", "nodata": True}
    item.assets[key].extra_fields["classification:classes"] = [*classes, nodata]
    item.stac_extensions = sorted([*item.stac_extensions, CLASSIFICATION])


def _add_renders(item: "pystac.Item") -> None:
    """Add how each raster is displayed: classes in their colours, numbers from their scale's least to largest."""
    renders: dict[str, dict[str, Any]] = {}
    for key in (key for key, described in item.assets.items() if "data" in (described.roles or [])):
        renders[key] = {"title": item.assets[key].title, "assets": [key], "resampling": "nearest"}
        classes = item.assets[key].extra_fields.get("classification:classes", [])
        if colors := {str(row["value"]): f"#{row['color_hint']}" for row in classes if "color_hint" in row}:
            renders[key] |= {"colormap": colors, "nodata": NO_LABEL}
        elif key == "probabilities":
            bands = item.assets[key].extra_fields["raster:bands"]
            stored = [[0, round(1 / bands[-1].get("scale", 1))]]
            renders[key] |= {"bidx": [len(bands)], "rescale": stored, "colormap_name": "viridis"}
        else:
            renders[key] |= {"bidx": [1], "colormap_name": "viridis"}
    item.properties["renders"] = renders
    item.stac_extensions = sorted([*item.stac_extensions, RENDER])


def _colors(file: Path) -> dict[int, str]:
    """The colours of a map's numbers as rrggbb; none where it has no colour table."""
    with open_map(file) as source:
        try:
            table = source.colormap(1)
        except ValueError:
            return {}
    return {number: "".join(f"{part:02x}" for part in color[:3]) for number, color in table.items()}


def _sources(path: Path, stores: dict[str, Tiles]) -> tuple[list[str], str]:
    """The scenes that a map names, and its cell. Raises BadInputError for a map of others than those given."""
    with open_map(path) as source:
        tags = source.tags()
    scenes = tagged_scenes(tags, sorted(stores))
    if not scenes or (missing := sorted(set(scenes) - stores.keys())):
        reason = f"is made from {', '.join(missing)}, whose tiles are not given" if scenes else "names no scenes"
        if "scene_count" in tags and not scenes:
            reason = f"is made from {tags['scene_count']} scenes, other than the scenes of the tiles given"
        raise BadInputError(f"{path} {reason}; give a map by predict and the tiles that it was made from")
    return scenes, tags.get("cell", "")


def _raster(file: Path, key: str, resolution: float) -> "pystac.Asset":
    title = {"classes": "class of each pixel", "values": "value of each pixel", "labels": "labels of each chip"}.get(
        key, key
    )
    raster = asset(f"./{file.name}", COG, title, ("data",), file)
    with open_map(file) as source:
        add_raster_bands(raster, [_band(source, n, resolution) for n in range(source.count)])
    return raster


def _band(source: Any, n: int, resolution: float) -> dict[str, Any]:
    # NaN is not a number in JSON, but the text nan is nodata in STAC.
    nodata = source.nodatavals[n]
    band = {
        "name": source.descriptions[n] or f"band {n + 1}",
        "data_type": source.dtypes[n],
        "nodata": "nan" if isnan(nodata) else nodata,
        "spatial_resolution": resolution,
    }
    if source.scales[n] != 1:
        band["scale"] = source.scales[n]
    return band | ({"unit": source.units[n]} if source.units[n] else {})
