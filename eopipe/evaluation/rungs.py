"""Rungs of successive halving: trials that trained a share of their steps are ranked, and the best of them continue.

Jamieson and Talwalkar 2016, AISTATS; Li et al. 2018, JMLR 18:185. A trial is scored by its last validation there, with
the score by which its training selects its best weights.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from eopipe.checkpoints.checkpoint import validation_score, validation_score_name
from eopipe.documents import read_model
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.models.model_folder import HISTORY, read_model_card


class ValidationScores(BaseModel):
    """The scores of a validation that can select the best weights, of which each task has one."""

    miou: float | None = None
    f1_macro: float | None = None
    rmse: float | None = None


class HistoryRow(BaseModel):
    """What a rung reads of a validation in the history of a training."""

    step: int
    val: ValidationScores | None


class ValidationHistory(BaseModel):
    """The history of a training that was validated."""

    validations: list[HistoryRow] = Field(min_length=1)


class RungRow(BaseModel):
    """A trial of a rung: its model folder, its last validated step, its score there, and its number of weights."""

    model_config = ConfigDict(extra="forbid")

    name: str
    step: int
    score: float | None
    weights: int
    promoted: bool


class Rung(BaseModel):
    """The document of a rung, as choose writes it: model folders that continue, and all trials, the best first."""

    model_config = ConfigDict(extra="forbid")

    promoted: list[str]
    trials: list[RungRow]
    score: str

    @classmethod
    def read(cls, path: Path) -> "Rung":
        """Read the file of a rung. Raises BadInputError for another document."""
        return read_model(path, cls, "a rung of trials")

    @property
    def stopped(self) -> set[str]:
        """The model folders of the trials that do not continue."""
        return {row.name for row in self.trials if not row.promoted}


@dataclass(frozen=True)
class RungTrial:
    """The training of a trial up to a rung; a greater `rank_score` is better, minus infinity where it is undefined."""

    name: str
    task: str
    step: int
    score_name: str | None
    score: float | None
    rank_score: float
    weights: int

    @classmethod
    def read(cls, folder: Path) -> "RungTrial":
        """Read the last validation of a model folder. Raises BadInputError where it was never validated."""
        card = read_model_card(folder)
        history = read_model(folder / HISTORY, ValidationHistory, "the history of a training that was validated")
        last = history.validations[-1]
        scores = last.val.model_dump() if last.val else {}
        value, name = validation_score(scores), validation_score_name(scores)
        rank_score, score = -math.inf if value is None else value, scores[name] if name else None
        return cls(folder.name, card["task"], last.step, name, score, rank_score, card["parameters"])


def rank_rung(models: Sequence[Path], count: int, previous: Path | None = None) -> Rung:
    """Rank the trials of a rung, of which `count` continue, or all where there are not more.

    With the rung before, only trials that it promoted continue; the others are the last. A trial without a defined
    score follows those with one. Equal scores are ranked by the number of weights, the fewest first, then by the order
    of the models.

    Raises UsageError for two folders of one name, BadInputError for models of other tasks, where no trial that may
    continue has a defined score, and for an earlier rung that promoted other trials than these.
    """
    if repeated := [name for name, number in Counter(path.name for path in models).items() if number > 1]:
        raise UsageError(f"two model folders have the name {repeated[0]}: give each trial a folder of another name")
    trials = [RungTrial.read(folder) for folder in models]
    _check_tasks(trials)
    candidates = {trial.name for trial in trials} if previous is None else _candidates(trials, previous)
    ranked = sorted(trials, key=lambda t: (t.name not in candidates, -t.rank_score, t.weights))
    names = [trial.score_name for trial in ranked if trial.name in candidates and trial.score_name]
    if not names:
        raise BadInputError(
            "no trial that may continue has a defined score in its last validation; use a split with labelled "
            "validation places"
        )
    promoted = [trial.name for trial in ranked if trial.name in candidates][:count]
    rows = [
        RungRow(name=t.name, step=t.step, score=t.score, weights=t.weights, promoted=t.name in promoted) for t in ranked
    ]
    return Rung(promoted=promoted, trials=rows, score=names[0])


def _candidates(trials: Sequence[RungTrial], previous: Path) -> set[str]:
    """The trials that the rung before promoted."""
    promoted = Rung.read(previous).promoted
    if missing := [name for name in promoted if name not in {trial.name for trial in trials}]:
        raise BadInputError(f"{previous} promoted {some_of(missing)}, whose models are missing; give them too")
    return set(promoted)


def _check_tasks(trials: Sequence[RungTrial]) -> None:
    """Raise BadInputError for trials whose scores cannot be compared."""
    tasks = sorted({trial.task for trial in trials})
    scores = sorted({trial.score_name for trial in trials if trial.score_name})
    if len(tasks) > 1 or len(scores) > 1:
        kinds = f"tasks {', '.join(tasks)}" if len(tasks) > 1 else f"scores {', '.join(scores)}"
        raise BadInputError(f"the trials have different {kinds}; compare trainings of one task on one split")


def stopped_trials(rungs: Sequence[Path], names: Sequence[str]) -> set[str]:
    """The model folders, of these names, of the trials that a rung stopped.

    Raises BadInputError for a file that is not a rung, and for one of other trials.
    """
    stopped: set[str] = set()
    for path in rungs:
        rung = Rung.read(path)
        if not {row.name for row in rung.trials} & set(names):
            raise BadInputError(f"{path} has none of the trials {some_of(list(names))}; give the rungs of these trials")
        stopped |= rung.stopped
    return stopped & set(names)
