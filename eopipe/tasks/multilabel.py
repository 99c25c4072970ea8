"""The task with several labels for each chip, whose tables count the correct and incorrect ones of each class."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, FloatArray, IntArray
from eopipe.tasks.segmentation import ClassTables
from eopipe.tasks.tables import Compared, UnitSums, share
from eopipe.tasks.task import (
    ClassMeasure,
    NamedScore,
    ScoreTexts,
    SimplestPrediction,
    Task,
    apply_temperature,
    chip_logits,
    pixels_of_classes,
)
from eopipe.tiles.geotiff import MapFormat
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from torch import Tensor

# A class is in the labels of a chip where its probability is at least this.
PRESENCE = 0.5


class LabelTables(ClassTables):
    """Sums of `label_tables` (n, 3 * class + 2); each class of a chip is a decision.

    F1 of a class is 2 TP / (2 TP + FP + FN). Micro F1 has the counts of all classes added up; macro F1 is the mean of
    the classes' F1 where it is defined, which is where a class is in the truth or in the prediction. Subset accuracy is
    the share of chips whose set of labels is completely correct, the Hamming loss the share of incorrect decisions.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        super().__init__(classes)
        self.width = 3 * len(classes) + 2

    def of(self, samples: Compared) -> AnyArray:
        """Sums over the chips."""
        truth, predicted = (labels.reshape(-1, len(self.classes)) for labels in samples[:2])
        return np.asarray(label_tables(truth, predicted).sum(0))

    def by_unit(self, units: UnitSums, index: IntArray, samples: Compared) -> AnyArray:
        """Sums over the chips."""
        return np.rint(
            units.sum_parts(index, label_tables(samples.truth, samples.predicted).T.astype(np.float64))
        ).astype(np.int64)

    def parts(self, tables: AnyArray) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Chips (n, class) that have a class in truth and prediction, in the truth, and in the prediction."""
        positive, false, missed = self._thirds(tables)
        return positive, positive + missed, positive + false

    def sizes(self, tables: AnyArray) -> Float64Array:
        """The number of chips (n,)."""
        return np.asarray(tables[:, -1], np.float64)

    def decisions(self, tables: AnyArray) -> Float64Array:
        """The number of chips times classes (n,)."""
        return self.sizes(tables) * len(self.classes)

    def _thirds(self, tables: AnyArray) -> tuple[Float64Array, Float64Array, Float64Array]:
        count = len(self.classes)
        positive, false, missed = (tables[:, start * count :][:, :count].astype(np.float64) for start in range(3))
        return positive, false, missed

    def _mistakes(self, tables: AnyArray) -> Float64Array:
        _, false, missed = self._thirds(tables)
        return np.asarray((false + missed).sum(1))

    def _overall(self, tables: AnyArray, macro: dict[str, Float64Array]) -> dict[str, Float64Array]:
        twice, mistakes = 2 * self.parts(tables)[0].sum(1), self._mistakes(tables)
        return {
            "f1_micro": share(twice, twice + mistakes),
            "f1_macro": macro["f1_macro"],
            "subset_accuracy": share(tables[:, -2].astype(np.float64), self.sizes(tables)),
            "hamming_loss": share(mistakes, self.decisions(tables)),
        }

    def _counts(self, total: AnyArray) -> tuple[dict[str, Any], list[dict[str, int]]]:
        _, truth, predicted = self.parts(total[None])
        pairs = zip(truth[0], predicted[0], strict=True)
        return {}, [{"chips": int(chips), "predicted_chips": int(of_map)} for chips, of_map in pairs]


@dataclass(frozen=True, kw_only=True)
class LabelSetTask(Task):
    """Several labels for each chip."""

    has_label_sets: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ("min_share",)
    model_fields: ClassVar[tuple[str, ...]] = options
    scores: ClassVar[tuple[NamedScore, ...]] = (
        NamedScore("f1_micro", "Micro F1", in_verdict=True),
        NamedScore("f1_macro", "Macro F1", is_main=True, in_verdict=True, hub="f1"),
        NamedScore("subset_accuracy", "Subset accuracy"),
        NamedScore("hamming_loss", "Hamming loss", is_lower_better=True),
        NamedScore("mean_average_precision", "mAP"),
    )
    history_scores: ClassVar[tuple[str, ...]] = ("f1_micro", "f1_macro", "subset_accuracy")
    class_score: ClassVar[ClassMeasure] = "f1"
    simple_baseline: ClassVar[tuple[str, str]] = ("majority", "most frequent labels")
    explanation: ClassVar[str] = (
        "Micro F1: F1 of all labels together. Macro F1: mean of the classes' F1. Subset accuracy: share of chips whose "
        "labels are all correct. Hamming loss: share of incorrect decisions on a label; 0 is perfect. mAP: mean of the "
        "classes' average precision, the area below the curve of precision over recall."
    )
    texts: ClassVar[ScoreTexts] = ScoreTexts(
        scores="{f1_micro} (macro F1 {f1_macro})",
        model="the micro F1 of the model's labels is {}",
        other="of {name} {}",
        line="Most probable class of each chip; micro F1 of all labels {f1_micro}",
        simple="always predicting {}",
        constant="labels",
    )
    rasters: ClassVar[tuple[str, str]] = ("labels", "probabilities")

    def tables(self, names: Sequence[str]) -> LabelTables:
        """Tables of these classes."""
        return LabelTables(names)

    def simplest(self, truths: Iterator[AnyArray], names: Sequence[str]) -> SimplestPrediction:
        """The labels that at least half of the chips have."""
        shares = np.concatenate([*truths]).mean(0)
        present = shares >= PRESENCE
        frequencies = [round(float(share), 6) for share in shares]
        return SimplestPrediction(present, {"labels": [*compress(names, present)], "frequencies": frequencies})

    def map_formats(self, names: tuple[str, ...], unit: str, spread: Sequence[str]) -> tuple[MapFormat, MapFormat]:
        """A band for each label, 1 where it is present."""
        first, second = super().map_formats(names, unit, spread)
        return replace(first, names=names), second

    def mapped(self, probability: FloatArray) -> AnyArray:
        """The presence of each label."""
        return probability >= PRESENCE

    def as_mapped(self, numbers: AnyArray) -> AnyArray:
        """All bands (class, y, x)."""
        return numbers

    def spread_of(self, deviations: FloatArray, mapped: AnyArray) -> FloatArray:
        """The largest deviation."""
        return np.asarray(deviations.max(0)[None])

    def at_temperature(self, probability: AnyArray, temperature: float) -> FloatArray:
        """Independent probabilities, their logits divided by a temperature; 0.5 stays 0.5."""
        both = np.stack([probability, 1 - probability]) if temperature != 1 else probability[None]
        return np.asarray(apply_temperature(both, temperature)[0])

    def sample_outputs(self, outputs_NCHW: "Tensor", labels_NHW: "Tensor") -> "Tensor":
        """Logits (N, class)."""
        return chip_logits(outputs_NCHW)[..., 0, 0]

    def sample_labels(self, labels_NHW: "Tensor", classes: int, min_share: float) -> "Tensor":
        """Whether each chip has a class (N, class): 1 where that is in `min_share` of its labelled pixels, else 0."""
        counts_NC = pixels_of_classes(labels_NHW, classes)
        total_N1 = counts_NC.sum(1, keepdim=True)
        present_NC = (counts_NC.double() / total_N1.clamp(min=1)) >= min_share
        return present_NC.long().masked_fill(total_N1 == 0, NO_LABEL)

    def decided(self, outputs: "Tensor", target: tuple[float, ...]) -> "Tensor":
        """The classes (N, class) with a probability of at least one half."""
        return outputs >= 0

    def picture(self, outputs: "Tensor", decided: "Tensor") -> "Tensor":
        """The class of the highest probability (N, 1, 1)."""
        return outputs.argmax(1)[:, None, None]

    def loss_weights(self, counts: Mapping[str, int], total: int, power: float) -> tuple[float, ...]:
        """Weights of the chips with a class: (chips without it / chips with it) to a power.

        With power 1 the chips with and without a class have the same total weight. 1 for a class that all or no chips
        have.
        """
        pairs = ((count, total - count) for count in counts.values())
        return tuple(round((others / count) ** power, 6) if count and others else 1.0 for count, others in pairs)

    def of_votes(self, votes: IntArray, min_share: float) -> IntArray:
        """The labels (n, class)."""
        return label_sets(votes, min_share).astype(np.int64)

    @property
    def vote(self) -> str:
        """What follows the method of a baseline of pixels in the metrics."""
        return ", and the shares of their classes in each chip"

    def decisions(self, classes: int) -> int:
        """Each label is present or absent."""
        return classes

    def as_decisions(self, probability: AnyArray, *labels: AnyArray) -> tuple[AnyArray, ...]:
        """Each label (n, class) as a decision: probabilities (2, class * n) of present (0) and absent (1)."""
        flat = probability.ravel()
        return (np.stack([flat, 1 - flat]), *(np.where(sets.T.ravel() > 0, 0, 1).astype(np.int64) for sets in labels))

    def predictions(self, outputs_NCHW: "Tensor", target: tuple[float, ...]) -> "Tensor":
        """Probabilities that are independent of each other (sigmoid) and do not add up to 1."""
        return self.pooled(outputs_NCHW).sigmoid()

    def mean_output(self, outputs_MNCHW: "Tensor") -> "Tensor":
        """Logits whose sigmoid is the mean of the members' probabilities."""
        from torch.nn import functional

        # The logit of a mean is log(sum of p) - log(sum of 1 - p).
        present = functional.logsigmoid(outputs_MNCHW).logsumexp(0)
        return present - functional.logsigmoid(-outputs_MNCHW).logsumexp(0)


def label_tables(truth: AnyArray, predicted: AnyArray) -> IntArray:
    """What each of n chips adds to the counts of `LabelTables` (n, 3 * class + 2); truth and prediction (n, class).

    True positives, false positives and false negatives of each class, whether the set of labels is correct, and 1.
    Sums of rows add up.
    """
    truth, predicted = truth.astype(bool), predicted.astype(bool)
    parts = (truth & predicted, ~truth & predicted, truth & ~predicted)
    exact = (truth == predicted).all(1)[:, None]
    return np.hstack([*parts, exact, np.ones_like(exact)]).astype(np.int64)


def label_sets(counts: AnyArray, min_share: float) -> BoolArray:
    """The labels of chips (n, class) from pixel counts (n, class): classes with at least `min_share` of the pixels.

    Rows without a pixel are left out.
    """
    counts = counts[counts.any(1)]
    return np.asarray(counts / counts.sum(1, keepdims=True) >= min_share)


TASK = LabelSetTask(
    name="multilabel",
    is_of_chips=True,
    losses=("binary_cross_entropy", "binary_focal"),
    mlm=("classification", ("batch", "class")),
    hub="image-classification",
)
