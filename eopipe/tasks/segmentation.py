"""Tasks with one class for each pixel or chip, whose tables are confusion matrices."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.tasks.tables import Compared, Tables, UnitSums, share, six_digits
from eopipe.tasks.task import NamedScore, ScoreTexts, SimplestPrediction, Task, pixels_of_classes
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from torch import Tensor

# Means over the classes, with the score of a class.
MACRO = {"miou": "iou", "f1_macro": "f1"}


class ClassTables(Tables):
    """Confusion matrices (truth, prediction), row by row."""

    def __init__(self, classes: Sequence[str]) -> None:
        super().__init__(classes)
        self.width = len(classes) ** 2

    def of(self, samples: Compared) -> AnyArray:
        """Counts of the pairs of class numbers."""
        return confusion_matrix(samples.truth, samples.predicted, len(self.classes)).ravel()

    def by_unit(self, units: UnitSums, index: IntArray, samples: Compared) -> AnyArray:
        """Counts of the pairs of class numbers."""
        truth, predicted = samples.truth.astype(np.int64), samples.predicted.astype(np.int64)
        return units.count_pairs(index, truth * len(self.classes) + predicted, self.width)

    def parts(self, tables: AnyArray) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Correct, true and predicted samples of each class (n, class)."""
        counts = self._matrices(tables)
        return np.diagonal(counts, axis1=1, axis2=2), counts.sum(2), counts.sum(1)

    def formulas(self, tables: AnyArray) -> tuple[dict[str, Float64Array], dict[str, Float64Array]]:
        """Accuracy, Cohen's kappa and means over the classes; IoU, precision, recall and F1 of each class."""
        correct, truth, predicted = self.parts(tables)
        per_class = {
            # The Jaccard index.
            "iou": share(correct, truth + predicted - correct),
            "precision": share(correct, predicted),
            "recall": share(correct, truth),
            "f1": share(2 * correct, truth + predicted),
        }
        macro = {key: _mean(per_class[of_class]) for key, of_class in MACRO.items()}
        return self._overall(tables, macro), per_class

    def document(self, total: AnyArray) -> dict[str, Any]:
        """The scores over all classes and of each, and the matrix; a mean is over the rounded scores of the classes."""
        overall, per_class = self.formulas(total[None])
        rows = [
            {key: six_digits(values[0, number]) for key, values in per_class.items()}
            for number in range(len(self.classes))
        ]
        scores: dict[str, Any] = {key: six_digits(value[0]) for key, value in overall.items()}
        for key in MACRO.keys() & scores.keys():
            defined = [value for row in rows if (value := row[MACRO[key]]) is not None]
            scores[key] = round(sum(defined) / len(defined), 6) if defined else None
        counts, supports = self._counts(total)
        described = zip(self.classes, rows, supports, strict=True)
        return scores | counts | {"per_class": {name: row | support for name, row, support in described}}

    def sizes(self, tables: AnyArray) -> Float64Array:
        """The number of samples (n,)."""
        return np.asarray(self._matrices(tables).sum((1, 2)))

    def decisions(self, tables: AnyArray) -> Float64Array:
        """The number of decisions (n,), each correct or not: one for each sample."""
        return self.sizes(tables)

    def errors(self, tables: AnyArray) -> Float64Array:
        """The share of incorrect decisions (n,); 0 without samples."""
        return np.nan_to_num(share(self._mistakes(tables), self.decisions(tables)))

    def incorrect(self, tables: AnyArray) -> dict[str, Float64Array]:
        """Incorrect decisions (n,), and those where truth or prediction, but not both, are a class."""
        correct, truth, predicted = self.parts(tables)
        return self._by_class(self._mistakes(tables), truth + predicted - 2 * correct)

    def correct(self, tables: AnyArray) -> dict[str, Float64Array]:
        """Correct decisions (n,), and those where a class is there."""
        return self._by_class(self.decisions(tables) - self._mistakes(tables), self.parts(tables)[0])

    def contains(self, tables: AnyArray) -> BoolArray:
        """Whether the labels have each class (n, class)."""
        return np.asarray(self.parts(tables)[1] > 0)

    def _by_class(self, everything: Float64Array, classes: Float64Array) -> dict[str, Float64Array]:
        return {"": everything} | {name: classes[:, number] for number, name in enumerate(self.classes)}

    def _matrices(self, tables: AnyArray) -> Float64Array:
        return tables.reshape(len(tables), len(self.classes), len(self.classes)).astype(np.float64)

    def _mistakes(self, tables: AnyArray) -> Float64Array:
        return np.asarray(self.sizes(tables) - self.parts(tables)[0].sum(1))

    def _overall(self, tables: AnyArray, macro: dict[str, Float64Array]) -> dict[str, Float64Array]:
        correct, truth, predicted = self.parts(tables)
        total = self.sizes(tables)
        agreed, chance = share(correct.sum(1), total), share((truth * predicted).sum(1), total**2)
        return {"accuracy": agreed, **macro, "kappa": share(agreed - chance, 1 - chance)}

    def _counts(self, total: AnyArray) -> tuple[dict[str, Any], list[dict[str, int]]]:
        """What a document has beside the scores over all classes, and of each."""
        supports = [{"pixels": int(count)} for count in self.parts(total[None])[1][0]]
        return {"confusion": total.reshape(len(self.classes), -1).tolist()}, supports


