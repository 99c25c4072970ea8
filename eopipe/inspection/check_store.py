"""What is wrong with a store, beyond what its manifest tells."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.errors import BadInputError
from eopipe.publish import find_damage
from eopipe.tiles.grid import windows
from eopipe.tiles.store import NO_LABEL, Tiles

Window = tuple[slice, slice]


def faults(store: Tiles) -> list[str]:
    """Sentences on all that is wrong; none for a good store. Reads every chunk, one shard at a time."""
    with ThreadPoolExecutor() as pool:
        wrong = [damage.message for damage in find_damage(store.path, pool.map)]
    try:
        wrong += [*_shapes(store), *_budget(store)]
        return wrong or [*_pixels(store)]
    except BadInputError as error:
        return [*wrong, str(error)]


def _shapes(store: Tiles) -> Iterator[str]:
    """Arrays are there and as large as the grid."""
    payload = store.array("label" if "label" in store.group else "image")
    for array in (payload, store.array("valid")):
        if array.shape[-2:] != store.shape:
            yield f"{array.name} is {array.shape[-2:]}, the grid {store.shape}"
    bands = payload.shape[0] if payload.ndim == 3 else len(store.names)
    if bands != len(store.names):
        yield f"image has {bands} bands, and {len(store.names)} are named: {', '.join(store.names)}"


def _budget(store: Tiles) -> Iterator[str]:
    """Every shard is a file, and no more: what is missing would read as fill without a word."""
    for name in sorted(store.group.array_keys()):
        array: Any = store.group[name]
        cut = array.shards or array.chunks
        want = int(np.prod([-(-edge // size) for edge, size in zip(array.shape, cut, strict=True)]))
        have = sum(file.is_file() for file in (store.path / name / "c").rglob("*"))
        # A scalar that is its own fill value takes no file.
        if have != want and array.ndim:
            yield f"{name} has {have} files of shards; its layout makes {want}"


def _pixels(store: Tiles) -> Iterator[str]:
    """Every chunk decodes, and the mask agrees with what it is the mask of."""
    seen, shape = 0, store.shape
    edge = max((store.array("valid").shards or store.array("valid").chunks)[-2:])
    for window in windows(shape, edge):
        try:
            wrong = _window(store, window)
            seen += int((store.read("valid", *window) > 0).sum())
        except (ValueError, RuntimeError, OSError) as error:
            wrong = f"does not decode: {error}"
        if wrong:
            rows, cols = window
            yield f"rows {rows.start} to {rows.stop}, columns {cols.start} to {cols.stop}: {wrong}"
            return
    told = store.attributes.get("valid_fraction")
    if told is not None and abs(seen / (shape[0] * shape[1]) - told) > 1e-5:
        yield f"valid_fraction tells {told}, the mask has {seen / (shape[0] * shape[1]):.6f}"


def _window(store: Tiles, window: Window) -> str:
    valid = store.read("valid", *window)
    if valid.max(initial=0) > 1:
        return f"the mask holds {int(valid.max())}; it may hold 0 and 1"
    found = {name: store.read(name, *window) for name in ("image", "label", "count") if name in store.group}
    return next(filter(None, (RULES[name](pixels, valid > 0) for name, pixels in found.items())), "")


def _image(pixels: AnyArray, valid: BoolArray) -> str:
    there = np.isfinite(pixels).all(0)
    return f"{int((valid & ~there).sum())} pixels are valid but not finite" * bool((valid & ~there).any())


def _label(numbers: AnyArray, valid: BoolArray) -> str:
    there = np.isfinite(numbers) if numbers.dtype.kind == "f" else numbers != NO_LABEL
    wrong = int((there != valid).sum())
    return f"{wrong} pixels have a label without being valid, or none" * bool(wrong)


def _count(numbers: AnyArray, valid: BoolArray) -> str:
    wrong = int(((numbers > 0) != valid).sum())
    return f"{wrong} pixels have observations without being valid, or none" * bool(wrong)


RULES = {"image": _image, "label": _label, "count": _count}
