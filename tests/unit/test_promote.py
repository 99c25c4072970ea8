"""Rungs of trials: which continue after a part of their trainings, by the last validation of each."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import describe_trial, save_model, stage

from eopipe.errors import BadInputError, UsageError
from eopipe.evaluation.trials import rank_rung
from eopipe.models.model_folder import HISTORY
from eopipe.provenance.jobs import read_jobs
from eopipe.stages.choose import choose
from eopipe.text_files import read_json, write_json


def train_trial(folder: Path, *scores: dict[str, Any] | None, weights: int = 10, task: str = "segmentation") -> Path:
    """The model folder of a trial that was validated after each 30 steps, with these scores."""
    classes = ("height",) if task == "regression" else ("water", "land")
    rows = [{"step": 30 * n, "loss": 0.1 / n, "learning_rate": 0.01, "val": val} for n, val in enumerate(scores, 1)]
    trained, head = describe_trial(task, classes), {"head": torch.full((weights,), 0.5)}
    return save_model(folder, trained, weights=head, history=rows, settings={"steps": 270})


def train_trials(folder: Path, **last: float | None) -> list[Path]:
    """A trial of each name with this mIoU in its last validation."""
    return [train_trial(folder / name, {"miou": 0.9}, {"miou": value, "loss": 0.3}) for name, value in last.items()]


def promote(models: list[Path], rung: Path, count: int, *more: object) -> int:
    """Run the stage; return its exit code."""
    return stage("choose", "--reducer", "halving", "--models", *models, "--count", count, "--rung", rung, *more)


def test_the_best_by_the_last_validation_continue(tmp_path: Path) -> None:
    models = train_trials(tmp_path / "rung-0", a=0.2, b=0.6, c=0.4)
    # Its earlier validation is the best of all.
    models.append(train_trial(tmp_path / "rung-0/d", {"miou": 0.99}, {"miou": 0.1}))
    assert promote(models, tmp_path / "rung.json", 2) == 0
    row = {"step": 60, "weights": 10}
    assert read_json(tmp_path / "rung.json") == {
        "promoted": ["b", "c"],
        "score": "miou",
        "trials": [
            {"name": "b", "score": 0.6, "promoted": True, **row},
            {"name": "c", "score": 0.4, "promoted": True, **row},
            {"name": "a", "score": 0.2, "promoted": False, **row},
            {"name": "d", "score": 0.1, "promoted": False, **row},
        ],
    }


def test_of_equal_scores_fewer_weights_are_better_then_the_first(tmp_path: Path) -> None:
    sizes = {"large": 30, "small-b": 20, "small-a": 20}
    models = [train_trial(tmp_path / name, {"miou": 0.5}, weights=size) for name, size in sizes.items()]
    assert rank_rung(models, 2).promoted == ["small-b", "small-a"]
    assert rank_rung(models[::-1], 3).promoted == ["small-a", "small-b", "large"]


@pytest.mark.parametrize("val", [{"miou": None}, {"loss": 0.1}, None])
def test_a_trial_without_a_defined_score_is_the_last(tmp_path: Path, val: dict[str, Any] | None) -> None:
    undefined = train_trial(tmp_path / "undefined", {"miou": 0.9}, val, weights=1)
    models = [undefined, *train_trials(tmp_path, low=0.0)]
    ranked = rank_rung(models, 1)
    assert [(row.name, row.score) for row in ranked.trials] == [("low", 0.0), ("undefined", None)]
    assert rank_rung(models, 2).promoted == ["low", "undefined"]
    with pytest.raises(BadInputError, match=r"^no trial that may continue has a defined score in its last validation"):
        rank_rung([undefined], 1)


def test_the_lowest_error_of_values_and_the_highest_f1_are_best(tmp_path: Path) -> None:
    values = [
        train_trial(tmp_path / name, {"rmse": rmse, "r2": 0.5}, task="regression")
        for name, rmse in (("rough", 2.0), ("fine", 1.0))
    ]
    ranked = rank_rung(values, 1)
    assert (ranked.promoted, ranked.score, [row.score for row in ranked.trials]) == (["fine"], "rmse", [1.0, 2.0])
    several = [
        train_trial(tmp_path / name, {"f1_macro": f1}, task="multilabel") for name, f1 in (("low", 0.1), ("high", 0.2))
    ]
    assert (rank_rung(several, 1).promoted, rank_rung(several, 1).score) == (["high"], "f1_macro")
    with pytest.raises(BadInputError, match=r"^the trials have different tasks multilabel, regression; compare "):
        rank_rung([values[0], several[0]], 1)


def test_only_trials_of_the_rung_before_continue(tmp_path: Path) -> None:
    first = train_trials(tmp_path / "rung-0", a=0.5, b=0.6, c=0.7, d=0.4)
    assert promote(first, tmp_path / "rung-0.json", 2) == 0
    longer = {"b": train_trial(tmp_path / "rung-1/b", *[{"miou": 0.65}] * 4)}
    longer["c"] = train_trial(tmp_path / "rung-1/c", *[{"miou": 0.3}] * 4)
    models = [longer.get(path.name, path) for path in first]
    more = "--previous", tmp_path / "rung-0.json"
    assert promote(models, tmp_path / "rung-1.json", 1, *more) == 0
    document = read_json(tmp_path / "rung-1.json")
    assert document["promoted"] == ["b"]
    # Stopped trials are the last, though their scores are better than that of c.
    assert [(row["name"], row["step"]) for row in document["trials"]] == [("b", 120), ("c", 120), ("a", 60), ("d", 60)]
    assert rank_rung(models, 4, tmp_path / "rung-0.json").promoted == ["b", "c"]
    assert rank_rung(list(longer.values()), 1, tmp_path / "rung-0.json").promoted == ["b"]


def test_fewer_trials_than_the_count_all_continue(tmp_path: Path) -> None:
    ranked = rank_rung(train_trials(tmp_path, a=0.2, b=0.6), 5)
    assert ranked.promoted == ["b", "a"]
    assert all(row.promoted for row in ranked.trials)


def test_the_file_depends_on_nothing_but_the_trainings(tmp_path: Path) -> None:
    scores = {"a": 0.2, "b": 0.6, "c": 0.4}
    models = train_trials(tmp_path / "first", **scores), train_trials(tmp_path / "elsewhere/rung", **scores)[::-1]
    for number, of_run in enumerate(models):
        assert promote(of_run, tmp_path / f"{number}.json", 2) == 0
    assert (tmp_path / "0.json").read_bytes() == (tmp_path / "1.json").read_bytes()
    assert str(tmp_path) not in (tmp_path / "0.json").read_text()


def test_wrong_inputs_are_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = train_trials(tmp_path, a=0.2, b=0.6)
    rung, other = tmp_path / "rung.json", tmp_path / "other.json"
    assert promote([*models, models[0]], rung, 1) == UsageError.code
    assert capsys.readouterr().err == (
        "error: two model folders have the name a: give each trial a folder of another name\n"
    )
    assert promote(models, rung, 0) == UsageError.code
    capsys.readouterr()
    write_json(other, {"trials": []})
    assert promote(models, rung, 1, "--previous", other) == BadInputError.code
    message = capsys.readouterr().err
    assert message.startswith(f"error: {other} is not a rung of trials: ")
    assert message.count("\n") == 1
    assert promote(train_trials(tmp_path / "others", c=0.5), other, 1) == 0
    assert promote(models, rung, 1, "--previous", other) == BadInputError.code
    assert capsys.readouterr().err == f"error: {other} promoted c, whose models are missing; give them too\n"
    never = train_trial(tmp_path / "never")
    assert promote([never], rung, 1) == BadInputError.code
    message = capsys.readouterr().err
    assert message.startswith(f"error: {never / HISTORY} is not the history of a training that was validated: ")
    assert message.count("\n") == 1
    (never / HISTORY).unlink()
    with pytest.raises(BadInputError, match=r"^cannot read .*history.json: No such file or directory$"):
        rank_rung([never], 1)
    write_json(never / HISTORY, {"validations": [{"step": 30, "val": {"miou": "high"}}]})
    with pytest.raises(BadInputError, match=r"history.json is not the history of a training .*miou"):
        rank_rung([never], 1)
    assert not rung.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--reducer halving --count 1", "halving needs --rung"),
        ("--reducer halving", "halving needs --rung, --count"),
        ("--reducer halving --rung {0}/r.json --count 1 --model {0}/m", "halving does not use --model"),
        ("--reducer mean --score miou", "mean needs --model and does not use --score"),
        ("--model {0}/m --page {0}/p.html --chips c --tiles t", "best needs --classes, --labels, --leaderboard"),
    ],
)
def test_what_a_reducer_lacks_or_does_not_use_is_refused_before_anything_is_read(
    words: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [tmp_path / "gone", tmp_path / "missing"]
    assert stage("choose", "--models", *models, *words.format(tmp_path).split()) == UsageError.code
    assert capsys.readouterr().err == f"error: choose --reducer {sentence}\n"
    assert not [*tmp_path.iterdir()]
    with pytest.raises(UsageError, match=r"^choose --reducer mean needs --model$"):
        choose((tmp_path,), reducer="mean")


def test_the_run_record_of_a_rung_lies_beside_it_and_its_command_of_before_is_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models, rung = train_trials(tmp_path, a=0.2, b=0.6), tmp_path / "rungs/rung-0.json"
    assert promote(models, rung, 1) == 0
    assert sorted(path.name for path in rung.parent.iterdir()) == ["rung-0.json", "rung-0.json.run.json"]
    record = tmp_path / "rungs/rung-0.json.run.json"
    written = read_json(record)
    assert [(row["port"], row["beside"]) for row in written["outputs"]] == [("rung", True)]
    assert (written["stage"], written["settings"]["reducer"]) == ("choose", "halving")
    # A record of before is one of the present stage.
    del written["settings"]["reducer"]
    write_json(record, written | {"stage": "promote"})
    [job] = read_jobs([record])
    assert (job.stage, job.settings) == ("choose", {"count": 1, "reducer": "halving"})
    capsys.readouterr()
    for name, words in {"promote": "choose --reducer halving", "combine": "choose --reducer mean"}.items():
        assert stage(name, "--models", *models) == UsageError.code
        sentence = f"error: there is no command {name}; eopipe {words} has its arguments now\n"
        assert capsys.readouterr().err == sentence


@pytest.mark.launch
def test_the_stage_loads_no_torch(tmp_path: Path) -> None:
    models = train_trials(tmp_path, a=0.2, b=0.6)
    code = (
        "import sys; from pathlib import Path; from eopipe.evaluation.trials import rank_rung; "
        "rank_rung([Path(name) for name in sys.argv[1:]], 1); print('torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, *map(str, models)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "False\n"