@dataclass(frozen=True, kw_only=True)
class ClassTask(Task):
    """One class for each pixel, or for each chip."""

    scores: ClassVar[tuple[NamedScore, ...]] = (
        NamedScore("accuracy", "Accuracy", in_verdict=True, hub="accuracy"),
        NamedScore("miou", "mIoU", is_main=True, in_verdict=True, hub="mean_iou"),
        NamedScore("f1_macro", "Macro F1", hub="f1"),
        NamedScore("kappa", "Kappa", scale="agreement"),
    )
    simple_baseline: ClassVar[tuple[str, str]] = ("majority", "majority class")
    explanation: ClassVar[str] = (
        "Accuracy: share of correct pixels, or of correct chips where chips have classes. mIoU: intersection over "
        "union of map and label, averaged over the classes, so that rare classes count as much as common ones. Macro "
        "F1: mean of the classes' F1. Kappa: agreement beyond chance. 1 is perfect."
    )
    texts: ClassVar[ScoreTexts] = ScoreTexts(
        scores="{accuracy} (mIoU {miou})",
        model="the model is correct for {}",
        other="{name} for {}",
        line="{accuracy} of the test {sample}s correct, mIoU {miou}",
        simple="always predicting {}",
        constant="name",
    )
    rasters: ClassVar[tuple[str, str]] = ("classes", "probabilities")

    def tables(self, names: Sequence[str]) -> ClassTables:
        """Confusion matrices of these classes."""
        return ClassTables(names)

    def simplest(self, truths: Iterator[AnyArray], names: Sequence[str]) -> SimplestPrediction:
        """The most frequent class."""
        counts = sum((np.bincount(truth, minlength=len(names)) for truth in truths), np.zeros(len(names), np.int64))
        return SimplestPrediction(int(counts.argmax()), {"class": names[int(counts.argmax())]})

    @property
    def vote(self) -> str:
        """What follows the method of a baseline of pixels in the metrics."""
        return ", and their majority in each chip" if self.is_of_chips else ""

    def map_tags(self, names: tuple[str, ...], unit: str, chip: int) -> dict[str, Any]:
        """A legend too."""
        legend = ", ".join(f"{number}={name}" for number, name in enumerate(names))
        return super().map_tags(names, unit, chip) | {"classes": legend}

    def sample_labels(self, labels_NHW: "Tensor", classes: int, min_share: float) -> "Tensor":
        """The classes of pixels, or of the majority of the pixels of each chip."""
        return majority(labels_NHW, classes)[:, None, None] if self.is_of_chips else labels_NHW

    def decided(self, outputs: "Tensor", target: tuple[float, ...]) -> "Tensor":
        """The class of the highest output."""
        return outputs.argmax(1)

    def loss_weights(self, counts: Mapping[str, int], total: int, power: float) -> tuple[float, ...]:
        """The inverse frequency of each class to a power, with a mean of 1 over all samples.

        With power 1 each class counts alike (King and Zeng 2001); smaller powers are between that and no weights, as
        in square-root sampling (Mahajan et al. 2018, doi:10.1007/978-3-030-01216-8_12). A class without any sample has
        weight 0.
        """
        shares = [count / sum(counts.values()) for count in counts.values()]
        norm = sum(share ** (1 - power) for share in shares if share)
        return tuple(round(share**-power / norm, 6) if share else 0.0 for share in shares)

    def validation_scores(self, tables: ClassTables, total: AnyArray) -> dict[str, Any]:
        """Accuracy and mean IoU, or macro F1 of chips, and of the classes that labels have those never predicted."""
        scores, (_, truth, predicted) = tables.document(total), tables.parts(total[None])
        absent = [tables.classes[number] for number in np.flatnonzero((truth[0] > 0) & (predicted[0] == 0))]
        mean = "f1_macro" if self.is_of_chips else "miou"
        return {key: scores[key] for key in ("accuracy", mean)} | ({"never_predicted": absent} if absent else {})

    def predictions(self, outputs_NCHW: "Tensor", target: tuple[float, ...]) -> "Tensor":
        """Probabilities that add up to 1."""
        return self.pooled(outputs_NCHW).softmax(1)

    def mean_output(self, outputs_MNCHW: "Tensor") -> "Tensor":
        """Logits whose softmax is the mean of the members' probabilities."""
        return outputs_MNCHW.log_softmax(2).logsumexp(0) - math.log(len(outputs_MNCHW))


def majority(labels_NHW: "Tensor", classes: int) -> "Tensor":
    """The class of most labelled pixels of each chip (N), the lowest number of equals; 255 where no pixel has one."""
    counts_NC = pixels_of_classes(labels_NHW, classes)
    return counts_NC.argmax(1).masked_fill(~counts_NC.any(1), NO_LABEL)


def confusion_matrix(truth: AnyArray, predicted: AnyArray, classes: int) -> IntArray:
    """Count pixels by (truth, predicted); both hold class numbers of the same shape."""
    pairs = truth.astype(np.int64).ravel() * classes + predicted.astype(np.int64).ravel()
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def _mean(per_class: Float64Array) -> Float64Array:
    """The mean over the classes with a defined score."""
    is_defined = np.isfinite(per_class)
    return share(np.where(is_defined, per_class, 0).sum(1), is_defined.sum(1).astype(np.float64))


TASK = ClassTask(
    name="segmentation",
    is_of_chips=False,
    losses=("cross_entropy", "focal", "dice", "lovasz"),
    mlm=("semantic-segmentation", ("batch", "class", "height", "width")),
    hub="image-segmentation",
    deepness="Segmentor",
)
