"""Trials: the best model by its map of the validation places, with a leaderboard that any order of them gives."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from builders import describe_trial, read_bands, save_model, write_split
from test_compare import CHIP, CLASSES, EDGE, classes, store, with_errors, write_bands

from eopipe.arrays import AnyArray
from eopipe.cli import main
from eopipe.contract import stage
from eopipe.errors import BadInputError, UsageError
from eopipe.evaluation.metrics_document import metrics_type
from eopipe.evaluation.trials import LEADERBOARD, RankedTrials, rank_trials
from eopipe.publish import MANIFEST
from eopipe.reporting.leaderboard import Leaderboard
from eopipe.reporting.page import STYLE, page_source, render_trials
from eopipe.tasks import LOWER_IS_BETTER, TASKS
from eopipe.tasks.task import Task
from eopipe.text_files import read_json, write_json

VAL, TEST = np.s_[:, : EDGE // 2], np.s_[:, EDGE // 2 :]


def rows_of(ranked: RankedTrials) -> list[tuple[str, ...]]:
    """Heads and rows of the leaderboard."""
    board = Leaderboard(ranked.json_document(), ranked.runs[0].task.name, ranked.runs[0].unit)
    return [board.heads, *board.rows]


class Trials:
    """Trials of one image in a folder, or of several of one place, whose west validates and whose east tests."""

    def __init__(
        self, folder: Path, truth: AnyArray, task: str = "segmentation", images: tuple[str, ...] = ("s",)
    ) -> None:
        (folder / "labels").mkdir(parents=True)
        self.folder, self.task, self.is_value, self.images = folder, task, task == "regression", images
        self.names = ("height",) if self.is_value else CLASSES
        for name in images:
            store(folder / f"{name}.zarr", {"image": np.ones((1, EDGE, EDGE), np.uint16)}, ("red",))
            store(folder / f"labels/{name}.zarr", {"label": truth}, self.names)
        self.models: list[Path] = []
        self.maps: list[Path] = []
        self.rungs: tuple[Path, ...] = ()
        self.write_split()

    def write_split(self, split: str = "val") -> None:
        """Chips of the west validate, or are of another split."""
        positions = [(row, col) for row in range(0, EDGE, CHIP) for col in range(0, EDGE, CHIP)]
        corners = [(image, *position) for image in range(len(self.images)) for position in positions]
        samples: dict[str, Any] = {"train": [], "val": [], "test": [c for c in corners if c[2] >= EDGE // 2]}
        samples[split] = samples[split] + [c for c in corners if c[2] < EDGE // 2]
        write_split(self.folder / "split.json", [*self.images], self.names, CHIP, samples)

    def add(self, name: str, mapped: AnyArray, *, weights: int = 10, history: int = 0, **settings: Any) -> None:
        """A trial with its map (y, x), or (class, y, x), and a model of this number of weights."""
        rows = [{"step": history, "val": None, "loss": 0.1}] if history else []
        trained, head = describe_trial(self.task, self.names), {"head": torch.full((weights,), 0.5)}
        save_model(self.folder / name, trained, weights=head, history=rows, settings={"steps": 300} | settings)
        self.models.append(self.folder / name)
        self.add_map(f"{name}.tif", mapped, self.images[0])

    def add_map(self, name: str, mapped: AnyArray, image: str) -> None:
        """A map of an image, of the last trial."""
        tags = {"task": self.task, "scenes": image, "min_share": 0.3}
        self.maps.append(write_bands(self.folder / name, mapped, np.nan if self.is_value else 255, self.names, **tags))

    def write_rung(self, *promoted: str) -> None:
        """A rung that promoted the trials of these names, and stopped the others."""
        rows = [
            {"name": path.name, "step": 90, "score": 0.5, "weights": 10, "promoted": path.name in promoted}
            for path in self.models
        ]
        path = self.folder / f"rung-{len(self.rungs)}.json"
        write_json(path, {"promoted": list(promoted), "trials": rows, "score": "miou"})
        self.rungs += (path,)

    def rank(self, score: str | None = None) -> RankedTrials:
        """The trials, the best first."""
        tiles, labels = (
            tuple(self.folder / place / f"{name}.zarr" for name in self.images) for place in ("", "labels")
        )
        return rank_trials(self.models, self.maps, tiles, labels, self.folder / "split.json", score, self.rungs)

    def choose(self, to: Path, *more: str) -> int:
        """Run the stage; return its exit code."""
        words: list[object] = ["choose", "--models", *self.models, "--classes", *self.maps, "--model", to / "model"]
        words += ["--tiles", self.folder / "s.zarr", "--labels", self.folder / "labels/s.zarr"]
        words += ["--chips", self.folder / "split.json", "--leaderboard", to / "trials.json"]
        words += ["--rungs", *self.rungs] if self.rungs else []
        return main([*map(str, words), "--page", str(to / "trials.html"), *more])


def three_trials(folder: Path, truth: AnyArray | None = None) -> Trials:
    """Trials of two learning rates and widths, of which the one named best is."""
    truth = classes() if truth is None else truth
    trials = Trials(folder, truth)
    trials.add("worse", with_errors(truth, 0.3, 1), learning_rate=0.1, width=4, seed=0)
    trials.add("best", with_errors(truth, 0.1, 2), learning_rate=0.01, width=8, seed=0, history=120)
    trials.add("middle", with_errors(truth, 0.2, 3), learning_rate=0.01, width=4, seed=0)
    return trials


def miou(truth: AnyArray, mapped: AnyArray) -> float:
    """The mean over the classes of intersection by union, pixel by pixel."""
    shares = [((truth == n) & (mapped == n)).sum() / ((truth == n) | (mapped == n)).sum() for n in range(len(CLASSES))]
    return float(np.mean(shares))


def test_the_winner_has_the_best_score_of_the_validation_places(tmp_path: Path) -> None:
    truth = classes()
    trials = three_trials(tmp_path, truth)
    expected = {path.stem: miou(truth[VAL], read_bands(path)[0][VAL]) for path in trials.maps}
    assert trials.choose(tmp_path / "out") == 0
    document = read_json(tmp_path / "out/trials.json")
    assert document["chosen"] == max(expected, key=expected.__getitem__) == "best"
    assert (document["places"], document["score"]) == ("val", "miou")
    assert document["samples"] == EDGE * EDGE // 2
    assert [row["name"] for row in document["trials"]] == ["best", "middle", "worse"]
    winner, middle, _ = document["trials"]
    for row in document["trials"]:
        assert row["scores"]["miou"] == pytest.approx(expected[row["name"]], abs=1e-6)
        low, high = row["intervals"]["miou"]
        assert low < row["scores"]["miou"] < high
    assert winner["differences"] is winner["intervals_of_differences"] is winner["significant"] is None
    assert middle["differences"]["miou"] == pytest.approx(expected["middle"] - expected["best"], abs=1e-6)
    low, high = middle["intervals_of_differences"]["miou"]
    assert low < middle["differences"]["miou"] < high < 0
    assert middle["significant"]["miou"] is True
    assert [row["settings"] for row in document["trials"]] == [
        {"learning_rate": rate, "width": width} for rate, width in ((0.01, 8), (0.01, 4), (0.1, 4))
    ]
    assert [row["steps"] for row in document["trials"]] == [120, 300, 300]
    assert [row["weights"] for row in document["trials"]] == [10] * 3


def test_the_model_is_a_copy_of_the_winner_and_the_trials_stay(tmp_path: Path) -> None:
    trials = three_trials(tmp_path)
    contents = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert trials.choose(tmp_path / "out") == 0
    copied = {path.name: path.read_bytes() for path in (tmp_path / "out/model").iterdir()}
    assert copied[LEADERBOARD] == (tmp_path / "out/trials.json").read_bytes()
    assert {row["path"] for row in json.loads(copied[MANIFEST])["files"]} == copied.keys() - {MANIFEST}
    trained = {path.name: path.read_bytes() for path in (tmp_path / "best").iterdir()}
    assert {name: content for name, content in copied.items() if name not in (LEADERBOARD, MANIFEST)} == {
        name: content for name, content in trained.items() if name != MANIFEST
    }
    assert {"model.safetensors", "model.json", "history.json", MANIFEST} <= copied.keys()
    assert all(path.read_bytes() == content for path, content in contents.items())
    # A copy: what an engine does to an output does not reach the trial.
    assert (tmp_path / "out/model/model.safetensors").stat().st_nlink == 1


def test_test_places_and_the_order_of_the_trials_change_nothing(tmp_path: Path) -> None:
    truth = classes()
    first, other = three_trials(tmp_path / "first", truth), truth.copy()
    other[TEST] = (other[TEST] + 1) % 3
    changed = three_trials(tmp_path / "changed", other)
    for name, path in zip(("worse", "best", "middle"), changed.maps, strict=True):
        mapped = read_bands(first.folder / f"{name}.tif")[0]
        # The worst trial is perfect in the test places, the best one has no map of them.
        mapped[TEST] = {"worse": other[TEST], "best": 255, "middle": 0}[name]
        with rasterio.open(path, "r+") as file:
            file.write(mapped, 1)
    changed.models, changed.maps = changed.models[::-1], changed.maps[::-1]
    for trials in (first, changed):
        assert trials.choose(trials.folder / "out") == 0
    documents = [(trials.folder / "out/trials.json").read_bytes() for trials in (first, changed)]
    assert documents[0] == documents[1]
    assert str(tmp_path) not in documents[0].decode()
    assert str(tmp_path) not in (tmp_path / "first/out/trials.html").read_text()


def test_of_equal_scores_the_smaller_model_is_chosen_then_the_first(tmp_path: Path) -> None:
    truth = classes()
    trials, mapped = Trials(tmp_path, truth), with_errors(truth, 0.2, 1)
    for name, weights in (("large", 30), ("small-b", 20), ("small-a", 20)):
        trials.add(name, mapped, weights=weights)
    assert [model.name for model in trials.rank().models] == ["small-b", "small-a", "large"]


def test_a_trial_with_a_map_for_each_image_is_ranked_by_its_own_maps_alone(tmp_path: Path) -> None:
    truth, images = classes(), ("s", "t")
    trials, expected = Trials(tmp_path, truth, images=images), {}
    # Two maps of the first trial would make the last one better than the middle one.
    for seed, (name, shares) in enumerate({"best": (0.0, 0.1), "worse": (0.5, 0.4), "middle": (0.2, 0.3)}.items()):
        maps = [with_errors(truth, share, 2 * seed + number) for number, share in enumerate(shares)]
        trials.add(name, maps[0])
        trials.add_map(f"{name}-t.tif", maps[1], "t")
        expected[name] = miou(np.stack([truth[VAL]] * 2), np.stack([mapped[VAL] for mapped in maps]))
    ranked = trials.rank()
    assert [model.name for model in ranked.models] == ["best", "middle", "worse"]
    assert ranked.comparison.count == EDGE * EDGE
    for model, run, scores in zip(ranked.models, ranked.runs, ranked.comparison.runs, strict=True):
        assert scores.scores["miou"] == pytest.approx(expected[model.name], abs=1e-6)
        paths = [path for group in run.groups for path in group.paths.values()]
        assert paths == [tmp_path / f"{model.name}.tif", tmp_path / f"{model.name}-t.tif"]
    board = {row["name"]: row["scores"]["miou"] for row in ranked.json_document()["trials"]}
    assert board == pytest.approx(expected, abs=1e-6)


def test_of_values_the_lowest_error_is_best_and_the_highest_r2(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    heights = random.normal(20, 5, (EDGE, EDGE)).astype(np.float32)
    trials = Trials(tmp_path, heights, "regression")
    for name, sigma in (("rough", 2.0), ("fine", 1.0)):
        trials.add(name, (heights + random.normal(0, sigma, heights.shape)).astype(np.float32))
    for score in (None, "mae", "r2"):
        assert trials.rank(score).winner.name == "fine"
    assert trials.rank().score == "rmse"
    rows = rows_of(trials.rank())
    assert rows[0][1].startswith("RMSE (95")
    assert rows[1][1].startswith(f"{trials.rank().comparison.runs[0].scores['rmse']:.4g} (")
    page = render_trials(trials.rank())
    assert "with the lowest RMSE." in page


def test_chips_are_ranked_by_the_scores_of_their_task(tmp_path: Path) -> None:
    truth = classes()
    of_chips = [np.kron(with_errors(truth[::8, ::8], share, 4), np.ones((8, 8), np.uint8)) for share in (0.4, 0.1)]
    single, several = (Trials(tmp_path / task, truth, task) for task in ("classification", "multilabel"))
    for name, mapped in zip(("worse", "best"), of_chips, strict=True):
        single.add(name, mapped)
        several.add(name, np.stack([(mapped == n).astype(np.uint8) for n in range(3)]))
    ranked = single.rank()
    assert (ranked.winner.name, ranked.score, ranked.comparison.count) == ("best", "miou", EDGE * EDGE // 2 // CHIP**2)
    ranked = several.rank()
    assert (ranked.winner.name, ranked.score) == ("best", "f1_macro")
    assert several.rank("hamming_loss").winner.name == "best"
    page = render_trials(ranked)
    assert "Macro F1" in page
    assert "<img " not in page


def test_a_trial_without_a_defined_score_is_the_last(tmp_path: Path) -> None:
    # One class everywhere: chance agrees with a perfect map, so that its kappa is not defined.
    truth = np.zeros((EDGE, EDGE), np.uint8)
    trials = Trials(tmp_path, truth)
    trials.add("undefined", truth)
    with pytest.raises(BadInputError, match=r"^kappa is not defined for any trial in the validation places"):
        trials.rank("kappa")
    trials.add("defined", with_errors(truth, 0.2, 1))
    ranked = trials.rank("kappa")
    assert [model.name for model in ranked.models] == ["defined", "undefined"]
    assert ranked.json_document()["trials"][1]["scores"]["kappa"] is None
    assert rows_of(ranked)[2][1:3] == ("\u2013", "\u2013")
    json.dumps(ranked.json_document(), allow_nan=False)


def test_wrong_lists_and_scores_are_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = three_trials(tmp_path)
    assert trials.choose(tmp_path / "out", "--score", "rmse") == UsageError.code
    message = capsys.readouterr().err
    assert "segmentation does not have the score rmse; choose by miou, accuracy, " in message
    assert message.count("\n") == 1
    assert trials.choose(tmp_path / "out", "--score", "bleu") == UsageError.code
    trials.maps.append(trials.maps[0])
    with pytest.raises(UsageError, match=r"^4 maps for 3 models"):
        trials.rank()
    trials.models.append(trials.models[0])
    with pytest.raises(UsageError, match=r"^two model folders have the name worse"):
        trials.rank()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.run.json"]


def test_maps_of_another_task_and_a_split_without_validation_places_are_refused(tmp_path: Path) -> None:
    trials = three_trials(tmp_path / "classes")
    chips = Trials(tmp_path / "chips", classes(), "classification")
    chips.add("chips", classes())
    trials.models[1] = chips.models[0]
    with pytest.raises(BadInputError, match="model chips is of classification of water, land, wood, its maps and"):
        trials.rank()
    other = three_trials(tmp_path / "other")
    other.write_split("train")
    with pytest.raises(BadInputError, match="have no labelled, mapped place that is a val place of all of them"):
        other.rank()


def test_the_page_names_settings_and_trials_that_are_not_significantly_different(tmp_path: Path) -> None:
    truth = classes()
    trials = Trials(tmp_path, truth)
    # Equally good: errors of the same share at other pixels.
    for number in range(2):
        trials.add(f"even-{number}", with_errors(truth, 0.2, number), augment=("<b>flip</b>", f"n{number}"))
    trials.add("clear", with_errors(truth, 0.5, 5), augment=("<b>flip</b>",), learning_rate=0.25)
    assert trials.choose(tmp_path / "out") == 0
    page = (tmp_path / "out/trials.html").read_text()
    assert re.search(r"<h1>augment \[.*n\d.*\]: the best of 3 trials</h1>", page)
    assert page.count("not significant<") >= 1
    assert "1 of 2 other trials is not significantly different from it" in page
    assert "was chosen by the validation places alone" in page
    assert "&lt;b&gt;flip&lt;/b&gt;, n1" in page
    assert "<b>flip" not in page
    assert "learning_rate" in page
    assert "0.25" in page
    # The label, three maps, and two images of where one of two maps is right.
    assert page.count("<img ") == 6


def test_equal_trials_are_called_equal_on_the_page(tmp_path: Path) -> None:
    truth = classes()
    trials, mapped = Trials(tmp_path, truth), with_errors(truth, 0.2, 1)
    for number in range(3):
        trials.add(f"equal-{number}", mapped, seed=number)
    assert trials.choose(tmp_path / "out") == 0
    page = (tmp_path / "out/trials.html").read_text()
    assert "0.000, equal on each piece" in page
    assert "not significant<" not in page
    assert "2 of them are equal on each piece." in page


def test_any_number_of_settings_is_one_column_that_wraps(tmp_path: Path) -> None:
    truth = classes()
    trials = Trials(tmp_path, truth)
    for number in range(2):
        values = {"learning_rate": 0.1 + number, "width": 8 + number, "seed": number, "schedule": f"s{number}"}
        trials.add(f"trial-{number}", with_errors(truth, 0.1 + number / 10, 1), **values)
    heads, first, _ = rows_of(trials.rank())
    assert heads[3:] == ("Settings that differ", "Steps", "Weights")
    assert first[3] == "learning_rate 0.1; schedule s0; seed 0; width 8"
    assert len(heads) == len(first) == 6
    assert "nowrap" not in "".join(re.findall(r"\.numeric [^}]*}", page_source(STYLE)))


def test_the_maps_of_at_most_four_trials_are_side_by_side(tmp_path: Path) -> None:
    truth = classes()
    trials = Trials(tmp_path, truth)
    for number in range(5):
        trials.add(f"trial-{number}", with_errors(truth, 0.1 + 0.1 * number, number))
    ranked = trials.rank()
    assert len(rows_of(ranked)) == 6
    assert render_trials(ranked).count("<img ") == 1 + 4 + 3
    del trials.models[1:], trials.maps[1:]
    assert "It is the only trial." in render_trials(trials.rank())


def test_the_scores_of_the_stage_are_those_of_the_tasks() -> None:
    port = next(port for port in stage("choose").ports if port.name == "score")
    assert set(port.choices) == {key for task in TASKS.values() for key in task.ranking_scores()}
    assert set(port.choices) > LOWER_IS_BETTER


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_each_score_of_a_task_has_a_formula_and_a_field_in_metrics_json(task: Task) -> None:
    keys = {score.key for score in task.scores}
    assert keys <= metrics_type(task.name).model_fields["model"].annotation.model_fields.keys()  # type: ignore[union-attr]
    tables = task.tables(CLASSES)
    overall, _ = tables.formulas(np.zeros((1, tables.width), tables.dtype))
    assert overall.keys() == keys - {"mean_average_precision"}


def test_a_trial_that_was_stopped_is_never_chosen(tmp_path: Path) -> None:
    truth = classes()
    trials = three_trials(tmp_path, truth)
    trials.add("early", with_errors(truth, 0.05, 4), learning_rate=0.01, width=4, seed=0, history=90)
    trials.add("earlier", with_errors(truth, 0.4, 5), learning_rate=0.01, width=4, seed=0, history=30)
    assert trials.rank().winner.name == "early"
    assert not any(model.stopped for model in trials.rank().models)
    trials.write_rung("best", "worse", "middle", "early")
    trials.write_rung("best", "worse", "middle", "earlier")
    assert trials.choose(tmp_path / "out") == 0
    document = read_json(tmp_path / "out/trials.json")
    assert document["chosen"] == "best"
    rows = [(row["name"], row["stopped"], row["steps"], row["all_steps"]) for row in document["trials"]]
    whole = [("best", False, 120, 300), ("middle", False, 300, 300), ("worse", False, 300, 300)]
    assert rows == [*whole, ("early", True, 90, 300), ("earlier", True, 30, 300)]
    page = (tmp_path / "out/trials.html").read_text()
    assert "90 of 300, stopped" in page
    assert page.count(", stopped<") == 2
    assert "with the highest mIoU of those with a whole training." in page
    assert "2 trials were stopped before their end" in page
    assert "of 2 other trials with a whole training are not significantly different" in page


def test_the_only_trial_with_a_whole_training_is_chosen(tmp_path: Path) -> None:
    trials = three_trials(tmp_path)
    trials.write_rung("worse")
    board = Leaderboard(trials.rank().json_document(), "segmentation")
    assert board.document["chosen"] == "worse"
    assert board.sentences[-1] == "It is the only trial with a whole training."
    # Documents of older versions do not have these keys.
    for row in board.document["trials"]:
        del row["stopped"], row["all_steps"]
    assert "stopped" not in " ".join([*board.sentences, *(text for row in board.rows for text in row)])


def test_rungs_that_stop_all_trials_or_are_of_others_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = three_trials(tmp_path)
    trials.write_rung()
    assert trials.choose(tmp_path / "out") == BadInputError.code
    assert "all trials were stopped at a rung; give the model of one that was trained" in capsys.readouterr().err
    row = {"name": "other", "step": 90, "score": 0.5, "weights": 10, "promoted": True}
    write_json(trials.rungs[0], {"promoted": ["other"], "trials": [row], "score": "miou"})
    with pytest.raises(BadInputError, match=r"rung-0.json has none of the trials worse, best, middle; give the rungs"):
        trials.rank()
    write_json(trials.rungs[0], {"rung": 1})
    with pytest.raises(BadInputError, match=r"rung-0.json is not a rung of trials: "):
        trials.rank()


def test_a_stopped_trial_does_not_define_a_score_for_the_others(tmp_path: Path) -> None:
    truth = np.zeros((EDGE, EDGE), np.uint8)
    trials = Trials(tmp_path, truth)
    trials.add("undefined", truth)
    trials.add("defined", with_errors(truth, 0.2, 1), history=90)
    trials.write_rung("undefined")
    with pytest.raises(BadInputError, match=r"^kappa is not defined for any trial"):
        trials.rank("kappa")
