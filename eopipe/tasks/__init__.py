"""Tasks: the class of each pixel, the class or the labels of each chip, or the value of each pixel.

Each module but `task` and `tables` is a task, named as in `train.task`, and has it as `TASK`.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from eopipe.errors import BadInputError
from eopipe.tasks.task import Scale, Task
from eopipe.train_options import TASK_NAMES

TASKS: dict[str, Task] = {name: import_module(f"{__name__}.{name}").TASK for name in TASK_NAMES}
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
