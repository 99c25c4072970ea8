"""`eopipe tiles`: stores described as text, checked, or exported to GeoTIFF."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chip_set import NOT_A_PLACE
from eopipe.contract import Argument
from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.inference.map_files import MapFormat, new_map
from eopipe.inspection.stores import describe_store, find_errors, store_table
from eopipe.own_files import refuse_foreign_file
from eopipe.publish import is_draft
from eopipe.reporting.palette import class_colors, rgb
from eopipe.text_table import message_line
from eopipe.tiles.geotiff import open_map
from eopipe.tiles.grid import windows
from eopipe.tiles.store import CHIP_SET, NO_LABEL, Tiles

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

StoresPath = Annotated[Path, Argument("a store of tiles or labels, or a folder with stores", positional=True)]
# GDAL writes them itself.
TAGS_OF_GDAL = ("AREA_OR_POINT", "OVR_RESAMPLING_ALG")
SHOWN = ("scene", "datetime", "collection")
# By this tag an export knows its own files.
WRITTEN_BY = {"written_by": (MARK := "eopipe tiles export")}


def print_properties(path: StoresPath) -> None:
    """Print the properties of stores."""
    stores = open_stores(path)
    print("\n".join(describe_store(stores[0]) if len(stores) == 1 else store_table(stores)))


def check(path: StoresPath) -> int:
    """Read every chunk of stores and print all errors."""
    damaged = 0
    for store in open_stores(path):
        errors = find_errors(store)
        damaged += bool(errors)
        for error in errors:
            print(message_line("error", f"{store.path}: {error}"), file=sys.stderr)
        if not errors:
            print(f"{store.path} is intact: every chunk decodes, masks and counts of files agree")
    return IntegrityError.code if damaged else 0


def export(
    path: StoresPath,
    target: Annotated[
        Path | None, Argument("the GeoTIFF [PATH with the suffix .tif, or the chip's id]", positional=True)
    ] = None,
    chip: Annotated[str | None, Argument("only this chip of a chip set, on its own grid", value="ID")] = None,
    map_: Annotated[Path | None, Argument("with --chip: its pixels in a map of its store, not in the store")] = None,
) -> None:
    """Write the pixels of a store as a cloud-optimised GeoTIFF."""
    if map_ and not chip:
        raise UsageError("--map needs --chip, the id of the chip whose part of the map is written")
    stores = open_stores(path)
    if chip:
        store, row = _place_of_chip(stores, path, chip)
        written = target or Path(f"{chip.replace('/', '-')}.tif")
        refuse_foreign_file(written, MARK)
        bands = export_map(written, map_, row) if map_ else export_store(written, store, row)
    elif len(stores) > 1:
        raise BadInputError(f"{path} contains {len(stores)} stores; export one at a time, such as {stores[0].path}")
    else:
        written = target or path.resolve().with_suffix(".tif")
        refuse_foreign_file(written, MARK)
        bands = export_store(written, stores[0])
    print(f"wrote {target or written.name}: {', '.join(bands)}")


TILES = {"info": print_properties, "check": check, "export": export}


def open_stores(path: Path) -> list[Tiles]:
    """The store at a path, or all stores below a folder, by name; of several cells the group of each.

    Raises BadInputError if there are none.
    """
    if not path.is_dir():
        raise BadInputError(f"the folder {path} does not exist; give a store or a folder with stores")
    if (path / "zarr.json").is_file():
        return _parts(path)
    folders = sorted(file.parent for file in path.rglob("*.zarr/zarr.json"))
    stores = [folder for folder in folders if not any(is_draft(part) for part in folder.relative_to(path).parts)]
    if not stores:
        raise BadInputError(f"{path} contains no store; eopipe preprocess, composite and label write stores")
    return [part for folder in stores for part in _parts(folder)]


def _parts(path: Path) -> list[Tiles]:
    return [part.alone() for part in Tiles(path, is_alone=True).parts]


def _place_of_chip(stores: list[Tiles], path: Path, chip: str) -> tuple[Tiles, dict[str, Any]]:
    """The store with a chip, and its row there. Raises BadInputError where there is none, or where there are two."""
    packed = [store for store in stores if CHIP_SET in store.attributes]
    rows = [(store, row) for store in packed for row in ChipPlaces.of([store]).records if row["id"] == chip]  # type: ignore[union-attr]
    if not rows:
        raise BadInputError(f"{path} has no chip {chip}; chips.json of the chip set lists them")
    if len(rows) > 1:
        names = " and ".join(str(store.path) for store, _ in rows)
        raise BadInputError(f"{names} have a chip {chip}: give the folder of the tiles, or of the labels")
    return rows[0]


def export_store(target: Path, store: Tiles, chip: dict[str, Any] | None = None) -> tuple[str, ...]:
    """Publish the image or the labels of a store as a COG with the same stored numbers; returns the names of its bands.

    Bands have their names, scale and offset. The mask of the file is `valid`; labels have nodata and the colours of
    the report. `chip` is a row of the index of a chip set: only its pixels are written, on its own grid.
    """
    import rasterio
    from rasterio.windows import Window

    name = "image" if "image" in store.group else "label"
    array = store.array(name)
    is_classes = name == "label" and array.dtype.kind != "f"
    bands = store.names if name == "image" or not is_classes else ("class",)
    tags: dict[str, Any] = WRITTEN_BY | {key: store.attributes[key] for key in SHOWN if store.attributes.get(key)}
    colors = None
    if is_classes:
        colors = {number: rgb(color) for number, color in enumerate(class_colors(store.names, ()))}
        tags["classes"] = ", ".join(f"{number}={title}" for number, title in enumerate(store.names))
    nodata = None if name == "image" else NO_LABEL if is_classes else float("nan")
    edge = max((array.shards or array.chunks)[-2:])
    parts, grid = [(part, part) for part in windows(store.shape, edge)], store.grid
    if chip:
        grid, slot = grid_of(chip), slot_of(chip)
        parts, tags = [((slice(0, grid.shape[0]), slice(0, grid.shape[1])), slot)], tags | {"chip": chip["id"]}
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        new_map(target, grid, MapFormat(str(array.dtype), nodata, bands, tags, colors)) as file,
    ):
        if name == "image":
            scale, offset = store.scaling
            file.scales, file.offsets = [scale] * len(bands), [offset] * len(bands)
        elif unit := str(store.attributes.get("unit") or ""):
            file.units = [unit]
        for written, (y, x) in parts:
            window, pixels = Window.from_slices(*written), store.read(name, y, x)
            file.write(pixels.reshape(len(bands), *pixels.shape[-2:]), window=window)
            if name == "image":
                file.write_mask(store.read("valid", y, x) > 0, window=window)
    return bands


def export_map(target: Path, source: Path, chip: dict[str, Any]) -> tuple[str, ...]:
    """Publish the pixels of a chip in a map of its store as a COG on the chip's own grid; returns its bands' names.

    Raises BadInputError for a file without this slot.
    """
    from rasterio.windows import Window

    grid, (y, x) = grid_of(chip), slot_of(chip)
    with open_map(source) as file:
        if NOT_A_PLACE not in file.crs.to_wkt() or y.stop > file.height or x.stop > file.width:
            raise BadInputError(f"{source} is not a map of the store with chip {chip['id']}, {chip['store']}")
        pixels, tags = file.read(window=Window.from_slices(y, x)), file.tags() | WRITTEN_BY | {"chip": chip["id"]}
        tags = {key: value for key, value in tags.items() if key not in TAGS_OF_GDAL}
        names = tuple(file.descriptions)
        colors = file.colormap(1) if file.colorinterp[0].name == "palette" else None
        scales, offsets, nodata = file.scales, file.offsets, file.nodata
    with new_map(target, grid, MapFormat(str(pixels.dtype), nodata, names, tags, colors)) as copied:
        copied.scales, copied.offsets = scales, offsets
        copied.write(pixels)
    return names


def grid_of(chip: dict[str, Any]) -> "GeoBox":
    """The grid of a chip on the ground."""
    from affine import Affine
    from odc.geo.geobox import GeoBox

    return GeoBox((chip["height"], chip["width"]), Affine(*chip["transform"]), chip["crs"])


def slot_of(chip: dict[str, Any]) -> tuple[slice, slice]:
    """Rows and columns of a chip in its store."""
    row, column = chip["row"], chip["column"]
    return slice(row, row + chip["height"]), slice(column, column + chip["width"])
