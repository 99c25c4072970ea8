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
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from eopipe.training_job import Settings

# Outputs (N, channel, H, W) and labels (N, H, W), 255 or NaN where there is none, to a sum and its weight (float64).
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
FOCAL_GAMMA = 2.0


def loss_of(settings: "Settings", weights: tuple[float, ...] = (), target: tuple[float, ...] = ()) -> Loss:
    """The loss function of the settings for their task: with weights of the classes, or scaled by the target."""

    def scaled(loss: Loss) -> Loss:
        return lambda outputs, values: loss(_at_least_float32(outputs), (values - target[0]) / target[1])

    losses: dict[str, Loss] = {
        "cross_entropy": lambda logits, labels: cross_entropy(logits, labels, weights),
        "focal": lambda logits, labels: focal(logits, labels, weights),
        "binary_cross_entropy": lambda logits, labels: binary_cross_entropy(logits, labels, weights),
        "binary_focal": lambda logits, labels: binary_focal(logits, labels, weights),
        "dice": dice,
        "lovasz": lovasz,
        "huber": scaled(huber),
        "mse": scaled(mse),
    }
    task, loss = TASKS[settings.task], losses[settings.loss]
    return lambda outputs, labels: loss(
        task.sample_outputs(outputs, labels), task.sample_labels(labels, outputs.shape[1], settings.min_share)
    )


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
