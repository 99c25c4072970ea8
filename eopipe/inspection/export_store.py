"""A store as a cloud-optimised GeoTIFF, for programs that do not read sharded Zarr."""

from pathlib import Path
from typing import Any

from eopipe.inference.mosaic import new_map
from eopipe.reporting.palette import class_colors, rgb
from eopipe.tiles.grid import windows
from eopipe.tiles.store import NO_LABEL, Tiles

SHOWN = ("scene", "datetime", "collection")


def export_store(target: Path, store: Tiles) -> tuple[str, ...]:
    """Publish the image or the labels of a store as a COG with the same stored numbers; returns the names of its bands.

    Bands have their names, scale and offset. The mask of the file is `valid`; labels have nodata and the colours of
    the report.
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
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        new_map(target, store.grid, str(array.dtype), nodata, bands, colors, **tags) as file,
    ):
        if name == "image":
            scale, offset = store.scaling
            file.scales, file.offsets = [scale] * len(bands), [offset] * len(bands)
        elif unit := str(store.attributes.get("unit") or ""):
            file.units = [unit]
        for y, x in windows(store.shape, edge):
            window, pixels = Window.from_slices(y, x), store.read(name, y, x)
            file.write(pixels.reshape(len(bands), *pixels.shape[-2:]), window=window)
            if name == "image":
                file.write_mask(store.read("valid", y, x) > 0, window=window)
    return bands
