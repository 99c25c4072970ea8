"""The learning rate of each step, and when to stop: functions of settings, step and history alone."""

import math
from typing import TYPE_CHECKING, Any

from eopipe.checkpoints.checkpoint import judged

if TYPE_CHECKING:
    from eopipe.training_job import Settings


def learning_rate(settings: "Settings", step: int, steps: int) -> float:
    """Linear warm-up, then the schedule from the highest rate on over the rest of the steps."""
    warm: int = max(1, round(settings.warmup * steps))
    if step < warm:
        return float(settings.learning_rate) * (step + 1) / warm
    return float(settings.learning_rate) * share(settings.schedule, (step - warm) / max(1, steps - warm))


def share(schedule: str, done: float) -> float:
    """The share of the highest rate when this share of the steps after the warm-up is done.

    Half a cosine to zero (Loshchilov and Hutter 2017, arXiv:1608.03983), a line to zero, a power of 0.9 of it
    (Chen et al. 2017, arXiv:1606.00915), a tenth after each third, or constant.
    """
    shares = {
        "cosine": 0.5 * (1 + math.cos(math.pi * done)),
        "linear": 1 - done,
        "polynomial": math.pow(1 - done, 0.9),
        "step": math.pow(0.1, math.floor(3 * done + 1e-9)),
        "constant": 1.0,
    }
    return shares[schedule]


def best(history: list[Any]) -> int | None:
    """The place in the history of the best epoch on the validation chips, the first of equals; None without any."""
    scores = [judged(row.get("val")) for row in history]
    known = [(score, -place) for place, score in enumerate(scores) if score is not None]
    return -max(known)[1] if known else None


def stopped(history: list[Any], patience: int) -> bool:
    """Whether the last `patience` epochs were no better than one before them; never where patience is 0."""
    top = best(history)
    return bool(patience) and top is not None and len(history) - 1 - top >= patience
