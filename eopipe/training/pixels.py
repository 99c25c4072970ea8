"""The training of a model of single pixels: one fit to labelled pixels of the training chips, without steps.

Pixels see what they see on a map: their window is read with its halo, and filled where it has no data.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray
from eopipe.chips.chip_blocks import covered_blocks
from eopipe.chips.chips import unit_of
from eopipe.chips.polygons import splits_of_pixels
from eopipe.chips.splits import SPLITS
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.predictor import PredictorSettings, WindowPredictor, open_predictor
from eopipe.models import Architecture
from eopipe.models.input_check import ORDINARY, TileProperties
from eopipe.models.model_folder import TrainedModel, write_model_folder
from eopipe.models.pixel_models import fit, outputs
from eopipe.models.pixel_network import PixelModel
from eopipe.publish import publish
from eopipe.tasks import TASKS
from eopipe.tasks.classes import ClassTables
from eopipe.tasks.task import Compared
from eopipe.telemetry.journal import METRICS
from eopipe.tiles.grid import PixelWindow, parts_of
from eopipe.tiles.store import CHIP_SET, NO_LABEL
from eopipe.training.data import TrainingData
from eopipe.training.validation import class_scores
from eopipe.training_job import Settings

log = logging.getLogger("eopipe")
# Edge in pixels of the windows that are read at a time.
WINDOW = 128


@dataclass(frozen=True)
class LabelledPixels:
    """The labelled pixels (y, x) of a split in a window of a store, which is at this place of the training data."""

    number: int
    window: PixelWindow
    mask: BoolArray
    truth: AnyArray


def train_pixel_model(data: TrainingData, settings: Settings, model: Path) -> None:
    """Fit a model, validate it and publish its folder; the same data and settings give the same bytes.

    Raises UsageError for tasks of chips, and for weights to start from, BadInputError where there is no label.
    """
    if conflicts := settings.conflicts():
        raise UsageError("; ".join(conflicts))
    if data.inputs.init:
        raise UsageError(f"train.init has weights to start from, and {settings.architecture} is fitted; remove it")
    names = data.labels.names
    architecture = Architecture.of(vars(settings) | {"model_files": ()}, data.bands, len(names))
    settings = replace(settings, arguments=architecture.arguments)
    target, weights = data.computed_from_labels(settings)
    ranges = {name: band.quantiles(ORDINARY) for name, band in data.statistics.bands.items()}
    tiles = TileProperties.of([image for image, _ in data.pairs], ranges)
    described = settings.task, target, unit_of(data.labels), tiles
    trained = TrainedModel(architecture, data.bands, names, data.normaliser(settings), data.split.chip, *described)
    features, truth, total = drawn_pixels(data, trained, settings)
    log.info("event=fit model=%s pixels=%d of=%d features=%d", architecture.name, len(truth), total, features.shape[1])
    # Values have a mean and a standard deviation, classes have neither.
    scaled, classes = ((truth - target[0]) / target[1], 0) if target else (truth, len(names))
    threads = settings.threads * settings.processes
    arrays = fit(settings.architecture, features, scaled, classes, settings.seed, np.array(weights), threads)
    loss = _loss(outputs(settings.architecture, arrays, features), scaled, classes)
    deciding = settings.deciding() | {"weights": weights, "target": target, "labelled": total}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    with publish(model, folder=True) as draft:
        (draft / METRICS).write_bytes(b"")
        write_model_folder(draft, trained, tensors, [], deciding, extent=data.extent)
        val = validate(data, trained, draft)
        # As other trainings have it; there is one step.
        history = [{"step": 1, "loss": round(loss, 6), "learning_rate": 0.0, "val": val}]
        write_model_folder(draft, trained, tensors, history, deciding, extent=data.extent)
    scores = "".join(f" val_{name}={value}" for name, value in (val or {}).items())
    log.info("event=validation step=1 of=1 loss=%s%s", round(loss, 6), scores)


def labelled_pixels(data: TrainingData, name: str) -> Iterator[LabelledPixels]:
    """Windows of all stores that have labelled pixels of a split; each pixel of a store is in one of them."""
    samples, polygons = data.split.samples[name], data.split.polygons
    for number, (image, label) in enumerate(data.pairs):
        slot = int((image.attributes.get(CHIP_SET) or {"slot": 0})["slot"])
        corners = samples[samples[:, 0] == number, 1:]
        for block, covered in covered_blocks(corners, data.split.chip, slot or 1):
            for y, x in parts_of(block, slot or WINDOW):
                rows, columns = (slice(a.start - b.start, a.stop - b.start) for a, b in zip((y, x), block, strict=True))
                mask = covered[rows, columns] & label.valid(y, x) & image.valid(y, x)
                if mask.any() and polygons:
                    mask &= splits_of_pixels(label, polygons, y, x) == SPLITS.index(name)
                truth = label.read("label", y, x)
                mask &= np.isfinite(truth) if truth.dtype.kind == "f" else truth != NO_LABEL
                if mask.any():
                    yield LabelledPixels(number, (y, x), mask, truth)


def drawn_pixels(data: TrainingData, trained: TrainedModel, settings: Settings) -> tuple[FloatArray, AnyArray, int]:
    """Features (n, feature) and truth (n,) of training pixels, at most `max_pixels` of them, and how many there are.

    Of more they are drawn at random. Raises BadInputError where there is none.
    """
    counts = [int(np.count_nonzero(pixels.mask)) for pixels in labelled_pixels(data, "train")]
    total, ends = sum(counts), np.cumsum([0, *counts])
    if not total:
        raise BadInputError("no training chip has a label, so there is nothing to learn; check labels and masks")
    module = trained.architecture.build()
    if not isinstance(module, PixelModel):
        raise TypeError(f"{trained.architecture.name} does not have features of pixels")

    @torch.inference_mode()
    def features_of(images: FloatArray) -> FloatArray:
        features: FloatArray = module.of_pixels(torch.from_numpy(images)).numpy()
        return features

    predictors = _predictors(data, trained, features_of)
    generator = np.random.Generator(np.random.Philox(settings.seed))
    most = min(total, settings.max_pixels)
    drawn: IntArray = np.sort(generator.choice(total, most, replace=False, shuffle=False))
    parts: list[tuple[FloatArray, AnyArray]] = []
    for pixels, start, stop in zip(labelled_pixels(data, "train"), ends, ends[1:], strict=False):
        chosen = drawn[np.searchsorted(drawn, start) : np.searchsorted(drawn, stop)] - start
        if len(chosen):
            rows, columns = (axis[chosen] for axis in np.nonzero(pixels.mask))
            image = _output(predictors[pixels.number], pixels.window)
            parts.append((image[:, rows, columns].T, pixels.truth[rows, columns]))
    features, truth = map(np.concatenate, zip(*parts, strict=True))
    return features, truth, total


def validate(data: TrainingData, trained: TrainedModel, model: Path) -> dict[str, Any] | None:
    """The scores of a model on the labelled pixels of the validation chips, as other trainings have them; or None."""
    predictors, total = _predictors(data, trained, model), None
    tables = TASKS[trained.task].tables(trained.classes)
    for pixels in labelled_pixels(data, "val"):
        predicted = _output(predictors[pixels.number], pixels.window)[:, pixels.mask]
        answers = predicted[0] if trained.target else predicted.argmax(0)
        samples = Compared(pixels.truth[pixels.mask], answers, *trained.target[:1])
        of_window = tables.by_unit(ONE_UNIT, np.zeros(len(answers), np.int64), samples)
        total = of_window if total is None else total + of_window
    if total is None:
        return None
    return class_scores(tables, total[0]) if isinstance(tables, ClassTables) else tables.document(total[0])


class _OneUnit:
    """All samples are counted together."""

    def count_pairs(self, index: IntArray, pair: IntArray, pairs: int) -> IntArray:  # noqa: ARG002 - of one unit
        return np.bincount(pair, minlength=pairs)[None]

    def sum_parts(self, index: IntArray, parts: Any) -> Any:  # noqa: ARG002 - of one unit
        return parts.sum(1)[None]


ONE_UNIT = _OneUnit()


def _predictors(data: TrainingData, trained: TrainedModel, predict: Any) -> list[WindowPredictor]:
    """The predictor of each store, of a model folder or of a function from images."""
    settings = PredictorSettings(WINDOW, None, "cpu", 1)
    first = open_predictor(trained, predict, [data.pairs[0][0]], settings)
    return [replace(first, stores=[image]) for image, _ in data.pairs]


def _output(predictor: WindowPredictor, window: PixelWindow) -> FloatArray:
    """What a predictor gives for a window (channel, y, x) with a valid pixel."""
    ((output, _),) = predictor.predictions(*window)
    return output


def _loss(predicted: AnyArray, truth: AnyArray, classes: int) -> float:
    """The mean cross-entropy of the training pixels, or their mean squared error in standard deviations."""
    if not classes:
        return float(np.mean((predicted[:, 0] - truth) ** 2))
    shifted = predicted - predicted.max(1, keepdims=True)
    log_shares = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-log_shares[np.arange(len(truth)), truth.astype(np.int64)].mean())
