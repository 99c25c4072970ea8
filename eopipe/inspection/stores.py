"""Stores of tiles and labels, described and checked."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.errors import BadInputError, IntegrityError
from eopipe.publish import files, find_damage
from eopipe.reporting.wording import format_bounds, format_degrees, format_length
from eopipe.text_table import format_bytes
from eopipe.tiles.grid import windows
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.shard_reader import WRITTEN_SHARDS
from eopipe.tiles.store import CHIP_SET, IDENTITY, NO_LABEL, Tiles

# Attributes that other lines show already, or that no reader needs.
OMITTED = IDENTITY | {"datetime", "collection", "valid_fraction", "Conventions", "zarr_conventions"}
OMITTED |= {"spatial:dimensions", "spatial:bbox"}


def describe_store(store: Tiles) -> list[str]:
    """One store, a line for each property."""
    rows = [("scene", _scene_text(store)), ("grid", _grid_text(store)), ("bounds", _bounds_text(store))]
    rows += [(name, _array_text(store, name)) for name, array in sorted(store.group.arrays()) if array.ndim > 1]
    rows += [("names", " ".join(store.names)), ("chunks", _chunk_text(store)), ("valid share", _valid_text(store))]
    rows += [("files", "{} files, {}".format(*_file_texts(store.path)))]
    rows += [(key, _value_text(value)) for key, value in sorted(store.attributes.items()) if key not in OMITTED]
    return [str(store.path), *(f"  {key:<12} {value}" for key, value in rows)]


def store_table(stores: list[Tiles]) -> list[str]:
    """Many stores, a line for each, and the sum of their files."""
    head = ("store", "date", "pixels", "bands", "valid", "files", "size")
    rows = [head, *(_store_row(store) for store in stores)]
    count, size = (sum(numbers) for numbers in zip(*(_file_size(store.path) for store in stores), strict=True))
    rows.append((f"{len(stores)} stores", "", "", "", "", str(count), format_bytes(size)))
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _store_row(store: Tiles) -> tuple[str, ...]:
    height, width = store.shape
    shape = f"{height} x {width}"
    return store.path.name, _date(store), shape, str(len(store.names)), _valid_text(store), *_file_texts(store.path)


def _file_size(path: Path) -> tuple[int, int]:
    """Number of files of a store with its manifest, and their bytes."""
    paths = [*files(path), *path.glob("manifest.json")]
    return len(paths), sum(file.stat().st_size for file in paths)


def _file_texts(path: Path) -> tuple[str, str]:
    count, size = _file_size(path)
    return str(count), format_bytes(size)


def _date(store: Tiles) -> str:
    attributes = store.attributes
    return str(attributes.get("datetime") or attributes.get("start_datetime") or "")[:10]


def _scene_text(store: Tiles) -> str:
    collection = store.attributes.get("collection")
    parts = (store.scene or "of all scenes", _date(store), f"collection {collection}" if collection else "")
    return ", ".join(filter(None, parts))


def _grid_text(store: Tiles) -> str:
    (rows, cols), (width, height) = store.shape, pixel_metres(store.grid)
    crs = "slots of a chip set (not a place)" if CHIP_SET in store.attributes else str(store.grid.crs)
    return (
        f"{rows} x {cols} pixels (rows x columns) of {format_length(width)}, {crs}, "
        f"{format_length(rows * height)} x {format_length(cols * width)}"
    )


def _bounds_text(store: Tiles) -> str:
    chip_set = store.attributes.get(CHIP_SET)
    return format_degrees(chip_set["bbox"]) if chip_set else format_bounds(store.grid)


def _array_text(store: Tiles, name: str) -> str:
    """Shape, data type, scaling and compression ratio of an array."""
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
    arrays = {name: store.read(name, *window) for name in CHECKS if name in store.group}
    return next(filter(None, (CHECKS[name](pixels, valid > 0) for name, pixels in arrays.items())), "")


def _image_error(pixels: AnyArray, valid: BoolArray) -> str:
    count = int((valid & ~np.isfinite(pixels).all(0)).sum())
    return f"{count} pixels are valid but not finite" * bool(count)


def _label_error(numbers: AnyArray, valid: BoolArray) -> str:
    has_label = np.isfinite(numbers) if numbers.dtype.kind == "f" else numbers != NO_LABEL
    count = int((has_label != valid).sum())
    return f"{count} pixels have a label but are not valid, or are valid without a label" * bool(count)


def _count_error(numbers: AnyArray, valid: BoolArray) -> str:
    count = int(((numbers > 0) != valid).sum())
    return f"{count} pixels have observations but are not valid, or are valid without observations" * bool(count)


CHECKS = {"image": _image_error, "label": _label_error, "count": _count_error}
