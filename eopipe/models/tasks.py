"""Tasks: the class of each pixel or chip, several classes for each chip (multilabel), or the value of each pixel.

Every model returns maps (N, channel, H, W), and the task decides what they are. The logits of a chip are the mean of
those of its pixels (global average pooling, Lin et al. 2014, arXiv:1312.4400), so each built-in model fits each task.
"""

from typing import TYPE_CHECKING, Literal

from eopipe.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

Task = Literal["segmentation", "classification", "multilabel", "regression"]
# Tasks with one output for each chip, whose maps have cells of the size of a chip.
CHIPWISE = ("classification", "multilabel")
# A class is in the labels of a chip where its probability is at least this.
PRESENCE = 0.5
# The last band of the second file of a map, the one of probabilities or deviations, where the model is an ensemble.
SPREAD = "spread of members"
# Losses of each task, the default first.
LOSSES: dict[str, tuple[str, ...]] = {
    "segmentation": ("cross_entropy", "focal", "dice", "lovasz"),
    "classification": ("cross_entropy", "focal"),
    "multilabel": ("binary_cross_entropy", "binary_focal"),
    "regression": ("huber", "mse"),
}
# Losses that take weights of classes, and the power of the inverse frequency of each kind of weights.
WEIGHTED_LOSSES = ("cross_entropy", "focal", "binary_cross_entropy", "binary_focal")
WEIGHT_POWERS = {"none": 0.0, "fourth_root": 0.25, "sqrt": 0.5, "balanced": 1.0}


def task_conflicts(task: str, loss: str | None, class_weights: str) -> list[str]:
    """Settings of a training that do not fit its task, a sentence each."""
    sentences = []
    if loss and loss not in LOSSES[task]:
        sentences.append(f"train.loss {loss} is not for task {task}; use {' or '.join(LOSSES[task])}")
    if task == "regression" and class_weights != "none":
        sentences.append(f"train.class_weights {class_weights} needs classes, and regression has none; set it to none")
    return sentences


def without_spread(bands: "Sequence[str | None]") -> tuple[str | None, ...]:
    """The names of the bands of the second file of a map, without the one that only maps of ensembles have."""
    return tuple(bands[:-1] if bands and bands[-1] == SPREAD else bands)


def chip_logits(outputs_NCHW: "Tensor") -> "Tensor":
    """Logits of whole chips (N, class, 1, 1) in single precision: the mean over the pixels."""
    return outputs_NCHW.float().mean((2, 3), keepdim=True)


def pixel_outputs(outputs_NCHW: "Tensor", like_NHW: "Tensor") -> "Tensor":
    """The outputs unchanged. Raises UsageError where the model returns one output per chip instead of per pixel."""
    if outputs_NCHW.shape[2:] != like_NHW.shape[-2:]:
        raise UsageError(
            "the model returns one output for a whole chip; that is train.task classification or multilabel"
        )
    return outputs_NCHW


def predictions(task: str, outputs_NCHW: "Tensor", target: tuple[float, ...]) -> "Tensor":
    """Class probabilities of pixels (N, class, H, W) or of chips (N, class, 1, 1), or values of a regression.

    Those of several labels for each chip are independent of each other (sigmoid) and do not add up to 1. Values
    (N, 1, H, W) are in the unit of the labels, whose mean and standard deviation are `target`.
    """
    if task == "regression":
        mean, std = target
        return outputs_NCHW * std + mean
    if task == "multilabel":
        return chip_logits(outputs_NCHW).sigmoid()
    return (chip_logits(outputs_NCHW) if task == "classification" else outputs_NCHW).softmax(1)
