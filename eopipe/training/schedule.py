"""The learning-rate schedule and early stopping: functions of settings, step and history alone."""

import math
from typing import TYPE_CHECKING, Any

from eopipe.checkpoints.checkpoint import validation_score
from eopipe.loader.order import steps_per_epoch

if TYPE_CHECKING:
    from eopipe.training_job import Settings

# With fewer steps than this a network has hardly left its random start, however good its data are.
FEWEST_STEPS = 200


def few_steps(chips: int, batch: int, epochs: int) -> str:
    """A sentence about a training that is too short to learn from its `chips`; empty for a longer one."""
    batch = min(batch, max(1, chips))
    per_epoch = steps_per_epoch(chips, batch)
    if per_epoch * epochs >= FEWEST_STEPS:
        return ""
    return (
        f"{epochs} epochs of {chips} chips in batches of {batch} are {per_epoch * epochs} steps, and below "
        f"{FEWEST_STEPS} a model learns little; train.epochs: {-(-FEWEST_STEPS // per_epoch)} gives {FEWEST_STEPS}, "
        "a smaller train.batch or split.stride more per epoch"
    )


def learning_rate(settings: "Settings", step: int, steps: int) -> float:
    """Linear warm-up, then the schedule from the highest rate over the remaining steps."""
    warmup_steps: int = max(1, round(settings.warmup * steps))
    if step < warmup_steps:
        return float(settings.learning_rate) * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, steps - warmup_steps)
    return float(settings.learning_rate) * decay(settings.schedule, progress)


def decay(schedule: str, progress: float) -> float:
    """The share of the highest rate at this progress (0 to 1) after the warm-up.

    Half a cosine to zero (Loshchilov and Hutter 2017, arXiv:1608.03983), linear to zero, a polynomial of power 0.9
    (Chen et al. 2017, arXiv:1606.00915), a tenth after each third, or constant.
    """
    shares = {
        "cosine": 0.5 * (1 + math.cos(math.pi * progress)),
        "linear": 1 - progress,
        "polynomial": math.pow(1 - progress, 0.9),
        "step": math.pow(0.1, math.floor(3 * progress + 1e-9)),
        "constant": 1.0,
    }
    return shares[schedule]


def best_epoch(history: list[Any]) -> int | None:
    """Index of the epoch with the best validation score, the first of equals; None without any."""
    scores = [validation_score(row.get("val")) for row in history]
    scored = [(score, -index) for index, score in enumerate(scores) if score is not None]
    return -max(scored)[1] if scored else None


def stops_early(history: list[Any], patience: int) -> bool:
    """Whether the last `patience` epochs were not better than an earlier one; never where patience is 0."""
    best = best_epoch(history)
    return bool(patience) and best is not None and len(history) - 1 - best >= patience
