"""Trials of hyper-parameters: models of one split with their maps, ranked by a score of the validation places alone.

At rungs of successive halving trials that trained a share of their steps are ranked, and the best of them continue
(Jamieson and Talwalkar 2016, AISTATS; Li et al. 2018, JMLR 18:185): by their last validation, with the score by which
a training selects its best weights.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from eopipe.checkpoints.checkpoint import validation_score, validation_score_name
from eopipe.contract import stage
from eopipe.documents import read_model
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.evaluation.intervals import rounded
from eopipe.evaluation.maps import EvaluationData
from eopipe.evaluation.paired import PairedTables, RunComparison, RunScores
from eopipe.models.model_folder import HISTORY, read_model_card, weights_file
from eopipe.publish import sha256
from eopipe.tasks import LOWER_IS_BETTER, TASKS
from eopipe.text_files import read_json

PLACES = "val"
# The document of the trials in the folder of the chosen model.
LEADERBOARD = "trials.json"
# What a workflow puts before the name of a trial to name its model folder.
TRIAL = "model-trial-"


@dataclass(frozen=True)
class TrialModel:
    """The model of a trial: the options of its training, its steps, its number of weights and their sha256.

    `all_steps` are the steps of a training to its end; a trial that is `stopped` ended at a rung before that.
    """

    folder: Path
    task: str
    classes: tuple[str, ...]
    options: dict[str, Any]
    steps: int | None
    weights: int
    sha256: str
    all_steps: int | None = None
    stopped: bool = False

    @property
    def name(self) -> str:
        """The name of its folder, without what a workflow puts before the trial's name."""
        return self.folder.name.removeprefix(TRIAL)

    @classmethod
    def read(cls, folder: Path) -> "TrialModel":
        """Read the item of a model folder, and compare its weights with their checksum.

        Raises BadInputError for a folder that is not a model's, IntegrityError for other weights.
        """
        card, history = read_model_card(folder), folder / HISTORY
        options = {name: value for name, value in card["settings"].items() if name in _training_options()}
        rows = read_json(history).get("validations") if history.is_file() else []
        # A training that stopped early has fewer steps than its settings.
        all_steps = card["settings"].get("steps")
        steps = rows[-1].get("step") if rows else all_steps
        digest = sha256(weights_file(folder))
        return cls(folder, card["task"], tuple(card["classes"]), options, steps, card["parameters"], digest, all_steps)


@cache
def _training_options() -> frozenset[str]:
    return frozenset(port.name for port in stage("train").options)


