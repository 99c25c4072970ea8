"""Tasks: the class of each pixel, the class or the labels of each chip, or the value of each pixel."""

from collections.abc import Mapping
from pathlib import Path

from eopipe.errors import BadInputError
from eopipe.tasks.classes import ClassTask
from eopipe.tasks.label_sets import LabelSetTask
from eopipe.tasks.task import Scale, Task
from eopipe.tasks.values import ValueTask

# By the names of `train.task`. What differs between tasks follows from these objects, so that another task is one more.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        ClassTask(
            name="segmentation",
            is_of_chips=False,
            losses=("cross_entropy", "focal", "dice", "lovasz"),
            mlm=("semantic-segmentation", ("batch", "class", "height", "width")),
            hub="image-segmentation",
        ),
        ClassTask(
            name="classification",
            is_of_chips=True,
            losses=("cross_entropy", "focal"),
            mlm=("scene-classification", ("batch", "class")),
            hub="image-classification",
        ),
        LabelSetTask(
            name="multilabel",
            is_of_chips=True,
            losses=("binary_cross_entropy", "binary_focal"),
            mlm=("classification", ("batch", "class")),
            hub="image-classification",
        ),
        ValueTask(
            name="regression",
            is_of_chips=False,
            losses=("huber", "mse"),
            mlm=("regression", ("batch", "channel", "height", "width")),
        ),
    )
}
SEGMENTATION = TASKS["segmentation"]
SCORES = [score for task in TASKS.values() for score in task.scores]
LOWER_IS_BETTER = {score.key for score in SCORES if score.is_lower_better}
HAVE_UNIT = {score.key for score in SCORES if score.has_unit}
SCALES: dict[str, Scale] = {score.key: score.scale for score in SCORES}


def task_of_map(tags: Mapping[str, str], path: Path) -> Task:
    """The task in the tags of a map. Raises BadInputError for another."""
    name = tags.get("task", "segmentation")
    if name not in TASKS:
        raise BadInputError(f"{path} is a map of the task {name}; there are {', '.join(TASKS)}")
    return TASKS[name]
