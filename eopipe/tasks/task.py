"""What differs between tasks: the outputs of a model, the scores, and the tables that these follow from.

Every model returns maps (N, channel, H, W), and the task decides what they are. The logits of a chip are the mean over
its pixels (global average pooling, Lin et al. 2014, arXiv:1312.4400), so each built-in model fits each task.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, FloatArray, IntArray
from eopipe.errors import UsageError
from eopipe.tasks.tables import Tables
from eopipe.tiles.geotiff import MapFormat
from eopipe.tiles.store import NO_LABEL
from eopipe.train_options import PixelModelName, RankingScore, TaskName

if TYPE_CHECKING:
    from torch import Tensor

# The others need the maps of probabilities, or have no better end.
Measure = RankingScore | Literal["mean_average_precision", "bias"]
# From 0 to 1, from -1 to 1 (kappa), from 0 without an end, up to 1 (R²), and without ends.
Scale = Literal["share", "agreement", "error", "explained", "signed"]
ClassMeasure = Literal["iou", "precision", "recall", "f1"]
# Stored probabilities are multiples of 1/10000.
STEPS, NO_PROBABILITY = 10_000, 65_535
# A probability that underflowed to 0 would have no logarithm.
FLOOR = 1e-12
# The last band of the second file of a map, with probabilities or deviations, where the model is an ensemble.
SPREAD = "spread of members"
# Losses that take weights of classes, and the power of the inverse frequency of each kind of weights.
WEIGHTED_LOSSES = ("cross_entropy", "focal", "binary_cross_entropy", "binary_focal")
WEIGHT_POWERS = {"none": 0.0, "fourth_root": 0.25, "sqrt": 0.5, "balanced": 1.0}


@dataclass(frozen=True)
class NamedScore:
    """A score over all classes: its key in a metrics file, and its title in tables.

    Trials are ranked by the one `is_main`, unless by another that can rank; the verdict on a model compares those
    `in_verdict`. `has_unit`: it is in the unit of the labels; `hub` is its name in a model card of a hub. Its
    interval is computed on its `scale`.
    """

    key: Measure
    title: str
    is_main: bool = False
    in_verdict: bool = False
    is_lower_better: bool = False
    has_unit: bool = False
    hub: str = ""
    scale: Scale = "share"

    @property
    def name(self) -> str:
        """The title within a sentence.

        >>> NamedScore("f1_micro", "Micro F1").name, NamedScore("rmse", "RMSE").name
        ('micro F1', 'RMSE')
        """
        return self.title if self.title.isupper() else self.title[0].lower() + self.title[1:]

    def distance(self, value: float) -> float:
        """How far a score is from the perfect one."""
        return abs(value) if self.is_lower_better or self.scale == "signed" else 1 - value


class ScoreTexts(NamedTuple):
    """Sentences about scores, in which `{miou}` is a score as text.

    `scores` are those of one method; `model` and `other` say whose they are (`{}`), of another method by its `{name}`.
    `line` is about the map alone. `simple` names what predicts `{}` everywhere, which metrics have as `constant`.
    """

    scores: str
    model: str
    other: str
    line: str
    simple: str
    constant: str


class SimplestPrediction(NamedTuple):
    """What predicts the same for every sample: the value, and what metrics say of it and of the training labels."""

    value: Any
    described: Mapping[str, Any]
    labels: Mapping[str, Any] = MappingProxyType({})
    offset: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A task by its name in `train.task`.

    `is_of_chips`: a model has one output for each chip, and the cells of its maps have the size of a chip. The first of
    its `losses` is the default. `mlm` is its name in the MLM extension of STAC with the axes of the output, `hub` its
    name on the Hugging Face Hub, `deepness` in the plugin Deepness of QGIS, where they know it.
    """

    name: TaskName
    is_of_chips: bool
    losses: tuple[str, ...]
    mlm: tuple[str, tuple[str, ...]]
    hub: str = ""
    deepness: str = ""
    # Whether labels are classes, not values; and whether a chip may have several of them.
    has_classes: ClassVar[bool] = True
    has_label_sets: ClassVar[bool] = False
    scores: ClassVar[tuple[NamedScore, ...]]
    # What only this task reads of the options of `train`, and what only its models have.
    options: ClassVar[tuple[str, ...]] = ()
    model_fields: ClassVar[tuple[str, ...]] = ()
    history_scores: ClassVar[tuple[str, ...]]
    # The score of a class beside its precision and recall.
    class_score: ClassVar[ClassMeasure] = "iou"
    # The baseline that predicts the same everywhere: its key in a metrics file, and its name.
    simple_baseline: ClassVar[tuple[str, str]]
    # Why its maps have no calibration, where they have none.
    not_calibrated: ClassVar[str] = ""
    # What its scores mean, for the readers of a report, and sentences about them.
    explanation: ClassVar[str]
    texts: ClassVar[ScoreTexts]
    # What its models give.
    output: ClassVar[str] = "probabilities"
    # The names of the two rasters of a map: assets as a later search selects them.
    rasters: ClassVar[tuple[str, str]]

    @abstractmethod
    def tables(self, names: Sequence[str]) -> Tables:
        """The tables of samples with these names of classes."""

    @abstractmethod
    def predictions(self, outputs_NCHW: "Tensor", target: tuple[float, ...]) -> "Tensor":
        """Class probabilities of pixels (N, class, H, W) or of chips (N, class, 1, 1), or values (N, 1, H, W).

        Values are in the unit of the labels, whose mean and standard deviation are `target`.
        """

    @abstractmethod
    def mean_output(self, outputs_MNCHW: "Tensor") -> "Tensor":
        """The output (N, channel, H, W) of an ensemble for the outputs of its members."""

    @abstractmethod
    def simplest(self, truths: Iterator[AnyArray], names: Sequence[str]) -> SimplestPrediction:
        """The prediction that is the same everywhere and fits the labels of the training samples best."""

    def sample_labels(self, labels_NHW: "Tensor", classes: int, min_share: float) -> "Tensor":
        """The labels of the samples of a batch: as they are, or one class (N, 1, 1) or the labels (N, class) of chips.

        255, or NaN, where no pixel is labelled.
        """
        return labels_NHW

    @abstractmethod
    def decided(self, outputs: "Tensor", target: tuple[float, ...]) -> "Tensor":
        """The classes, labels or values of samples by the `sample_outputs`, in the form of the `sample_labels`."""

    def loss_weights(self, counts: Mapping[str, int], total: int, power: float) -> tuple[float, ...]:
        """The weight of each class in the loss, from the samples of each among all labelled ones; or none."""
        return ()

    def validation_scores(self, tables: Any, total: AnyArray) -> dict[str, Any]:
        """The scores of one of its tables (width,) that the history of a training has."""
        scores = tables.document(total)
        return {key: scores[key] for key in self.history_scores}

    def sample_outputs(self, outputs_NCHW: "Tensor", labels_NHW: "Tensor") -> "Tensor":
        """The outputs for the samples of a batch. Raises UsageError where they have another size than the labels."""
        return chip_logits(outputs_NCHW) if self.is_of_chips else pixel_outputs(outputs_NCHW, labels_NHW)

    def picture(self, outputs: "Tensor", decided: "Tensor") -> "Tensor":
        """The classes or values (N, H, W) of a batch that a picture shows."""
        return decided

    def cell(self, chip: int) -> int:
        """The edge in pixels of what a sample covers, where chips have this edge."""
        return chip if self.is_of_chips else 1

    def map_formats(self, names: tuple[str, ...], unit: str, spread: Sequence[str]) -> tuple[MapFormat, MapFormat]:
        """How both files of a map are stored, without tags; the second has the bands of the `spread` of an ensemble."""
        bands = (*self.second_bands(names), *spread)
        return MapFormat("uint8", NO_LABEL, ("class",)), MapFormat("uint16", NO_PROBABILITY, bands, steps=STEPS)

    def map_tags(self, names: tuple[str, ...], unit: str, chip: int) -> dict[str, Any]:
        """What the tags of both files say of the task."""
        return {"task": self.name} | ({"chip": chip} if self.is_of_chips else {})

    def layers(
        self, prediction: FloatArray, scene_count: IntArray, classes: int, temperature: float
    ) -> tuple[AnyArray, AnyArray]:
        """The numbers (band, y, x) of both files of a map for a prediction (channel, y, x) and its scene count (y, x).

        The second has the spread of the members of an ensemble: the standard deviation of their probabilities for the
        class of the map, the largest over the classes where a chip has several labels, or of their values. A
        temperature changes the probabilities and not the spread.
        """
        probability, deviations = prediction[:classes], prediction[classes:]
        mapped, calibrated = self.mapped(probability), self.at_temperature(probability, temperature)
        if not len(deviations):
            return mapped, calibrated
        return mapped, np.concatenate([calibrated, self.spread_of(deviations, mapped)])

    def mapped(self, probability: FloatArray) -> AnyArray:
        """The classes (1, y, x), or the presence of labels (class, y, x), by probabilities (class, y, x)."""
        return np.asarray(probability.argmax(0)[None])

    def as_mapped(self, numbers: AnyArray) -> AnyArray:
        """The classes or values (y, x) in the first file of a map (band, y, x), or the presence of labels."""
        return np.asarray(numbers[0])

    def spread_of(self, deviations: FloatArray, mapped: AnyArray) -> FloatArray:
        """The deviation (1, y, x) among members that a map shows, of those of all classes (class, y, x)."""
        return np.asarray(np.take_along_axis(deviations, mapped, 0))

    def at_temperature(self, probability: AnyArray, temperature: float) -> FloatArray:
        """Probabilities (class, ...) at a temperature."""
        return apply_temperature(probability, temperature)

    def of_votes(self, votes: IntArray, min_share: float) -> IntArray:
        """The class (n,) of chips, or 1 and 0 of present and absent labels (n, class), by their pixels (n, class)."""
        return majority_class(votes)

    def decisions(self, classes: int) -> int:
        """How many decisions with a probability a sample has."""
        return 1

    def as_decisions(self, probability: AnyArray, *labels: AnyArray) -> tuple[AnyArray, ...]:
        """The probabilities (class, n) of decisions, and the number (n,) of the class of each by some labels."""
        return (probability, *(numbers.astype(np.int64) for numbers in labels))

    def averaged_with(self, architecture: str) -> tuple[PixelModelName, ...]:
        """The models of pixels that a network is averaged with where nothing else is asked for."""
        return ("none",) if self.is_of_chips or architecture != "unet" else ("forest", "linear")

    def second_bands(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the bands of the second file of a map: probabilities of the classes, or what values have."""
        return names

    @property
    def sample(self) -> str:
        """What scores count."""
        return "chip" if self.is_of_chips else "pixel"

    @property
    def counted_labels(self) -> str:
        """What the length of a training counts."""
        return "chips" if self.is_of_chips else "labelled pixels"

    @property
    def vote(self) -> str:
        """What follows the method of a baseline of pixels in the metrics."""
        return ""

    @property
    def maps_classes(self) -> bool:
        """Whether the first file of a map is one band of class numbers, not of values or a band for each label."""
        return self.has_classes and not self.has_label_sets

    def pooled(self, outputs_NCHW: "Tensor") -> "Tensor":
        """The outputs of pixels, or of whole chips (N, channel, 1, 1)."""
        return chip_logits(outputs_NCHW) if self.is_of_chips else outputs_NCHW

    def ranking_scores(self) -> list[str]:
        """The keys of the scores by which trials can be ranked, the default first."""
        scores = [score for score in self.scores if score.key in get_args(RankingScore)]
        return [score.key for score in sorted(scores, key=lambda score: not score.is_main)]

    def label_conflict(self, labels: str, quantity: str) -> str:
        """Why labels are none of it, by the quantity that they measure, empty for classes; empty where they are."""
        sentence = f"{labels} measures {quantity}, and train.task {self.name} needs classes; set train.task: regression"
        return sentence if quantity else ""

    def conflicts(self, loss: str | None, class_weights: str, models_of_pixels: Sequence[str] = ()) -> list[str]:
        """Settings of a training that do not fit, a sentence each."""
        sentences = []
        if models_of_pixels and self.is_of_chips:
            sentences.append(
                f"train has {models_of_pixels[0]}, a model of pixels, and task {self.name} has labels of chips; use a "
                "network alone"
            )
        if loss and loss not in self.losses:
            sentences.append(f"train.loss {loss} is not for task {self.name}; use {' or '.join(self.losses)}")
        if not self.has_classes and class_weights != "none":
            sentences.append(
                f"train.class_weights {class_weights} needs classes, and {self.name} has none; set it to none"
            )
        return sentences


def without_spread(bands: Sequence[str | None]) -> tuple[str | None, ...]:
    """The names of the bands of the second file of a map, without the one that only maps of ensembles have."""
    return tuple(bands[:-1] if bands and bands[-1] == SPREAD else bands)


def majority_class(counts: AnyArray) -> IntArray:
    """The most frequent class of each row of pixel counts (n, class), the lowest of equals; 255 without pixels."""
    return np.where(counts.any(1), counts.argmax(1), NO_LABEL).astype(np.int64)


def chip_logits(outputs_NCHW: "Tensor") -> "Tensor":
    """Logits of whole chips (N, class, 1, 1) in single precision: the mean over the pixels."""
    return outputs_NCHW.float().mean((2, 3), keepdim=True)


def apply_temperature(probability: AnyArray, temperature: float) -> FloatArray:
    """Probabilities (class, ...) as float32 at a temperature; at 1 they stay as they are, bit by bit."""
    if temperature == 1:
        return np.asarray(probability, np.float32)
    return softmax(np.log(np.maximum(probability, FLOOR, dtype=np.float64)) / temperature).astype(np.float32)


def softmax(logits: Float64Array) -> Float64Array:
    """Probabilities (class, ...) that add up to 1."""
    powers = np.exp(logits - logits.max(0))
    return np.asarray(powers / powers.sum(0), np.float64)


def pixels_of_classes(labels_NHW: "Tensor", classes: int) -> "Tensor":
    """Labelled pixels (N, class) of each class in each chip."""
    import torch

    return torch.stack([(labels_NHW == number).flatten(1).sum(1) for number in range(classes)], 1)


def pixel_outputs(outputs_NCHW: "Tensor", like_NHW: "Tensor") -> "Tensor":
    """The outputs unchanged. Raises UsageError where the model returns one output per chip instead of per pixel."""
    if outputs_NCHW.shape[2:] != like_NHW.shape[-2:]:
        raise UsageError(
            "the model returns one output for a whole chip; that is train.task classification or multilabel"
        )
    return outputs_NCHW
