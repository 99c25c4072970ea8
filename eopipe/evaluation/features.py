"""What the tree baselines see of a pixel: bands or seasonal medians, with their means and deviations around it."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, FloatArray, IntArray
from eopipe.errors import BadInputError
from eopipe.scenes.item import datetime_text
from eopipe.tiles.store import CHIP_SET, Tiles

SEASONS = ((12, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
# Edge in pixels of what is read at once; pixels around a pixel that are its texture.
WINDOW, REACH = 512, 2
# Of the mean square; a variance below is an error of rounding.
LEAST_VARIANCE = 1e-13


class PixelFeatures:
    """Features of pixels of the stores that a map was made from.

    The first third are bands, or seasonal medians of several scenes; the others are their means and their standard
    deviations over the valid pixels of 5 x 5, of a packed chip over those that it has. NaN is where none is valid.
    """

    def __init__(self, stores: Sequence[Tiles]) -> None:
        """Prepare to read some stores, in which positions mean the same."""
        self.stores = stores
        self.slot = int((stores[0].attributes.get(CHIP_SET) or {"slot": 0})["slot"])

    def of(self, rows: AnyArray, cols: AnyArray) -> FloatArray:
        """Features (pixel, feature), in the order of the pixels."""
        parts = [*self.by_window(rows, cols)]
        features = np.empty((len(rows), parts[0][1].shape[1] if parts else 0), np.float32)
        for index, values in parts:
            features[index] = values
        return features

    def by_window(self, rows: AnyArray, cols: AnyArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """Index (n,) and features (n, feature) of the pixels of each window that has any."""
        (height, width), slot = self.stores[0].shape, self.slot
        edge, margin, step = (max(WINDOW // slot, 1) * slot, 0, slot) if slot else (WINDOW, REACH, 1)
        number = rows // edge * (width // edge + 1) + cols // edge
        order = np.argsort(number, kind="stable")
        for index in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
            if len(index):
                # Around the pixels, to whole slots of packed chips.
                ends = ((int(places[index].min()), int(places[index].max()) + 1) for places in (rows, cols))
                (top, bottom), (left, right) = ((a // step * step, -(-b // step) * step) for a, b in ends)
                y = slice(max(top - margin, 0), min(bottom + margin, height))
                x = slice(max(left - margin, 0), min(right + margin, width))
                places = rows[index] - y.start, cols[index] - x.start
                yield index, _with_texture(self._image(y, x), slot, *places)

    def _image(self, y: slice, x: slice) -> FloatArray:
        """Bands, or medians of each season of several scenes (channel, y, x); NaN where none is valid."""
        if len(self.stores) == 1:
            return _bands(self.stores[0], y, x)
        starts, stops = self._bounds
        is_reached = ((starts < (y.stop, x.stop)) & (stops > (y.start, x.start))).all(1)
        reaching = np.unique(self._store_of_bounds[is_reached])
        chosen = [reaching[self._season_of_store[reaching] == season] for season in self._seasons]
        empty = np.full((len(self.stores[0].names), y.stop - y.start, x.stop - x.start), np.nan, np.float32)
        return np.concatenate(
            [_median([_bands(self.stores[n], y, x) for n in numbers]) if len(numbers) else empty for numbers in chosen]
        )

    @cached_property
    def _bounds(self) -> tuple[IntArray, IntArray]:
        """First row and column (n, 2) of the windows of all stores, and those after the last."""
        windows = [window for store in self.stores for window in store.windows]
        starts, stops = ([[getattr(axis, end) for axis in window] for window in windows] for end in ("start", "stop"))
        return np.array(starts), np.array(stops)

    @cached_property
    def _store_of_bounds(self) -> IntArray:
        return np.repeat(np.arange(len(self.stores)), [len(store.windows) for store in self.stores])

    @cached_property
    def _season_of_store(self) -> IntArray:
        months = [_month(store) for store in self.stores]
        return np.array([next(n for n, season in enumerate(SEASONS) if month in season) for month in months])

    @cached_property
    def _seasons(self) -> list[int]:
        seasons: list[int] = np.unique(self._season_of_store).tolist()
        return seasons


def _with_texture(image: FloatArray, slot: int, rows: AnyArray, cols: AnyArray) -> FloatArray:
    """Pixels of an image, of their means and of their deviations (pixel, feature); slots are apart, 0 for none."""
    channels, height, width = image.shape
    down, across = (height // slot, width // slot) if slot else (1, 1)
    blocks = image.reshape(channels, down, height // down, across, width // across)
    is_valid = np.isfinite(blocks)
    values = np.where(is_valid, blocks, 0).astype(np.float64)
    sums = (_box(_box(part, 2), 4).reshape(image.shape)[:, rows, cols] for part in (is_valid, values, values**2))
    count, total, squares = sums
    mean, square = (
        np.divide(part, count, out=np.full(part.shape, np.nan), where=count > 0) for part in (total, squares)
    )
    variance = square - mean**2
    deviation = np.sqrt(np.where(variance < LEAST_VARIANCE * square, 0, variance))
    return np.concatenate([image[:, rows, cols], mean, deviation]).T.astype(np.float32)


def _box(values: AnyArray, axis: int) -> Float64Array:
    """Sums over a pixel and its `REACH` neighbours to both sides along an axis, in one order for any window."""
    line = np.moveaxis(values, axis, 0).astype(np.float64)
    total = line.copy()
    for shift in range(1, REACH + 1):
        total[shift:] += line[:-shift]
        total[:-shift] += line[shift:]
    return np.moveaxis(total, 0, axis)


def _month(store: Tiles) -> int:
    text = datetime_text(store.attributes)
    if text is None:
        raise BadInputError(f"{store.path} has no datetime, so its season is not known; run preprocess again")
    return int(text[5:7])


def _bands(store: Tiles, y: slice, x: slice) -> FloatArray:
    return np.where(store.valid(y, x), store.physical(store.names, y, x), np.float32(np.nan))


def _median(images: list[FloatArray]) -> FloatArray:
    stack = np.sort(images, axis=0)
    # NaN sorts last: the median of the valid values is at the middle of their count.
    count = np.isfinite(stack).sum(0)
    low, high = (np.take_along_axis(stack, np.maximum(i, 0)[None], 0)[0] for i in ((count - 1) // 2, count // 2))
    return np.where(count > 0, (low + high) / 2, np.nan).astype(np.float32)
