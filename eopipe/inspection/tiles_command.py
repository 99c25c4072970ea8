"""`eopipe tiles`: stores described as text, checked, or exported to GeoTIFF."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chip_set import NOT_A_PLACE
from eopipe.chips.chips import has_value
from eopipe.contract import Argument
from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.inference.map_files import new_map
from eopipe.own_files import refuse_foreign_file
from eopipe.publish import files, find_damage, is_draft
from eopipe.reporting.figures import class_colors, rgb
from eopipe.reporting.wording import format_bounds, format_degrees, format_length
from eopipe.scenes.item import day_text
from eopipe.text_table import format_bytes, format_table, message_line
from eopipe.tiles.geotiff import MapFormat, open_map, read_window
from eopipe.tiles.grid import windows
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.shard_reader import WRITTEN_SHARDS
from eopipe.tiles.store import CHIP_SET, IDENTITY, NO_LABEL, Tiles

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# Attributes that other lines show already, or that no reader needs.
OMITTED = IDENTITY | {"datetime", "collection", "valid_fraction", "Conventions", "zarr_conventions"}
OMITTED |= {"spatial:dimensions", "spatial:bbox"}
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
    grid, (y, x) = grid_of(chip), slot_of(chip)
    with open_map(source) as file:
        if NOT_A_PLACE not in file.crs.to_wkt() or y.stop > file.height or x.stop > file.width:
            raise BadInputError(f"{source} is not a map of the store with chip {chip['id']}, {chip['store']}")
        pixels, tags = read_window(file, y, x), file.tags() | WRITTEN_BY | {"chip": chip["id"]}
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


def describe_store(store: Tiles) -> list[str]:
    """One store, a line for each property."""
    chip_set = store.attributes.get(CHIP_SET)
    bounds = format_degrees(chip_set["bbox"]) if chip_set else format_bounds(store.grid)
    rows = [("scene", _scene_text(store)), ("grid", _grid_text(store)), ("bounds", bounds)]
    rows += [(name, _array_text(store, name)) for name, array in sorted(store.group.arrays()) if array.ndim > 1]
    rows += [("names", " ".join(store.names)), ("chunks", _chunk_text(store)), ("valid share", _valid_text(store))]
    rows += [("files", "{} files, {}".format(*_store_row(store)[-2:]))]
    rows += [(key, _value_text(value)) for key, value in sorted(store.attributes.items()) if key not in OMITTED]
    return [str(store.path), *(f"  {key:<12} {value}" for key, value in rows)]


def store_table(stores: list[Tiles]) -> list[str]:
    """Many stores, a line for each, and the sum of their files."""
    head = ("store", "date", "pixels", "bands", "valid", "files", "size")
    rows = [head, *(_store_row(store) for store in stores)]
    count, size = (sum(numbers) for numbers in zip(*(_file_size(store.path) for store in stores), strict=True))
    rows.append((f"{len(stores)} stores", "", "", "", "", str(count), format_bytes(size)))
    return format_table(rows, left=(*range(len(head)),))


def _store_row(store: Tiles) -> tuple[str, ...]:
    (height, width), (count, size) = store.shape, _file_size(store.path)
    of_pixels = (f"{height} x {width}", str(len(store.names)), _valid_text(store))
    return store.path.name, day_text(store.attributes), *of_pixels, str(count), format_bytes(size)


def _file_size(path: Path) -> tuple[int, int]:
    paths = [*files(path), *path.glob("manifest.json")]
    return len(paths), sum(file.stat().st_size for file in paths)


def _scene_text(store: Tiles) -> str:
    collection = store.attributes.get("collection")
    parts = (
        store.scene or "of all scenes",
        day_text(store.attributes),
        f"collection {collection}" if collection else "",
    )
    return ", ".join(filter(None, parts))


def _grid_text(store: Tiles) -> str:
    (rows, cols), (width, height) = store.shape, pixel_metres(store.grid)
    crs = "slots of a chip set (not a place)" if CHIP_SET in store.attributes else str(store.grid.crs)
    return (
        f"{rows} x {cols} pixels (rows x columns) of {format_length(width)}, {crs}, "
        f"{format_length(rows * height)} x {format_length(cols * width)}"
    )


def _array_text(store: Tiles, name: str) -> str:
    array = store.array(name)
    scaling = ""
    if "scale_factor" in array.attrs:
        scale, offset = store.scaling
        scaling = f", value = stored x {scale:g} {'-' if offset < 0 else '+'} {abs(offset):g}"
    stored = sum(file.stat().st_size for file in files(store.path / name))
    ratio = f"compression ratio {array.nbytes / stored:.1f}" if stored else "empty"
    shape = " x ".join(map(str, array.shape))
    return f"{shape} {array.dtype}{scaling}; {format_bytes(array.nbytes)} in {format_bytes(stored)}, {ratio}"


def _chunk_text(store: Tiles) -> str:
    array = store.array("image" if "image" in store.group else "label")
    chunk, shard = array.chunks[-2:], (array.shards or array.chunks)[-2:]
    blosc = filter(None, (getattr(codec, "cname", None) for codec in array.compressors))
    has_checksum = any("Crc32c" in type(codec).__name__ for codec in array.compressors)
    codecs = (*(f"Blosc {name.value}" for name in blosc), *(["crc32c"] * has_checksum))
    return f"{chunk[0]} x {chunk[1]}, in shards of {shard[0]} x {shard[1]}, {', '.join(codecs) or 'no codec'}"


def _valid_text(store: Tiles) -> str:
    share = store.attributes.get("valid_fraction")
    return "unknown" if share is None else f"{100 * share:.1f} %"


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value_text(part)}" for key, part in value.items())
    return " ".join(map(_value_text, value)) if isinstance(value, list) else str(value)


def find_errors(store: Tiles) -> list[str]:
    """A sentence for each error; none for a good store. Reads every chunk, one shard at a time."""
    store = store.alone()
    with ThreadPoolExecutor() as pool:
        # The groups of several cells have one manifest.
        errors = [damage.message for damage in find_damage(store.path.parent if store.cell else store.path, pool.map)]
    try:
        errors += [*_shape_errors(store), *_shard_errors(store)]
        return errors or [*_pixel_errors(store)]
    except BadInputError as error:
        return [*errors, str(error)]


def _shape_errors(store: Tiles) -> Iterator[str]:
    """Arrays of another shape than the grid, or with another number of bands than names."""
    payload = store.array("label" if "label" in store.group else "image")
    for array in (payload, store.array("valid")):
        if array.shape[-2:] != store.shape:
            yield f"{array.name} is {array.shape[-2:]}, the grid {store.shape}"
    bands = payload.shape[0] if payload.ndim == 3 else len(store.names)
    if bands != len(store.names):
        yield f"image has {bands} bands, and {len(store.names)} are named: {', '.join(store.names)}"


def _shard_errors(store: Tiles) -> Iterator[str]:
    """Missing shards, which Zarr silently reads as the fill value, and surplus ones."""
    for name in sorted(store.group.array_keys()):
        array: Any = store.group[name]
        shard = array.shards or array.chunks
        expected = int(np.prod([-(-edge // size) for edge, size in zip(array.shape, shard, strict=True)]))
        count = sum(file.is_file() for file in (store.path / name / "c").rglob("*"))
        written = array.attrs.get(WRITTEN_SHARDS)
        expected = len(written) if isinstance(written, list) else expected
        # A scalar that equals its fill value has no file.
        if count != expected and array.ndim:
            yield f"{name} has {count} shard files; its layout has {expected}"


def _pixel_errors(store: Tiles) -> Iterator[str]:
    """The first window that does not decode or disagrees with the mask, and a wrong valid fraction."""
    valid_pixels, shape = 0, store.shape
    edge = max((store.array("valid").shards or store.array("valid").chunks)[-2:])
    for window in windows(shape, edge):
        try:
            error = _window_error(store, window)
            valid_pixels += int((store.read("valid", *window) > 0).sum())
        except (IntegrityError, OSError) as failure:
            error = f"does not decode: {failure}"
        if error:
            rows, cols = window
            yield f"rows {rows.start} to {rows.stop}, columns {cols.start} to {cols.stop}: {error}"
            return
    recorded, measured = store.attributes.get("valid_fraction"), valid_pixels / (shape[0] * shape[1])
    if recorded is not None and abs(measured - recorded) > 1e-5:
        yield f"valid_fraction is {recorded}, but the mask's is {measured:.6f}"


def _window_error(store: Tiles, window: tuple[slice, slice]) -> str:
    """The first error in a window; empty if there is none."""
    valid = store.read("valid", *window)
    if valid.max(initial=0) > 1:
        return f"the mask holds {int(valid.max())}; only 0 and 1 are allowed"
    for name, (contradicts, text) in CHECKS.items():
        if name in store.group and (count := int(contradicts(store.read(name, *window), valid > 0).sum())):
            return f"{count} pixels {text}"
    return ""


# Where the pixels of an array contradict the mask, and in what.
CHECKS: dict[str, tuple[Callable[[AnyArray, BoolArray], BoolArray], str]] = {
    "image": (lambda pixels, valid: valid & ~np.isfinite(pixels).all(0), "are valid but not finite"),
    "label": (
        lambda numbers, valid: has_value(numbers) != valid,
        "have a label but are not valid, or are valid without a label",
    ),
    "count": (
        lambda numbers, valid: (numbers > 0) != valid,
        "have observations but are not valid, or are valid without observations",
    ),
}
