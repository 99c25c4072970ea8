"""The training of a model of single pixels: one fit to labelled pixels of the training chips, without steps.

Pixels see what they see on a map: their window is read with its halo, and filled where it has no data.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray
from eopipe.chips.map_places import SplitArea
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.predictor import Predict, PredictorSettings, WindowPredictor, open_predictor
from eopipe.models import Architecture
from eopipe.models.model_folder import TrainedModel, write_model_folder
from eopipe.models.pixel_models import TREES, FitOptions, fit, outputs
from eopipe.publish import publish
from eopipe.tasks import TASKS
from eopipe.tasks.tables import Compared
from eopipe.telemetry.journal import METRICS
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.store import CHIP_SET
from eopipe.train_options import TrainOptions
from eopipe.training.data import TrainingData
from eopipe.training_job import Settings

if TYPE_CHECKING:
    from eopipe.models.networks import PixelModel

log = logging.getLogger("eopipe")
# Edge in pixels of the windows that are read at a time.
WINDOW = 128


class FittedModel(NamedTuple):
    """A model of pixels with its tensors, its loss on the training pixels, and how many of these there are."""

    trained: TrainedModel
    tensors: dict[str, Tensor]
    loss: float
    labelled: int


def train_pixel_model(data: TrainingData, settings: Settings, model: Path) -> None:
    """Fit a model, validate it and publish its folder; the same data and settings give the same bytes.

    Raises UsageError for tasks of chips, and for weights to start from, BadInputError where there is no label.
    """
    refused = f"train.init has weights to start from, and {settings.architecture} is fitted; remove it"
    if conflicts := [*settings.conflicts(), *([refused] if data.inputs.init else [])]:
        raise UsageError("; ".join(conflicts))
    target, weights = data.computed_from_labels(settings)
    fitted = fit_pixel_model(data, settings, target, weights)
    # As other trainings have it; there is one step.
    val = validate(data, fitted)
    history = [{"step": 1, "loss": round(fitted.loss, 6), "learning_rate": 0.0, "val": val}]
    settings = replace(settings, arguments=fitted.trained.architecture.arguments)
    deciding = settings.deciding() | {"weights": weights, "target": target, "labelled": fitted.labelled}
    with publish(model, folder=True) as draft:
        (draft / METRICS).write_bytes(b"")
        write_model_folder(draft, fitted.trained, fitted.tensors, history, deciding, extent=data.extent)
    scores = "".join(f" val_{name}={value}" for name, value in (val or {}).items())
    log.info("event=validation step=1 of=1 loss=%s%s", round(fitted.loss, 6), scores)


def fit_pixel_model(
    data: TrainingData, settings: Settings, target: tuple[float, ...], weights: tuple[float, ...], trees: int = TREES
) -> FittedModel:
    """Fit the model of pixels that is the architecture of the settings."""
    # It has no levels; what a network beside it has is not its own.
    values = vars(settings) | {"model_files": (), "width": TrainOptions.width, "depth": TrainOptions.depth}
    architecture = Architecture.of(values, data.bands, len(data.labels.names))
    trained = data.describe_model(architecture, settings, target)
    features, truth, total = drawn_pixels(data, trained, settings)
    log.info("event=fit model=%s pixels=%d of=%d features=%d", architecture.name, len(truth), total, features.shape[1])
    # Values have a mean and a standard deviation, classes have neither.
    scaled, classes = ((truth - target[0]) / target[1], 0) if target else (truth, len(trained.classes))
    options = FitOptions(settings.seed, np.array(weights), settings.threads * settings.processes, trees)
    arrays = fit(architecture.name, features, scaled, classes, options)
    answers, expected = torch.from_numpy(outputs(architecture.name, arrays, features)), torch.from_numpy(scaled)
    loss = cross_entropy(answers, expected.long()) if classes else mse_loss(answers[:, 0], expected)
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    return FittedModel(trained, tensors, float(loss), total)


class LabelledPixels(NamedTuple):
    """Labelled pixels (y, x) of a split in a window, their truth, and what reads the window of their store."""

    predictor: WindowPredictor
    window: PixelWindow
    mask: BoolArray
    truth: AnyArray

    def output(self) -> FloatArray:
        """What the predictor gives for them (n, channel)."""
        ((output, _),) = self.predictor.predictions(*self.window)
        return np.asarray(output[:, self.mask].T)


def labelled_pixels(data: TrainingData, trained: TrainedModel, predict: Predict, name: str) -> Iterator[LabelledPixels]:
    """Windows of all stores that have labelled pixels of a split; each pixel of a store is in one of them."""
    first = open_predictor(trained, predict, [data.pairs[0][0]], PredictorSettings(WINDOW, None, "cpu", 1))
    for number, (image, label) in enumerate(data.pairs):
        predictor, area = replace(first, stores=[image]), SplitArea.of(name, data.split, label, number)
        for (y, x), _ in area.boxes(predictor.windows(), predictor.edge if CHIP_SET in image.attributes else 1):
            truth, labelled = area.labelled(y, x)
            mask = labelled & image.valid(y, x)
            if mask.any():
                yield LabelledPixels(predictor, (y, x), mask, truth[mask])


def drawn_pixels(data: TrainingData, trained: TrainedModel, settings: Settings) -> tuple[FloatArray, AnyArray, int]:
    """Features (n, feature) and truth (n,) of training pixels, at most `max_pixels` of them, and how many there are.

    If there are more, they are drawn at random. Raises BadInputError where there is none.
    """
    module = cast("PixelModel", trained.architecture.build())

    def features_of(images: FloatArray) -> FloatArray:
        return np.asarray(module.of_pixels(torch.from_numpy(images)).numpy())

    counts = [len(pixels.truth) for pixels in labelled_pixels(data, trained, features_of, "train")]
    total, ends = sum(counts), np.cumsum([0, *counts])
    if not total:
        raise BadInputError("no training chip has a label, so there is nothing to learn; check labels and masks")
    generator = np.random.Generator(np.random.Philox(settings.seed))
    most = min(total, settings.max_pixels)
    drawn: IntArray = np.sort(generator.choice(total, most, replace=False, shuffle=False))
    parts: list[tuple[FloatArray, AnyArray]] = []
    all_pixels = labelled_pixels(data, trained, features_of, "train")
    for pixels, start, stop in zip(all_pixels, ends, ends[1:], strict=False):
        chosen = drawn[np.searchsorted(drawn, start) : np.searchsorted(drawn, stop)] - start
        if len(chosen):
            parts.append((pixels.output()[chosen], pixels.truth[chosen]))
    features, truth = map(np.concatenate, zip(*parts, strict=True))
    return features, truth, total


def validate(data: TrainingData, fitted: FittedModel) -> dict[str, Any] | None:
    """The scores of a model on the labelled pixels of the validation chips, as other trainings have them; or None."""
    trained, task, total = fitted.trained, TASKS[fitted.trained.task], None
    module = trained.architecture.build().requires_grad_(requires_grad=False)
    module.load_state_dict(fitted.tensors)

    def predict(images: FloatArray) -> FloatArray:
        outputs_NCHW = module(torch.from_numpy(images))
        return np.asarray(task.predictions(outputs_NCHW, trained.target).numpy())

    tables = task.tables(trained.classes)
    for pixels in labelled_pixels(data, trained, predict, "val"):
        output = pixels.output()
        predicted, offset = (output[:, 0], trained.target[0]) if trained.target else (output.argmax(1), 0.0)
        of_window = tables.of(Compared(pixels.truth, predicted, offset))
        total = of_window if total is None else total + of_window
    return None if total is None else task.validation_scores(tables, total)
