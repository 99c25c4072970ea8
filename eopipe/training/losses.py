"""Loss functions as a sum and the weight of that sum, so that parts add up to the mean over a whole batch.

Cross entropy, focal, Huber and squared loss are sums over pixels, or over chips where a chip has one label; of several
labels for each chip they are sums over chips and classes. Dice and
Lovász-softmax are defined for each sample (chip) alone instead, and their weight is the number of samples. So the mean
over a global batch is the same whatever its partition into workers or micro-batches.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from eopipe.tasks import TASKS
from eopipe.tasks.task import Task, chip_logits, pixel_outputs
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from eopipe.training_job import Settings

# Outputs (N, channel, H, W) and labels (N, H, W), 255 or NaN where there is none, to a sum and its weight (float64).
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
FOCAL_GAMMA = 2.0


def loss_of(settings: "Settings", weights: tuple[float, ...] = (), target: tuple[float, ...] = ()) -> Loss:
    """The loss function of the settings for their task: with weights of the classes, or scaled by the target."""
    losses: dict[str, Loss] = {
        "cross_entropy": lambda logits, labels: cross_entropy(logits, labels, weights),
        "focal": lambda logits, labels: focal(logits, labels, weights),
        "binary_cross_entropy": lambda logits, labels: binary_cross_entropy(logits, labels, weights),
        "binary_focal": lambda logits, labels: binary_focal(logits, labels, weights),
        "dice": dice,
        "lovasz": lovasz,
        "huber": huber,
        "mse": mse,
    }
    task = TASKS[settings.task]
    if task.has_label_sets:
        return lambda outputs, labels: losses[settings.loss](
            chip_logits(outputs)[..., 0, 0], label_sets_of_batch(labels, outputs.shape[1], settings.min_share)
        )
    return _for_task(losses[settings.loss], task, target)


def _for_task(loss: Loss, task: Task, target: tuple[float, ...]) -> Loss:
    """The loss of chips by the majority of their pixels, of values in deviations from their mean, or of pixels."""
    if task.is_of_chips:
        return lambda outputs, labels: loss(chip_logits(outputs), majority(labels, outputs.shape[1])[:, None, None])
    if not task.has_classes:
        mean, std = target
        return lambda outputs, labels: loss(
            _at_least_float32(pixel_outputs(outputs, labels)[:, 0]), (labels - mean) / std
        )
    return lambda outputs, labels: loss(pixel_outputs(outputs, labels), labels)


def majority(labels_NHW: Tensor, classes: int) -> Tensor:
    """The class of most labelled pixels of each chip (N), the lowest number of equals; 255 where no pixel has one."""
    counts_NC = torch.stack([(labels_NHW == number).flatten(1).sum(1) for number in range(classes)], 1)
    return torch.where(counts_NC.any(1), counts_NC.argmax(1), NO_LABEL)


def label_sets_of_batch(labels_NHW: Tensor, classes: int, min_share: float) -> Tensor:
    """The labels of each chip (N, class): 1 where a class has at least `min_share` of the labelled pixels, else 0.

    Rows of `NO_LABEL` (255) where no pixel is labelled.
    """
    counts_NC = torch.stack([(labels_NHW == number).flatten(1).sum(1) for number in range(classes)], 1)
    total_N1 = counts_NC.sum(1, keepdim=True)
    present = (counts_NC.double() / total_N1.clamp(min=1)) >= min_share
    return torch.where(total_N1 > 0, present.long(), NO_LABEL)


def positive_weights(chips: dict[str, int], total: int, power: float) -> tuple[float, ...]:
    """Weights of the chips with a class: (chips without it / chips with it) to a power, for each class.

    With power 1 the chips with and without a class have the same total weight. 1 for a class that all or no chips have.
    """
    return tuple(round(((total - count) / count) ** power, 6) if 0 < count < total else 1.0 for count in chips.values())


def frequency_weights(pixels: dict[str, int], classes: tuple[str, ...], power: float) -> tuple[float, ...]:
    """The inverse frequency of each class to a power, with a mean of 1 over all pixels.

    `pixels` are the pixel counts of the training split by class. With power 1 each class counts alike (King and Zeng
    2001); smaller powers are between that and no weights, as in square-root sampling (Mahajan et al. 2018,
    doi:10.1007/978-3-030-01216-8_12). A class without any pixel gets weight 0.
    """
    counts = [pixels.get(name, 0) for name in classes]
    total = sum(counts)
    norm = sum((count / total) ** (1 - power) for count in counts if count)
    return tuple(round((count / total) ** -power / norm, 6) if count else 0.0 for count in counts)


def cross_entropy(logits_NCHW: Tensor, labels_NHW: Tensor, weights: tuple[float, ...] = ()) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each labelled pixel times the weight of its class; the weight is the sum of those."""
    flat, labels = _by_pixel(logits_NCHW), labels_NHW.flatten()
    class_weights = _class_weights(weights, flat)
    total = functional.cross_entropy(flat, labels, class_weights, ignore_index=NO_LABEL, reduction="sum")
    return total, _total_weight(labels, class_weights)


