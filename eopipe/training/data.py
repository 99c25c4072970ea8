"""What the labels of a training ask of it: whether they fit its task, how classes weigh, how values are scaled."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.chips.chips import chip_classes, is_continuous
from eopipe.chips.statistics import label_scaling
from eopipe.errors import BadInputError
from eopipe.tiles.store import NO_LABEL, Tiles
from eopipe.training_job import Settings

log = logging.getLogger("eopipe")
Pairs = list[tuple[Tiles, Tiles]]


def settled(
    settings: Settings, split: dict[str, Any], pairs: Pairs, statistics: dict[str, Any], path: Path
) -> Settings:
    """The settings with what the training labels decide: weights of the classes, or mean and deviation of values.

    Raises BadInputError where the labels are no labels of the task.
    """
    check_labels(settings.task, pairs[0][1])
    if settings.task == "regression":
        return replace(settings, target=label_scaling(statistics, path))
    names = pairs[0][1].names
    counts = chip_counts(split, pairs) if settings.task == "classification" else split["pixels"]["train"]
    return replace(settings, weights=class_weights(settings, counts, names))


def check_labels(task: str, labels: Tiles) -> None:
    """Raise BadInputError for values where a task needs classes, and the reverse."""
    if is_continuous(labels) and task != "regression":
        raise BadInputError(
            f"{labels.path} measures {labels.names[0]}, and train.task {task} needs classes; "
            "set train.task to regression, or label without --measure"
        )
    if not is_continuous(labels) and task == "regression":
        raise BadInputError(
            f"{labels.path} holds the classes {', '.join(labels.names)}, and train.task regression needs numbers; "
            "give label.measure"
        )


def chip_counts(split: dict[str, Any], pairs: Pairs) -> dict[str, int]:
    """Training chips of each class, by most of their pixels; raises BadInputError for fewer than two classes."""
    samples, names = split["samples"]["train"], pairs[0][1].names
    found = chip_classes(pairs, samples, split["chip"])
    counts = np.bincount(found[found != NO_LABEL], minlength=len(names))
    told = dict(zip(names, counts.tolist(), strict=True))
    if not counts.any():
        raise BadInputError("no training chip has a label, so there is no class to learn; look at labels and masks")
    if np.count_nonzero(counts) < 2:
        only = names[int(counts.argmax())]
        raise BadInputError(
            f"by the majority of its pixels every training chip is {only}, so there is nothing to tell apart; "
            "choose split.chip smaller, or other classes"
        )
    log.info("event=chips %s", " ".join(f"{name!r}={count}" for name, count in told.items()))
    return told


def class_weights(settings: Settings, counts: dict[str, int], classes: tuple[str, ...]) -> tuple[float, ...]:
    """How much a pixel or chip of each class counts, if not all alike."""
    from eopipe.training.losses import balanced

    return balanced(counts, classes) if settings.class_weights == "balanced" else ()
