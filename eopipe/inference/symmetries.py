"""Mean predictions over symmetries of the square: of a window as it is, flipped and rotated, each transformed back."""

from collections.abc import Callable

import numpy as np

from eopipe.arrays import FloatArray
from eopipe.chips.chips import apply_symmetry
from eopipe.errors import UsageError

# Numbers for `apply_symmetry` in the order of the sum: none, also left to right, the four rotations, all.
SYMMETRIES = {1: (0,), 2: (0, 1), 4: (0, 5, 3, 6), 8: tuple(range(8))}
# The two quarter turns undo each other, any other symmetry undoes itself.
INVERSES = {5: 6, 6: 5}


def check_symmetries(count: int) -> None:
    """Raise UsageError for a number of symmetries that does not make a group."""
    if count not in SYMMETRIES:
        raise UsageError(f"symmetries is {count}; use 1 (none), 2 (flip), 4 (rotations) or 8 (rotations and flips)")


def mean_prediction(predict: Callable[[FloatArray], FloatArray], images: FloatArray, count: int) -> FloatArray:
    """Mean over symmetries of the predictions (N, channel, H, W), or (N, channel, 1, 1), of images (N, band, H, W).

    The sum is in float64 in the order of SYMMETRIES, the mean in float32; over one it is the prediction, bit by bit.
    A symmetry of the image changes the mean by that symmetry alone (test-time augmentation, Wang et al. 2019,
    doi:10.1016/j.neucom.2019.01.103).
    """
    if count == 1:
        return predict(images)
    total = predict(images).astype(np.float64)
    for symmetry in SYMMETRIES[count][1:]:
        output = predict(np.ascontiguousarray(apply_symmetry(images, symmetry)))
        # A model may have infinite outputs of both signs for the zeros of invalid pixels.
        with np.errstate(invalid="ignore"):
            total += apply_symmetry(output, INVERSES.get(symmetry, symmetry))
    return np.asarray(total / count, np.float32)