def focal(logits_NCHW: Tensor, labels_NHW: Tensor, weights: tuple[float, ...] = ()) -> tuple[Tensor, Tensor]:
    """Cross-entropy times (1 - p)**2, which gives easy pixels little weight (Lin et al. 2017, arXiv:1708.02002)."""
    flat, labels = _by_pixel(logits_NCHW), labels_NHW.flatten()
    class_weights = _class_weights(weights, flat)
    log_p = -functional.cross_entropy(flat, labels, ignore_index=NO_LABEL, reduction="none")
    # An ignored pixel has log p = 0, so p = 1, and adds nothing.
    loss = -((1 - log_p.exp()).clamp(min=0) ** FOCAL_GAMMA) * log_p
    if class_weights is not None:
        loss = loss * _pixel_weights(labels, class_weights)
    return loss.sum(), _total_weight(labels, class_weights)


def binary_cross_entropy(
    logits_NC: Tensor, labels_NC: Tensor, weights: tuple[float, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the presence of each class in each labelled chip; the weight is the number of those pairs.

    `weights` multiply the loss of the classes that are present, as `pos_weight` of `torch.nn.BCEWithLogitsLoss` does.
    """
    return _binary_loss(logits_NC, labels_NC, weights, 0.0)


def binary_focal(logits_NC: Tensor, labels_NC: Tensor, weights: tuple[float, ...] = ()) -> tuple[Tensor, Tensor]:
    """Binary cross-entropy times (1 - p)**2, p being the truth's probability (Lin et al. 2017, arXiv:1708.02002)."""
    return _binary_loss(logits_NC, labels_NC, weights, FOCAL_GAMMA)


def _binary_loss(
    logits_NC: Tensor, labels_NC: Tensor, weights: tuple[float, ...], gamma: float
) -> tuple[Tensor, Tensor]:
    logits, labelled = _at_least_float32(logits_NC), labels_NC != NO_LABEL
    signs = torch.where(labels_NC == 1, 1.0, -1.0).to(logits)
    log_p = functional.logsigmoid(logits * signs)
    loss = -log_p * (1 - log_p.exp()).clamp(min=0) ** gamma if gamma else -log_p
    if weights:
        loss = torch.where(labels_NC == 1, loss * logits.new_tensor(weights), loss)
    return (loss * labelled).sum(), labelled.sum(dtype=torch.float64)


def dice(logits_NCHW: Tensor, labels_NHW: Tensor) -> tuple[Tensor, Tensor]:
    """1 - the soft Dice coefficient of each sample, averaged over its classes (Milletari et al., arXiv:1606.04797).

    The coefficient is 2 sum(p t) / (sum(p) + sum(t)) over the labelled pixels. Classes that are absent from a sample's
    labels do not count for it.
    """
    probabilities, truth, _ = _by_sample(logits_NCHW, labels_NHW)
    area = truth.sum(2)
    score = 2 * (probabilities * truth).sum(2) / (probabilities.sum(2) + area).clamp(min=1e-12)
    return _over_samples(1 - score, area > 0)


def lovasz(logits_NCHW: Tensor, labels_NHW: Tensor) -> tuple[Tensor, Tensor]:
    """The Lovász extension of 1 - IoU of each sample, averaged over its classes (Berman et al. 2018, arXiv:1705.08790).

    Classes that are absent from a sample's labels do not count for it.
    """
    probabilities, truth, labelled = _by_sample(logits_NCHW, labels_NHW)
    errors = (truth - probabilities).abs() * labelled
    # Ignored pixels have error 0 and belong to no class: sorted last, they change nothing.
    sorted_errors, order = errors.sort(stable=True, dim=2, descending=True)
    slope = _jaccard_slope(truth.gather(2, order).long(), labelled.expand_as(truth).gather(2, order).long())
    return _over_samples((sorted_errors * slope.to(errors)).sum(2), truth.sum(2) > 0)


def _jaccard_slope(truth_NCP: Tensor, labelled_NCP: Tensor) -> Tensor:
    """What each pixel adds to 1 - IoU when errors are sorted (algorithm 1 of the paper), float64."""
    # Sums of integers are exact in any order, also on a GPU.
    area = truth_NCP.sum(2, keepdim=True)
    intersection = area - truth_NCP.cumsum(2)
    union = area + (labelled_NCP - truth_NCP).cumsum(2)
    loss = 1 - intersection.double() / union.clamp(min=1)
    return torch.cat([loss[..., :1], loss[..., 1:] - loss[..., :-1]], 2)


def huber(predicted: Tensor, truth: Tensor, delta: float = 1.0) -> tuple[Tensor, Tensor]:
    """Huber loss of values (any shape) where the truth is finite (Huber 1964, doi:10.1214/aoms/1177703732)."""
    labelled = torch.isfinite(truth)
    safe = torch.where(labelled, truth, predicted.detach())
    total = functional.huber_loss(predicted, safe.to(predicted), reduction="sum", delta=delta)
    return total, labelled.sum().double()


def mse(predicted: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Squared errors of values (any shape) where the truth is finite."""
    labelled = torch.isfinite(truth)
    safe = torch.where(labelled, truth, predicted.detach())
    return functional.mse_loss(predicted, safe.to(predicted), reduction="sum"), labelled.sum().double()


def _by_pixel(logits_NCHW: Tensor) -> Tensor:
    """Logits (pixel, class); the 2-d kernels of CUDA would not be exact."""
    return _at_least_float32(logits_NCHW.permute(0, 2, 3, 1).flatten(0, 2))


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _by_sample(logits_NCHW: Tensor, labels_NHW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities and truth (N, class, pixel), 0 where there is no label, and where there is one (N, 1, pixel)."""
    classes = logits_NCHW.shape[1]
    labelled = (labels_NHW != NO_LABEL).flatten(1)[:, None]
    probabilities = _at_least_float32(logits_NCHW).softmax(1).flatten(2) * labelled
    numbers = torch.arange(classes, device=labels_NHW.device)[:, None]
    return probabilities, (labels_NHW.flatten(1)[:, None] == numbers).to(probabilities), labelled


def _over_samples(loss_NC: Tensor, present_NC: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over samples of their mean over the classes present, and the number of samples that have any."""
    count = present_NC.sum(1)
    return ((loss_NC * present_NC).sum(1) / count.clamp(min=1)).sum(), (count > 0).sum().double()


def _class_weights(weights: tuple[float, ...], like: Tensor) -> Tensor | None:
    return like.new_tensor(weights) if weights else None


def _pixel_weights(labels: Tensor, class_weights: Tensor) -> Tensor:
    labelled = labels != NO_LABEL
    return class_weights[torch.where(labelled, labels, 0)] * labelled


def _total_weight(labels: Tensor, class_weights: Tensor | None) -> Tensor:
    weights = labels != NO_LABEL if class_weights is None else _pixel_weights(labels, class_weights)
    return weights.sum(dtype=torch.float64)
