"""Predictions of a scene or a mosaic, window by window in bounded memory."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, FloatArray, IntArray
from eopipe.inference.images import read_normalised, read_valid
from eopipe.inference.predictor import WindowPredictor, check_finite
from eopipe.tasks import TASKS
from eopipe.tiles.grid import PixelWindow

if TYPE_CHECKING:
    from eopipe.models.model_folder import TrainedModel

WindowResult = tuple[slice, slice, FloatArray, IntArray]


def probabilities(predictor: WindowPredictor, classes: int) -> Iterator[WindowResult]:
    """For each window: rows, columns, mean class probabilities over valid scenes (class, y, x), and scene count.

    With members, their standard deviation (class, y, x) follows (`with_spread`).
    """

    def of_window(window: PixelWindow) -> WindowResult:
        y, x = window
        channels = classes * (1 + predictor.members)
        total = np.zeros((channels, y.stop - y.start, x.stop - x.start), np.float64)
        scene_count = np.zeros(total.shape[1:], np.int64)
        for probability, valid in predictor.predictions(y, x):
            # A model may have no finite output where pixels are not valid.
            total += np.where(valid, probability, 0)
            scene_count += valid
        return y, x, with_spread(total / np.maximum(scene_count, 1), predictor.members), scene_count

    return predictor.of_windows(of_window)


def values(predictor: WindowPredictor) -> Iterator[WindowResult]:
    """For each window: rows, columns, mean and standard deviation of the value over valid scenes, and scene count.

    Mean and squares are updated scene by scene (Welford 1962, doi:10.1080/00401706.1962.10490022). If the predictor
    has members, the standard deviation among their means over the scenes follows.
    """

    def of_window(window: PixelWindow) -> WindowResult:
        y, x = window
        mean = np.zeros((1 + predictor.members, y.stop - y.start, x.stop - x.start), np.float64)
        squares, scene_count = np.zeros_like(mean[0]), np.zeros(mean.shape[1:], np.int64)
        for output, valid in predictor.predictions(y, x):
            value = output[: len(mean)]
            scene_count += valid
            delta = np.where(valid, value - mean, 0)
            mean += delta / np.maximum(scene_count, 1)
            squares += delta[0] * np.where(valid, value[0] - mean[0], 0)
        deviation = np.sqrt(squares / np.maximum(scene_count, 1)).astype(np.float32)
        (value_mean, *spread) = with_spread(mean, predictor.members)
        return y, x, np.stack([value_mean, deviation, *spread]), scene_count

    return predictor.of_windows(of_window)


def cells(predictor: WindowPredictor, classes: int, chip: int) -> Iterator[WindowResult]:
    """For each window: rows, columns, class probabilities (class, y, x), constant in each cell of `chip` pixels.

    Each cell is a chip that the model classifies by itself, so there are no seams except between cells. Scenes are
    weighted by their valid pixels in the cell; at the border a cell may extend beyond the grid. `predictor.edge` must
    be a multiple of `chip`. With members, their standard deviation (class, y, x) follows (`with_spread`).
    """

    def of_window(window: PixelWindow) -> WindowResult:
        y, x = window
        rows, columns = (-(-(part.stop - part.start) // chip) for part in (y, x))
        channels, scene_count = classes * (1 + predictor.members), np.zeros(rows * columns, np.int64)
        total = np.zeros((rows * columns, channels), np.float64)
        for store in predictor.stores:
            extent = slice(y.start, y.start + rows * chip), slice(x.start, x.start + columns * chip)
            valid = read_valid(store, *extent)
            weight = _chips(valid[None], chip).sum((1, 2, 3))
            if valid_cells := np.flatnonzero(weight).tolist():
                image = read_normalised(store, predictor.bands, predictor.normalise, extent, valid)
                check_finite(image, valid, f"scene {store.scene}", (y, x))
                images = _chips(image, chip)[valid_cells]
                for pixels, is_valid in zip(images, _chips(valid[None], chip)[valid_cells, 0], strict=True):
                    predictor.fill(pixels, is_valid, None)
                output = predictor.predict_images(images)[:, :, 0, 0]
                check_finite(output.T, np.ones(len(output), bool), f"scene {store.scene}", (y, x), by_model=True)
                total[valid_cells] += output * weight[valid_cells, None]
                scene_count += weight
        mean = with_spread((total / np.maximum(scene_count, 1)[:, None]).T, predictor.members)
        probability = mean.reshape(-1, rows, columns)
        crop = np.s_[..., : y.stop - y.start, : x.stop - x.start]
        return y, x, _expand(probability, chip)[crop], _expand(scene_count.reshape(rows, columns), chip)[crop]

    return predictor.of_windows(of_window)


def with_spread(mean: Float64Array, members: int) -> FloatArray:
    """The mean over the scenes (channel, ...) of a model, and the deviation among its members' means, which follow it.

    The predictions of a member are averaged over symmetries, windows and scenes before they are compared with
    other members, so the standard deviation (population) is among the maps which the members make one by one.
    """
    if not members:
        return mean.astype(np.float32)
    of_model, *of_members = np.split(mean, 1 + members)
    return np.concatenate([of_model, np.std(of_members, axis=0)]).astype(np.float32)


def _chips(image: AnyArray, chip: int) -> AnyArray:
    """Reshape (band, y, x) of whole cells to (cell, band, chip, chip), row by row."""
    bands, height, width = image.shape
    parts = image.reshape(bands, height // chip, chip, width // chip, chip).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(parts.reshape(-1, bands, chip, chip))


def _expand(numbers: AnyArray, chip: int) -> AnyArray:
    return numbers.repeat(chip, -2).repeat(chip, -1)


def task_predictor(predictor: WindowPredictor, trained: "TrainedModel") -> WindowPredictor:
    """The predictor with windows of whole `cells` for a chip classifier."""
    cell = TASKS[trained.task].cell(trained.chip)
    return replace(predictor, edge=max(predictor.edge // cell, 1) * cell)


def task_predictions(predictor: WindowPredictor, trained: "TrainedModel") -> Iterator[WindowResult]:
    """The `values` of a regression, the `probabilities` of pixels, or of `cells`, by a `task_predictor`."""
    task, classes = TASKS[trained.task], len(trained.classes)
    if not task.has_classes:
        return values(predictor)
    return cells(predictor, classes, trained.chip) if task.is_of_chips else probabilities(predictor, classes)
