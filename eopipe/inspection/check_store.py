"""Errors of a store beyond its manifest: shapes, shard counts, decoding, masks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.errors import BadInputError, IntegrityError
from eopipe.publish import find_damage
from eopipe.tiles.grid import windows
from eopipe.tiles.shard_reader import WRITTEN_SHARDS
from eopipe.tiles.store import NO_LABEL, Tiles


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
