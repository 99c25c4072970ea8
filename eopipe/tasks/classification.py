"""The task with one class for each chip: the majority of its pixels, from the mean of the outputs of its pixels."""

from eopipe.tasks.segmentation import ClassTask

TASK = ClassTask(
    name="classification",
    is_of_chips=True,
    losses=("cross_entropy", "focal"),
    mlm=("scene-classification", ("batch", "class")),
    hub="image-classification",
)
