"""Labels that only test the map of a finished model: which pixels count, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_baselines import NAMES, halves, store

from eopipe.errors import BadInputError
from eopipe.evaluation.baseline import BASELINES
from eopipe.evaluation.evaluate import evaluate_maps
from eopipe.evaluation.maps import EvaluationData, split_for_tests
from eopipe.evaluation.metrics_document import FinishedMetrics, read_finished_metrics, read_metrics
from eopipe.reporting.finished_run import headline_of
from eopipe.reporting.scores import class_parts
from eopipe.tasks import TASKS


@pytest.fixture
def tested(tmp_path: Path) -> EvaluationData:
    """A map with random errors, 200 pixels that are not mapped, and labels everywhere."""
    dice = np.random.default_rng(5)
    truth = (dice.random((96, 80)) < 0.4).astype(np.uint8)
    mapped = np.where(dice.random(truth.shape) < 0.2, 1 - truth, truth).astype(np.uint8)
    mapped.flat[dice.choice(truth.size, 200, replace=False)] = 255
    data = halves([store(tmp_path / "a.zarr", dice.random((2, 96, 80)))], truth, mapped=mapped)
    return replace(data, split=split_for_tests(["a"], NAMES, 16))


def test_each_pixel_with_label_and_map_is_counted_once(tested: EvaluationData) -> None:
    whole = slice(0, 96), slice(0, 80)
    truth, mapped = tested.groups[0].truth(*whole), tested.groups[0].mapped(*whole)
    counts = np.zeros((2, 2), int)
    np.add.at(counts, (truth[mapped != 255], mapped[mapped != 255]), 1)
    metrics = evaluate_maps(tested, 1000, 0)
    assert metrics["model"]["confusion"] == counts.tolist()
    assert metrics["test_pixels"] == 96 * 80 - 200
    low, high = metrics["intervals"]["model"]["accuracy"]
    assert low < metrics["model"]["accuracy"] < high


def test_a_chip_at_the_border_of_a_zone_has_the_class_of_its_mapped_pixels(tmp_path: Path) -> None:
    dice = np.random.default_rng(6)
    of_chips = dice.integers(0, 2, (6, 5)).astype(np.uint8)
    truth = np.kron(of_chips, np.ones((16, 16), np.uint8))
    mapped = truth.copy()
    # The border is a slanted line, to the left of which the map has no data.
    mapped[np.arange(80) < 8 + np.arange(96)[:, None] // 32] = 255
    data = halves([store(tmp_path / "a.zarr", dice.random((2, 96, 80)))], truth, mapped=mapped)
    data = replace(data, split=split_for_tests(["a"], NAMES, 16), task=TASKS["classification"])
    (chips,) = data.chips("test")
    np.testing.assert_array_equal(chips.mapped, of_chips.ravel())
    assert (mapped[chips.rows, chips.cols] == chips.mapped).all()
    np.testing.assert_array_equal(chips.rows // 16 * 5 + chips.cols // 16, np.arange(30))


def test_metrics_without_baselines_say_so_and_are_those_of_a_finished_model_only(
    tested: EvaluationData, tmp_path: Path
) -> None:
    metrics = evaluate_maps(tested, 1000, 0)
    assert metrics["baselines"].startswith("none: ")
    assert not {"majority", "baseline", *BASELINES} & metrics.keys()
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(metrics))
    assert read_finished_metrics(path).json_document() == metrics
    with pytest.raises(BadInputError, match="majority"):
        read_metrics(path)
    path.write_text(json.dumps({key: value for key, value in metrics.items() if key != "baselines"}))
    with pytest.raises(BadInputError, match="baselines"):
        read_finished_metrics(path)


def test_the_tables_of_a_tested_map_have_its_scores_and_intervals(tested: EvaluationData) -> None:
    metrics = FinishedMetrics.model_validate(evaluate_maps(tested, 1000, 0))
    parts = class_parts(metrics)
    (overall,), (confusion,) = parts["methods"], parts["share_tables"]
    assert (overall.name, overall.cells[0].text) == ("This model", f"{metrics.model.accuracy:.3f}")
    assert overall.cells[0].note.count(" to ") == 1
    assert not any(cell.is_highlighted for cell in overall.cells)
    assert [row.name for row in parts["class_rows"]] == [row.name for row in confusion.rows] == [*NAMES]
    for row in parts["class_rows"]:
        assert len(row.cells) == len(parts["class_heads"]) - 1
        assert [bool(cell.note) for cell in row.cells] == [True, True, True, True, False]
    assert f"accuracy {metrics.model.accuracy:.3f} (" in headline_of(metrics)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give one of --chips, a split file, and --tested-model"),
        (["--chips", "split.json", "--tested-model", "model"], "give one of --chips, a split file, and --tested-model"),
    ],
)
def test_evaluate_has_either_a_split_or_a_finished_model(
    tested: EvaluationData, arguments: list[str], sentence: str, tmp_path: Path, run: Any
) -> None:
    for name in ("split.json", "model"):
        (tmp_path / name).write_text("{}")
    paths = [tmp_path / word if word in ("split.json", "model") else word for word in arguments]
    group = tested.groups[0]
    fixed = ["--classes", group.paths[""], "--tiles", group.stores[0].path, "--labels", group.label.path]
    done = run("evaluate", *fixed, *paths, "--metrics", tmp_path / "metrics.json")
    assert done.code == 2
    assert sentence in done.stderr
