"""What a model sees where there are no data: the nearest pixel that has some, in training as in prediction."""

from collections.abc import Callable

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, IndexArray

# How invalid pixels are filled, by the name in a model's item; models from before the second one name none.
ZERO, NEAREST = "zero", "nearest"
Fill = Callable[[AnyArray, BoolArray, int | None], None]


def fill_nearest(image: AnyArray, valid: BoolArray, reach: int | None = None) -> None:
    """Give each invalid pixel of an image (band, y, x) the values of the nearest valid one (mask y, x), in place.

    Distances are the larger one of rows and columns; among equals it is the pixel above, then the one on the left.
    Pixels with no valid one within `reach` pixels (None: in the image) stay as they are. Where all valid pixels within
    `reach` of an invalid one are in the image its values depend on its place alone, not on where the image ends.
    """
    if reach == 0 or valid.all() or not valid.any():
        return
    rows, columns, source_rows, source_columns = nearest_valid(valid, reach)
    for band in image:
        band[rows, columns] = band[source_rows, source_columns]


def nearest_valid(valid: BoolArray, reach: int | None) -> tuple[IndexArray, IndexArray, IndexArray, IndexArray]:
    """Rows and columns of the invalid pixels of a mask (y, x) that are filled, then of the pixels that they take.

    All pixels that are nearer than the nearest valid one are invalid. So that one is in the top row of the square of
    this distance, or else in its left and right columns, or else in its bottom row.
    """
    from scipy.ndimage import distance_transform_cdt

    height, width = valid.shape
    distance = distance_transform_cdt(~valid, "chessboard")
    rows, columns = np.nonzero(distance if reach is None else (distance > 0) & (distance <= reach))
    radius = distance[rows, columns].astype(np.intp)
    # The next valid column from a pixel on in its row, and the next valid row in its column; outside of the mask none.
    none = height + width
    y, x = np.arange(height)[:, None], np.arange(width)[None]
    column_from = np.full((height + 1, width), 2 * none, np.int32)
    column_from[:height] = np.minimum.accumulate(np.where(valid, x, 2 * none)[:, ::-1], 1)[:, ::-1]
    row_from = np.full((height, width + 1), 2 * none, np.int32)
    row_from[:, :width] = np.minimum.accumulate(np.where(valid, y, 2 * none)[::-1], 0)[::-1]
    left, right = columns - radius, columns + radius
    first, beyond_left = np.maximum(left, 0), np.where(left < 0, width, left)
    from_row = np.maximum(rows - radius, 0)
    on_left, on_right = row_from[from_row, beyond_left], row_from[from_row, np.minimum(right, width)]
    beside = np.minimum(on_left, on_right)
    above = column_from[np.where(rows < radius, height, rows - radius), first]
    below = column_from[np.minimum(rows + radius, height), first]
    # The two columns begin in the top row, where the corner on the left is that row's first.
    choices = [above <= right, beside < rows + radius]
    source_rows = np.select(choices, [rows - radius, beside], rows + radius)
    source_columns = np.select(choices, [above, np.where(on_left <= on_right, left, right)], below)
    return rows, columns, source_rows, source_columns


def keep_zeros(image: AnyArray, valid: BoolArray, reach: int | None = None) -> None:
    """Leave the image as it is: the normalisation has put zeros where pixels are not valid."""


FILLS: dict[str, Fill] = {ZERO: keep_zeros, NEAREST: fill_nearest}
