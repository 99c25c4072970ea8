"""The scores of a run, for a table or a figure of a paper."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eopipe.arrays import IntArray
from eopipe.errors import BadInputError
from eopipe.evaluation.metrics_document import Method, RunMetrics, ScoresOfClasses
from eopipe.evaluation.metrics_document import read_metrics as read_document
from eopipe.reporting.scores import measures_of
from eopipe.reporting.wording import BASELINES
from eopipe.tasks import TASKS
from eopipe.tasks.task import Measure
from eopipe.text_table import html_table

# What evaluate scores, by its key, with a plain name.
METHODS: dict[Method, str] = {"model": "model", **BASELINES, "simple": "majority class"}
MEAN = "mean of the training"


class Score(NamedTuple):
    """A score of a method, over all classes (`class_name` is empty) or of one, with its confidence interval if any.

    Shares are from 0 to 1; errors of a regression are in the unit of its values.
    """

    method: str
    class_name: str
    name: str
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Metrics:
    """What the stage evaluate measured on the test places of a run.

    `content` has the scores by attributes; `level` is the confidence level (0.95), 0 where there are no intervals.
    """

    content: RunMetrics

    @property
    def document(self) -> dict[str, Any]:
        """All of metrics.json."""
        return self.content.json_document()

    @property
    def task(self) -> str:
        """The learning task: segmentation, classification, multilabel or regression."""
        return self.content.task

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, by their numbers; of a regression the name of the quantity."""
        return tuple(self.content.classes)

    @property
    def level(self) -> float:
        """The level of the confidence intervals; 0 where there are none."""
        return float(self.content.intervals.level)

    @property
    def confusion(self) -> IntArray:
        """Pixels, or chips, of each true class (row) that the map has in each class (column).

        Raises BadInputError for scores of a task without such a table.
        """
        if not isinstance(self.content.model, ScoresOfClasses):
            raise BadInputError(f"scores of task {self.task} have no confusion matrix")
        return np.array(self.content.model.confusion, np.int64)

    @property
    def scores(self) -> list[Score]:
        """All scores, of the model first: `pandas.DataFrame(metrics.scores)` is a table of them."""
        return [*self._scores()]

    @property
    def members(self) -> list[dict[str, float | None]]:
        """The scores of each member of an ensemble by name, scores of a class as `iou:forest`; else nothing.

        They are shares, or in the unit of the values. Seeds alone make their spread:
        `pandas.DataFrame(metrics.members).std()` is its standard deviation (n - 1).
        """
        return [dict(member.scores) for member in self.content.members]

    def __getitem__(self, name: str) -> Score:
        """A score of the model over all classes, such as accuracy, miou or rmse. Raises KeyError for another."""
        measure = self._measure(name)
        ends = self.content.intervals.model.get(measure) or (None, None)
        return Score(METHODS["model"], "", name, self.content.model.score(measure), *ends)

    def gain(self, name: str) -> dict[str, Score]:
        """The model minus the baselines with gains, in a score over all classes, with the paired interval if any."""
        measure, gains = self._measure(name), {}
        score = self.content.model.score(measure)
        for key in self.content.compared:
            baseline, ends = self.content.methods[key].score(measure), self.content.gains(key).get(measure)
            value = None if score is None or baseline is None else score - baseline
            gains[BASELINES[key]] = Score(f"model minus {BASELINES[key]}", "", name, value, *(ends or (None, None)))
        return gains

    def __repr__(self) -> str:
        """The scores of the model over all classes."""
        values = ((name, self[key].value) for key, name in measures_of(self.task))
        text = ", ".join(f"{name} {value:.3f}" for name, value in values if value is not None)
        return f"<scores of task {self.task}: {text or 'none'}>"

    def _repr_html_(self) -> str:
        measures = measures_of(self.task)
        overall = {(score.method, score.name): score for score in self._scores() if not score.class_name}
        methods = dict.fromkeys(method for method, _ in overall)
        rows = [(method, *(_text(overall.get((method, key))) for key, _ in measures)) for method in methods]
        return html_table(repr(self)[1:-1], ("", *(name for _, name in measures)), rows)

    def _measure(self, name: str) -> Measure:
        """A score by its name. Raises KeyError for another."""
        for key, _ in measures_of(self.task):
            if key == name:
                return key
        raise KeyError(f"{name}; there are {', '.join(key for key, _ in measures_of(self.task))}")

    def _scores(self) -> Iterator[Score]:
        ends = self.content.intervals.model
        for key, scores in self.content.methods.items():
            is_mean = key == "simple" and not TASKS[self.task].has_classes
            method, intervals = MEAN if is_mean else METHODS[key], ends if key == "model" else {}
            for measure, _ in measures_of(self.task):
                yield Score(method, "", measure, scores.score(measure), *(intervals.get(measure) or (None, None)))
            for class_name, of_class in scores.per_class.items():
                for name, value in sorted(of_class.model_dump(by_alias=True).items()):
                    interval = intervals.get(f"{name}:{class_name}") or (None, None)
                    yield Score(method, class_name, name, value, *interval)


def _text(score: Score | None) -> str:
    if score is None or score.value is None:
        return "-"
    interval = f" ({score.low:.3f} to {score.high:.3f})" if score.low is not None and score.high is not None else ""
    return f"{score.value:.3f}{interval}"


def read_metrics(results: str | Path) -> Metrics:
    """Read the scores of a run: the folder of its results, or its `metrics.json`.

    >>> import eopipe
    >>> metrics = eopipe.read_metrics("results")
    >>> correct = metrics.confusion.trace() / metrics.confusion.sum()
    >>> metrics["accuracy"].value == round(float(correct), 6)
    True

    Raises BadInputError for a folder without scores, and for another file.
    """
    path = Path(results)
    path = path / "metrics.json" if path.is_dir() else path
    if not path.is_file():
        raise BadInputError(f"there is no {path}; a run writes it with evaluate")
    return Metrics(read_document(path))