@dataclass(frozen=True)
class RankedTrials:
    """Trials with their maps, sorted by a score, the best first and those stopped at a rung last.

    The differences are to the first.
    """

    models: list[TrialModel]
    runs: list[EvaluationData]
    comparison: RunComparison
    score: str
    split_sha256: str

    @property
    def winner(self) -> TrialModel:
        return self.models[0]

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The options of the training that differ between trials, for each trial; None where a model lacks one."""
        names = sorted({name for model in self.models for name in model.options})
        of_models = {name: [model.options.get(name) for model in self.models] for name in names}
        differing = {name: values for name, values in of_models.items() if any(v != values[0] for v in values)}
        return [{name: values[number] for name, values in differing.items()} for number in range(len(self.models))]

    def json_document(self) -> dict[str, Any]:
        """Everything that was compared, without times and paths: the same inputs give the same document."""
        rows = zip(self.models, self.settings, self.comparison.runs, strict=True)
        return {
            "places": PLACES,
            "score": self.score,
            "samples": self.comparison.count,
            "pieces": self.comparison.pieces,
            "chosen": self.winner.name,
            "split_sha256": self.split_sha256,
            "trials": [_row(*row) for row in rows],
        }


def _row(model: TrialModel, settings: dict[str, Any], scores: RunScores) -> dict[str, Any]:
    row: dict[str, Any] = {"name": model.name, "settings": settings, "stopped": model.stopped}
    row |= {"steps": model.steps, "all_steps": model.all_steps, "weights": model.weights}
    row |= {"weights_sha256": model.sha256, "significant": None}
    if scores.differences is None:
        row |= {"differences": None, "intervals_of_differences": None}
    else:
        row["significant"] = {key: scores.is_significant(key) for key in scores.differences}
    return row | scores.json_document()


def rank_trials(
    models: Sequence[Path],
    maps: Sequence[Path],
    tiles: tuple[Path, ...],
    labels: tuple[Path, ...],
    chips: Path,
    score: str | None = None,
    rungs: tuple[Path, ...] = (),
) -> RankedTrials:
    """Rank models by a score of their maps in the validation places; the maps are in the order of the models.

    Without a score it is the default of the task. Equal scores (six digits) are ranked by the number of weights, the
    fewest first, then by the order of the models. A trial without a defined score is the last. Trials that one of the
    rungs stopped follow all others, since what they would have reached is unknown.

    Raises UsageError for another number of maps, for two folders of one name and for a score that the task does not
    have, BadInputError for models, maps and rungs that do not belong together, where all trials were stopped, and where
    none of the others has a defined score.
    """
    if not maps or len(maps) % len(models):
        raise UsageError(f"{len(maps)} maps for {len(models)} models: give the same number of maps for each model")
    if repeated := [name for name, count in Counter(path.name for path in models).items() if count > 1]:
        raise UsageError(f"two model folders have the name {repeated[0]}: give each trial a folder of another name")
    trials, count = _read_trials(models, rungs), len(maps) // len(models)
    runs = []
    for number, trial in enumerate(trials):
        of_trial = tuple(maps[number * count : (number + 1) * count])
        runs.append(EvaluationData.read(of_trial, tiles, labels, chips))
        _check_maps(trial, runs[-1])
    key = _score_of(runs[0].task.name, score)
    tables = PairedTables.read(runs, [trial.name for trial in trials], PLACES)
    # What is lower the better a score is; infinite where that is not defined.
    sign, values = 1 if key in LOWER_IS_BETTER else -1, [rounded(scores[key]) for scores in tables.scores()]
    losses = [math.inf if value is None else sign * value for value in values]
    if not any(math.isfinite(loss) for loss, trial in zip(losses, trials, strict=True) if not trial.stopped):
        raise BadInputError(f"{key} is not defined for any trial in the validation places; choose another score")
    order = sorted(range(len(trials)), key=lambda n: (trials[n].stopped, losses[n], trials[n].weights, n))
    ranked = [trials[number] for number in order], [runs[number] for number in order]
    return RankedTrials(*ranked, tables.compared(order), key, sha256(chips))


def _read_trials(models: Sequence[Path], rungs: Sequence[Path]) -> list[TrialModel]:
    """The models of trials. Raises BadInputError where the rungs stopped all of them."""
    stopped = stopped_trials(rungs, [folder.name for folder in models])
    if len(stopped) == len(models):
        raise BadInputError("all trials were stopped at a rung; give the model of one that was trained to its end too")
    return [replace(TrialModel.read(folder), stopped=folder.name in stopped) for folder in models]


def _check_maps(trial: TrialModel, run: EvaluationData) -> None:
    """Raise BadInputError for maps that a model cannot have made."""
    if (trial.task, trial.classes) != (run.task.name, run.names):
        kinds = [
            f"{task} of {', '.join(names)}" for task, names in ((trial.task, trial.classes), (run.task.name, run.names))
        ]
        raise BadInputError(
            f"model {trial.name} is of {kinds[0]}, its maps and labels are of {kinds[1]}; give the maps of each model "
            "in the order of the models"
        )


def _score_of(task: str, score: str | None) -> str:
    """A score of a task, by default its first. Raises UsageError for a score of another task."""
    options = TASKS[task].ranking_scores()
    if score and score not in options:
        raise UsageError(f"task {task} does not have the score {score}; choose by {', '.join(options)}")
    return score or options[0]


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


class RungRow(BaseModel, extra="forbid"):
    """A trial of a rung: its model folder, its last validated step, its score there, and its number of weights."""

    name: str
    step: int
    score: float | None
    weights: int
    promoted: bool


class Rung(BaseModel, extra="forbid"):
    """The document of a rung, as choose writes it: model folders that continue, and all trials, the best first."""

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
