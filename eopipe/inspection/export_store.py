"""A store, or one chip of a set at its place, as a cloud-optimised GeoTIFF, for programs without sharded Zarr."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.chips.chip_set import NOT_A_PLACE
from eopipe.errors import BadInputError
from eopipe.inference.map_files import MapFormat, new_map
from eopipe.reporting.palette import class_colors, rgb
from eopipe.tiles.grid import windows
from eopipe.tiles.store import NO_LABEL, Tiles

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# GDAL writes them itself.
TAGS_OF_GDAL = ("AREA_OR_POINT", "OVR_RESAMPLING_ALG")
SHOWN = ("scene", "datetime", "collection")


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
    tags: dict[str, Any] = {key: store.attributes[key] for key in SHOWN if store.attributes.get(key)}
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
    import rasterio
    from rasterio.windows import Window

    grid, (y, x) = grid_of(chip), slot_of(chip)
    with rasterio.open(source) as file:
        if NOT_A_PLACE not in file.crs.to_wkt() or y.stop > file.height or x.stop > file.width:
            raise BadInputError(f"{source} is not a map of the store with chip {chip['id']}, {chip['store']}")
        pixels, tags = file.read(window=Window.from_slices(y, x)), file.tags() | {"chip": chip["id"]}
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
