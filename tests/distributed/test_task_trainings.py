"""Values and chips through torchrun: killed and resumed to the same bytes, alike on one and two workers."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from trainings import Data, Training, payload, run_stage

from eopipe.models.model_folder import read_model_card

SOURCE = Path(__file__).parents[2] / "sample/tree_cover_density_2018.tif"
SMALL = ("--epochs", "3", "--batch", "16", "--width", "4", "--checkpoint-every", "3", "--patience", "2", "--ema", "0.9")
TASKS = ("regression", "classification", "multilabel")
SAME = ("model.safetensors", "history.json", "model.json", "metrics.jsonl")


@dataclass(frozen=True)
class Labelled(Data):
    """The same scenes with labels and a split of their own."""

    folder: Path = Path()

    def stores(self) -> list[str]:
        return ["--tiles", *self.tiles, "--labels", str(self.folder / "labels.zarr")]

    def cut(self) -> list[str]:
        return ["--chips", str(self.folder / "split.json"), "--statistics", str(self.folder / "statistics.json")]


@pytest.fixture(scope="module")
def labelled(data: Data, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Labelled]:
    """Values at chips of 16 pixels, and classes, or several labels, at chips of 8."""
    by_task = {}
    labelling = {"regression": ("--measure", "cover", "--unit", "%"), "classification": ("--bins", 50)}
    labelling["multilabel"] = ("--classes", "open", "sparse", "dense", "--bins", 30, 70)
    for task, options in labelling.items():
        folder = tmp_path_factory.mktemp(task)
        paths = ("--grid", data.root / "grid.json", "--source", SOURCE, "--labels", folder / "labels.zarr")
        assert run_stage("label", *paths, *options, "--chunk", 32, "--shard", 128) == 0
        prepared = Labelled(data.root, data.tiles[:4], folder)
        chip = {"regression": 16}.get(task, 8)
        plan = ("--method", "west-east", "--fractions", 0.48, 0.16, 0.36, "--chip", chip, "--stride", 8)
        drawn = ("--map", folder / "split.png", "--outlines", folder / "split.gpkg")
        assert run_stage("split", *prepared.stores(), *prepared.cut(), *drawn, *plan) == 0
        by_task[task] = prepared
    return by_task


def trained(labelled: dict[str, Labelled], task: str, folder: Path, *more: str) -> Training:
    return Training(labelled[task], folder, ("--task", task, *SMALL, *more))


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", TASKS)
def test_killed_and_resumed_it_ends_with_the_bytes_of_an_undisturbed_run(
    labelled: dict[str, Labelled], task: str, tmp_path: Path
) -> None:
    whole, cut = (trained(labelled, task, tmp_path / name, "--processes", "2") for name in ("whole", "cut"))
    completed = whole.run()
    assert completed.returncode == 0, completed.stderr
    process = cut.start()
    cut.wait_for_step(4, process)
    process.kill()
    process.communicate()
    completed = cut.run()
    assert completed.returncode == 0, completed.stderr
    assert "event=resume" in completed.stderr
    assert {n: payload(cut.model)[n] for n in SAME} == {n: payload(whole.model)[n] for n in SAME}


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", TASKS)
def test_one_and_two_workers_end_with_the_same_bytes(labelled: dict[str, Labelled], task: str, tmp_path: Path) -> None:
    payloads = {}
    for size in ("1", "2"):
        training = trained(labelled, task, tmp_path / size, "--deterministic", "--shards", "2", "--processes", size)
        completed = training.run()
        assert completed.returncode == 0, completed.stderr
        payloads[size] = {name: payload(training.model)[name] for name in SAME}
    assert payloads["1"] == payloads["2"]
    scores = json.loads(payloads["1"]["history.json"])["validations"][-1]["val"]
    expected = {"regression": {"rmse", "mae", "bias", "r2"}, "classification": {"accuracy", "f1_macro"}}
    assert set(scores) == expected.get(task, {"f1_micro", "f1_macro", "subset_accuracy"})


def test_the_share_of_a_label_is_part_of_the_model_and_weights_are_of_chips(
    labelled: dict[str, Labelled], tmp_path: Path
) -> None:
    settings = ("--task", "multilabel", "--epochs", "1", "--min-share", "0.2", "--class-weights", "balanced")
    training = replace(trained(labelled, "multilabel", tmp_path), settings=settings)
    completed = training.run()
    assert completed.returncode == 0, completed.stderr
    card = read_model_card(training.model)
    assert (card["task"], card["min_share"], card["settings"]["min_share"]) == ("multilabel", 0.2, 0.2)
    assert card["settings"]["loss"] == "binary_cross_entropy"
    counts = dict(re.findall(r"'(open|sparse|dense)'=(\d+)", completed.stderr))
    chips = int(re.findall(r"event=labels chips=(\d+)", completed.stderr)[0])
    expected = [(chips - int(counts[name])) / int(counts[name]) for name in ("open", "sparse", "dense")]
    assert card["settings"]["weights"] == pytest.approx(expected, abs=1e-6)


def test_values_are_scaled_by_the_training_labels_alone(labelled: dict[str, Labelled], tmp_path: Path) -> None:
    training = replace(trained(labelled, "regression", tmp_path), settings=("--task", "regression", "--epochs", "1"))
    assert training.run().returncode == 0
    card = read_model_card(training.model)
    statistics = json.loads((labelled["regression"].folder / "statistics.json").read_text())["labels"]
    assert card["target"] == [statistics["mean"], statistics["std"]]
    assert (card["task"], card["unit"], card["settings"]["loss"]) == ("regression", "%", "huber")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("task", "arguments", "code", "message"),
    [
        ("regression", ("--task", "segmentation"), 3, "measures cover, and train.task segmentation needs classes"),
        ("classification", ("--task", "regression"), 3, "has classes, and train.task regression needs numbers"),
        ("classification", ("--task", "classification", "--loss", "lovasz"), 2, "lovasz is not for task"),
        ("regression", ("--task", "regression", "--class-weights", "balanced"), 2, "regression has none"),
        ("regression", ("--task", "multilabel"), 3, "measures cover, and train.task multilabel needs classes"),
        ("classification", ("--task", "classification", "--min-share", "0.2"), 2, "is for task multilabel"),
        ("multilabel", ("--task", "multilabel", "--min-share", "1e-6", "--loss", "focal"), 2, "focal is not for"),
    ],
)
def test_labels_and_losses_that_do_not_fit_are_told_before_any_worker_starts(
    labelled: dict[str, Labelled], tmp_path: Path, task: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    completed = Training(labelled[task], tmp_path, arguments).run()
    assert completed.returncode == code
    assert message in completed.stderr
    assert "event=validation" not in completed.stderr
    assert "Traceback" not in completed.stderr
