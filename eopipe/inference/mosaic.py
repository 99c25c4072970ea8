"""Predictions of a scene or a mosaic, window by window in bounded memory."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import AnyArray, FloatArray, IntArray
from eopipe.inference.predictor import WindowPredictor, check_finite, read_padded
from eopipe.models.tasks import CHIPWISE
from eopipe.tiles.grid import PixelWindow

if TYPE_CHECKING:
    from eopipe.models.model_folder import TrainedModel

WindowResult = tuple[slice, slice, FloatArray, IntArray]


def probabilities(predictor: WindowPredictor, classes: int) -> Iterator[WindowResult]:
    """For each window: rows, columns, mean class probabilities over valid scenes (class, y, x), and scene count."""

    def of_window(window: PixelWindow) -> WindowResult:
        y, x = window
        total = np.zeros((classes, y.stop - y.start, x.stop - x.start), np.float64)
        scene_count = np.zeros(total.shape[1:], np.int64)
        for probability, valid in predictor.predictions(y, x):
            # A model may have no finite output for the zeros of invalid pixels.
            total += np.where(valid, probability, 0)
            scene_count += valid
        return y, x, (total / np.maximum(scene_count, 1)).astype(np.float32), scene_count

    return predictor.of_windows(of_window)


def values(predictor: WindowPredictor) -> Iterator[WindowResult]:
    """For each window: rows, columns, mean and standard deviation of the value over valid scenes, and scene count.

    Mean and squares are updated scene by scene (Welford 1962, doi:10.1080/00401706.1962.10490022).
    """

    def of_window(window: PixelWindow) -> WindowResult:
        y, x = window
        mean = np.zeros((y.stop - y.start, x.stop - x.start), np.float64)
        squares, scene_count = np.zeros_like(mean), np.zeros(mean.shape, np.int64)
        for (value, *_), valid in predictor.predictions(y, x):
            scene_count += valid
            delta = np.where(valid, value - mean, 0)
            mean += delta / np.maximum(scene_count, 1)
            squares += delta * np.where(valid, value - mean, 0)
        delta = np.sqrt(squares / np.maximum(scene_count, 1))
        return y, x, np.stack([mean, delta]).astype(np.float32), scene_count

    return predictor.of_windows(of_window)


def cells(predictor: WindowPredictor, classes: int, chip: int) -> Iterator[WindowResult]:
    """For each window: rows, columns, class probabilities (class, y, x), constant in each cell of `chip` pixels.

    Each cell is a chip that the model classifies by itself, so there are no seams except between cells. Scenes are
    weighted by their valid pixels in the cell; at the border a cell may extend beyond the grid. `predictor.edge` must
    be a multiple of `chip`.
    """

    def of_window(window: PixelWindow) -> WindowResult:
        y, x = window
        rows, columns = (-(-(part.stop - part.start) // chip) for part in (y, x))
        total, scene_count = np.zeros((rows * columns, classes), np.float64), np.zeros(rows * columns, np.int64)
        for store in predictor.stores:
            extent = slice(y.start, y.start + rows * chip), slice(x.start, x.start + columns * chip)
            image, valid = read_padded(store, predictor.bands, predictor.normalise, *extent)
            weight = _chips(valid[None], chip).sum((1, 2, 3))
            if valid_cells := np.flatnonzero(weight).tolist():
                check_finite(image, valid, f"scene {store.scene}", (y, x))
                output = predictor.predict_images(_chips(image, chip)[valid_cells])[:, :, 0, 0]
                check_finite(output.T, np.ones(len(output), bool), f"scene {store.scene}", (y, x), by_model=True)
                total[valid_cells] += output * weight[valid_cells, None]
                scene_count += weight
        probability = (total / np.maximum(scene_count, 1)[:, None]).astype(np.float32).T.reshape(classes, rows, columns)
        crop = np.s_[..., : y.stop - y.start, : x.stop - x.start]
        return y, x, _expand(probability, chip)[crop], _expand(scene_count.reshape(rows, columns), chip)[crop]

    return predictor.of_windows(of_window)


def _chips(image: AnyArray, chip: int) -> AnyArray:
    """Reshape (band, y, x) of whole cells to (cell, band, chip, chip), row by row."""
    bands, height, width = image.shape
    parts = image.reshape(bands, height // chip, chip, width // chip, chip).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(parts.reshape(-1, bands, chip, chip))


def _expand(numbers: AnyArray, chip: int) -> AnyArray:
    return numbers.repeat(chip, -2).repeat(chip, -1)


def task_predictor(predictor: WindowPredictor, trained: "TrainedModel") -> WindowPredictor:
    """The predictor with windows of whole `cells` for a chip classifier."""
    if trained.task not in CHIPWISE:
        return predictor
    return replace(predictor, edge=max(predictor.edge // trained.chip, 1) * trained.chip)


def task_predictions(predictor: WindowPredictor, trained: "TrainedModel") -> Iterator[WindowResult]:
    """The `values` of a regression, else the `task_probabilities`; of a `task_predictor`."""
    return values(predictor) if trained.task == "regression" else task_probabilities(predictor, trained)


def task_probabilities(predictor: WindowPredictor, trained: "TrainedModel") -> Iterator[WindowResult]:
    """The `probabilities` of pixels, or of the `cells` of a chip classifier."""
    if trained.task not in CHIPWISE:
        return probabilities(predictor, len(trained.classes))
    return cells(task_predictor(predictor, trained), len(trained.classes), trained.chip)
