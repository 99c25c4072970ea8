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
    copy_pixels(image, *nearest_valid(valid, reach))


def copy_pixels(image: AnyArray, rows_columns: IndexArray, of: IndexArray) -> None:
    """Give pixels at rows and columns (2, n) of an image (band, y, x) the values of others, in place."""
    for band in image:
        band[*rows_columns] = band[*of]


def nearest_valid(valid: BoolArray, reach: int | None, margin: int = 0) -> tuple[IndexArray, IndexArray]:
    """Rows and columns (2, n) of the invalid pixels of a mask (y, x) that are filled, and of the pixels that they take.

    Those within `margin` pixels of the edges of the mask are not filled.
    All pixels that are nearer than the nearest valid one are invalid. So that one is in the top row of the square of
    this distance, or else in its left and right columns, or else in its bottom row.
    """
    from scipy.ndimage import distance_transform_cdt

    height, width = valid.shape
    distance = distance_transform_cdt(~valid, "chessboard")
    inner = distance[margin : height - margin, margin : width - margin]
    rows, columns = (axis + margin for axis in np.nonzero(inner if reach is None else (inner > 0) & (inner <= reach)))
    radius = distance[rows, columns].astype(np.intp)
    # The next valid column from a pixel on in its row, and the next valid row in its column; outside of the mask none.
    none = height + width
    y, x = np.arange(height, dtype=np.int32)[:, None], np.arange(width, dtype=np.int32)[None]
    column_from = np.full((height + 1, width), 2 * none, np.int32)
    column_from[:height] = np.minimum.accumulate(np.where(valid, x, np.int32(2 * none))[:, ::-1], 1)[:, ::-1]
    row_from = np.full((height, width + 1), 2 * none, np.int32)
    row_from[:, :width] = np.minimum.accumulate(np.where(valid, y, np.int32(2 * none))[::-1], 0)[::-1]
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
    return np.stack([rows, columns]), np.stack([source_rows, source_columns])


def keep_zeros(image: AnyArray, valid: BoolArray, reach: int | None = None) -> None:
    """Leave the image as it is: the normalisation has put zeros where pixels are not valid."""


FILLS: dict[str, Fill] = {ZERO: keep_zeros, NEAREST: fill_nearest}
