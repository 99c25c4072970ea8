"""The learning-rate schedule and early stopping: functions of settings, step and history alone."""

import math
from collections.abc import Mapping
from typing import Any

from eopipe.checkpoints.checkpoint import validation_score
from eopipe.loader.order import steps_per_epoch
from eopipe.tasks import TASKS
from eopipe.training_job import FEWEST_STEPS, Settings, TrainingLength

# The default length: steps for each square root of the labelled pixels, within limits. Chosen on four labelled
# sets: where labels are few 200 steps were better than 500, where they are many 500 better than 250 and than 1,000.
STEPS_PER_ROOT, MOST_STEPS = 2.3, 750
VALIDATIONS = 10
# A chip with one label says as little as a pixel, so a step takes more of them, as far as memory allows, and the
# training sees each of them so often: on 5,978 chips of 8 pixels 200 steps of 8 gave the majority class everywhere,
# and 10 passes in batches of 64 no error.
BATCH, LARGEST_BATCH, BATCH_PIXELS, CHIP_PASSES = 8, 64, 64 * 64 * 64, 10


def default_crop(chip: int) -> int:
    """Default edge in pixels of random crops of a chip."""
    return min(chip, 64 if chip >= 256 else 32)


def default_batch(task: str, chip: int) -> int:
    """Default chips of a step, of chips with an edge of `chip` pixels."""
    return min(max(BATCH, BATCH_PIXELS // chip**2), LARGEST_BATCH) if TASKS[task].is_of_chips else BATCH


def default_steps(labelled: int) -> int:
    """Default steps of a training on a number of labelled pixels on the ground."""
    return min(max(round(STEPS_PER_ROOT * math.sqrt(labelled)), FEWEST_STEPS), MOST_STEPS)


def training_length(
    train: Mapping[str, Any], chips: int, labelled: int, labelled_per_chip: float, part: float = 1.0
) -> TrainingLength:
    """The length of a training that the values of the stage `train` describe, of `chips` training chips.

    Its batch must be set. `labelled_per_chip` is the mean number of labelled pixels of a chip, with each date; of a
    task with labels for whole chips `labelled` is their number, and this 1. `part` is how much of a chip a step takes,
    by area: with crops an epoch has as many pixels as without them, and more steps.
    """
    batch, is_chipwise = min(train["batch"], max(1, chips)), TASKS[train["task"]].is_of_chips
    if train["epochs"]:
        validate_every = round(steps_per_epoch(chips, batch) / part)
        steps = train["epochs"] * validate_every
    else:
        enough = max(FEWEST_STEPS, math.ceil(CHIP_PASSES * chips / batch)) if is_chipwise else default_steps(labelled)
        steps = train["steps"] or enough
        validate_every = math.ceil(steps / VALIDATIONS)
    passes = steps * batch * labelled_per_chip * part / max(1, labelled)
    return TrainingLength(steps, validate_every, labelled, passes, TASKS[train["task"]].counted_labels)


def learning_rate(settings: Settings, step: int, steps: int) -> float:
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


def best_validation(history: list[Any]) -> int | None:
    """Index of the validation with the best score, the first of equals; None without any."""
    scores = [validation_score(row.get("val")) for row in history]
    scored = [(score, -index) for index, score in enumerate(scores) if score is not None]
    return -max(scored)[1] if scored else None


def stops_early(history: list[Any], patience: int) -> bool:
    """Whether the last `patience` validations were not better than an earlier one; never where patience is 0."""
    best = best_validation(history)
    return bool(patience) and best is not None and len(history) - 1 - best >= patience
