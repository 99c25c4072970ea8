"""The scores of a run, for a table or a figure of a paper."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eopipe.arrays import IntArray
from eopipe.errors import BadInputError
from eopipe.inspection.notebook import html_table
from eopipe.reporting.scores import measures_of
from eopipe.reporting.verdict import GAINS
from eopipe.reporting.verdict import read_metrics as read_document
from eopipe.reporting.wording import TREES

# What evaluate scores, by its key, with a plain name.
METHODS = {"model": "model", **TREES, "majority": "majority class", "mean": "mean of the training"}


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

    `document` is all of metrics.json, `level` that of the confidence intervals (0.95), 0 where there are none.
    """

    document: dict[str, Any]

    @property
    def task(self) -> str:
        """The learning task: segmentation, classification, multilabel or regression."""
        return str(self.document.get("task", "segmentation"))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, by their numbers; of a regression the name of the quantity."""
        return tuple(self.document["classes"])

    @property
    def level(self) -> float:
        """The level of the confidence intervals; 0 where there are none."""
        return float((self.document.get("intervals") or {}).get("level", 0))

    @property
    def confusion(self) -> IntArray:
        """Pixels, or chips, of each true class (row) that the map has in each class (column).

        Raises BadInputError for scores of a task without such a table.
        """
        if "confusion" not in self.document["model"]:
            raise BadInputError(f"scores of task {self.task} have no confusion matrix")
        return np.array(self.document["model"]["confusion"], np.int64)

    @property
    def scores(self) -> list[Score]:
        """All scores, of the model first: `pandas.DataFrame(metrics.scores)` is a table of them."""
        return [*self._scores()]

    def __getitem__(self, name: str) -> Score:
        """A score of the model over all classes, such as accuracy, miou or rmse. Raises KeyError for another."""
        for score in self._scores():
            if (score.method, score.class_name, score.name) == (METHODS["model"], "", name):
                return score
        available = ", ".join(key for key, _ in measures_of(self.document))
        raise KeyError(f"{name}; there are {available}")

    def gain(self, name: str) -> dict[str, Score]:
        """The model minus each baseline of trees, in a score over all classes, with the paired interval if any."""
        gains = {}
        for key, method in TREES.items():
            if key in self.document:
                score, baseline = self.document["model"][name], self.document[key][name]
                value = None if score is None or baseline is None else score - baseline
                gains[method] = Score(f"model minus {method}", "", name, value, *self._interval(GAINS[key], name))
        return gains

    def __repr__(self) -> str:
        """The scores of the model over all classes."""
        values = ((name, self[key].value) for key, name in measures_of(self.document))
        text = ", ".join(f"{name} {value:.3f}" for name, value in values if value is not None)
        return f"<scores of task {self.task}: {text or 'none'}>"

    def _repr_html_(self) -> str:
        measures = measures_of(self.document)
        overall = {(score.method, score.name): score for score in self._scores() if not score.class_name}
        methods = dict.fromkeys(method for method, _ in overall)
        rows = [(method, *(_text(overall.get((method, key))) for key, _ in measures)) for method in methods]
        return html_table(repr(self)[1:-1], ("", *(name for _, name in measures)), rows)

    def _scores(self) -> Iterator[Score]:
        for key, method in METHODS.items():
            values = self.document.get(key, {})
            for name, _ in measures_of(self.document):
                if name in values:
                    interval = self._interval("model", name) if key == "model" else (None, None)
                    yield Score(method, "", name, values[name], *interval)
            for class_name, of_class in values.get("per_class", {}).items():
                for name, value in of_class.items():
                    interval = self._interval("model", f"{name}:{class_name}") if key == "model" else (None, None)
                    yield Score(method, class_name, name, value, *interval)

    def _interval(self, kind: str, name: str) -> tuple[float | None, float | None]:
        low, high = ((self.document.get("intervals") or {}).get(kind) or {}).get(name) or (None, None)
        return low, high


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
