"""What the baselines see of a pixel: bands or seasonal medians, with their means and deviations around it."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from eopipe.arrays import AnyArray, FloatArray, IntArray
from eopipe.chips.chips import fill_nearest
from eopipe.errors import BadInputError
from eopipe.models.pixel_models import PARTS, REACH, texture
from eopipe.scenes.item import datetime_text
from eopipe.tiles.store import CHIP_SET, Tiles
from eopipe.train_options import TEXTURE

SEASONS = ((12, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
# Edge in pixels of what is read at once.
WINDOW = 512


class PixelFeatures:
    """Features of pixels of the stores that a map was made from.

    The first third are bands, or seasonal medians of several scenes; the others are their means and their standard
    deviations in 5 x 5 pixels. As a model sees them, pixels that are not valid have the values of the nearest valid
    one, of a packed chip of that chip. NaN is where none is near.
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
        edge, margin, step = (max(WINDOW // slot, 1) * slot, 0, slot) if slot else (WINDOW, 2 * REACH, 1)
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
                yield index, self._with_texture(self._image(y, x), *places)

    def _with_texture(self, image: FloatArray, rows: AnyArray, cols: AnyArray) -> FloatArray:
        """Pixels of a window (channel, y, x), of their means and of their deviations (pixel, feature)."""
        if not self.slot:
            # As maps are read: filled from what is within reach, also beyond the raster.
            beyond = np.pad(image, ((0, 0), (REACH, REACH), (REACH, REACH)), constant_values=np.nan)
            return self._features(beyond, rows, cols, REACH)
        features = np.empty((len(rows), PARTS[TEXTURE] * len(image)), np.float32)
        number = rows // self.slot * (image.shape[2] // self.slot) + cols // self.slot
        order = np.argsort(number, kind="stable")
        for index in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
            y, x = int(rows[index[0]]) // self.slot * self.slot, int(cols[index[0]]) // self.slot * self.slot
            chip = image[:, y : y + self.slot, x : x + self.slot]
            features[index] = self._features(chip, rows[index] - y, cols[index] - x, None)
        return features

    def _features(self, image: FloatArray, rows: AnyArray, cols: AnyArray, reach: int | None) -> FloatArray:
        """The same of an image that is filled from valid pixels within reach, or of a chip from all that it has."""
        image = image.copy()
        for of_season in np.split(image, 1 if len(self.stores) == 1 else len(self._seasons)):
            fill_nearest(of_season, np.asarray(np.isfinite(of_season).all(0)), reach)
        around = np.pad(image, ((0, 0), (REACH, REACH), (REACH, REACH)), "edge") if reach is None else image
        parts = [around[:, REACH:-REACH, REACH:-REACH], *texture(around.astype(np.float64))]
        return np.concatenate([part[:, rows, cols] for part in parts]).T.astype(np.float32)

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
