"""Change between two dates: from-to labels, their scores, post-classification comparison, panel of the report."""

from datetime import date
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import rasterio
from builders import grid_of, stage, west_east, write_split, write_tiles
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as sklearn

from eopipe.arrays import AnyArray
from eopipe.chips.make_split import check_complete
from eopipe.chips.splits import SplitPlan
from eopipe.composites.periods import channels_by_date, part_of, stack_conflict
from eopipe.errors import BadInputError
from eopipe.evaluation.evaluate import change_scores
from eopipe.evaluation.metrics_document import ChangeScores
from eopipe.inference.map_files import new_map
from eopipe.labels.write import from_to, from_to_names
from eopipe.reporting.task_parts import change_sections
from eopipe.scenes.item import scene_tags
from eopipe.tasks.segmentation import confusion_matrix
from eopipe.text_files import write_json
from eopipe.tiles.geotiff import MapFormat
from eopipe.tiles.grid import grid_json
from eopipe.tiles.store import NO_LABEL, Tiles

SHAPE, CLASSES = (64, 64), ("forest", "field", "water")
GRID = grid_of(SHAPE, 20.0)
NUMBERS = st.sampled_from([0, 1, 2, NO_LABEL])


def write_raster(path: Path, numbers: AnyArray) -> Path:
    profile = {"driver": "GTiff", "dtype": "uint8", "count": 1, "height": SHAPE[0], "width": SHAPE[1], "nodata": 255}
    with rasterio.open(path, "w", **profile, crs="EPSG:32633", transform=GRID.affine) as file:
        file.write(numbers.astype(np.uint8), 1)
    return path


def write_from_to_labels(folder: Path, before: AnyArray, after: AnyArray, *options: object) -> int:
    write_json(folder / "grid.json", grid_json(GRID))
    sources = ["--before", write_raster(folder / "before.tif", before)]
    sources += ["--source", write_raster(folder / "after.tif", after)]
    paths = ["--grid", folder / "grid.json", "--labels", folder / "labels.zarr", "--chunk", 32, "--shard", 32]
    return stage("label", *paths, *sources, "--classes", *CLASSES, *options)


def landscape(seed: int) -> tuple[AnyArray, AnyArray]:
    """Classes (y, x) of two dates in blocks of four pixels, a quarter of which may change."""
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 3, (16, 16))
    after = np.where(rng.random((16, 16)) < 0.25, rng.integers(0, 3, (16, 16)), before)
    blocks = np.ones((4, 4), np.int64)
    return np.kron(before, blocks), np.kron(after, blocks)


@given(arrays(np.uint8, (4, 5), elements=NUMBERS), arrays(np.uint8, (4, 5), elements=NUMBERS))
def test_a_from_to_class_has_the_classes_of_both_dates_where_both_are_labelled(before: Any, after: Any) -> None:
    numbers = from_to(before, after, 3)
    labelled = (before != NO_LABEL) & (after != NO_LABEL)
    np.testing.assert_array_equal(numbers != NO_LABEL, labelled)
    np.testing.assert_array_equal(numbers[labelled] // 3, before[labelled])
    np.testing.assert_array_equal(numbers[labelled] % 3, after[labelled])
    assert from_to_names(CLASSES)[int(from_to(np.uint8([2]), np.uint8([1]), 3)[0])] == "water to field"


def test_the_label_stage_combines_the_files_of_two_dates(tmp_path: Path) -> None:
    before, after = landscape(1)
    before[:8], after[:, :8] = NO_LABEL, NO_LABEL
    assert write_from_to_labels(tmp_path, before, after) == 0
    store = Tiles(tmp_path / "labels.zarr")
    np.testing.assert_array_equal(store.read("label"), from_to(before, after, 3))
    rows = store.attributes["source_values"]
    assert [row["value"] for row in rows if row["label"] == "field"] == ["1", "1"], "of both files"
    np.testing.assert_array_equal(store.read("valid"), (before != NO_LABEL) & (after != NO_LABEL))
    assert (store.names, store.attributes["from_to"]) == (from_to_names(CLASSES), [*CLASSES])
    expected = int(((before == 0) & (after == 1)).sum())
    assert store.attributes["pixels"]["forest to field"] == expected > 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--measure", "height"), 2, "label.before gives from-to classes, so it cannot be used with label.measure"),
        (("--classes", *map(str, range(16))), 2, "has 256 from-to classes; at most 15 classes are possible"),
        (("--codes", 0, 1, 7), 3, "2"),
    ],
)
def test_labels_of_two_dates_that_cannot_be_combined_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[Any, ...], code: int, message: str
) -> None:
    assert write_from_to_labels(tmp_path, *landscape(1), *options) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "labels.zarr").exists()


@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
@examples(max_examples=25, deadline=None)
def test_scores_of_change_are_those_of_scikit_learn(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    truth, predicted = rng.integers(0, classes**2, (2, 400))
    result = change_scores(confusion_matrix(truth, predicted, classes**2), classes)
    x, y = (numbers // classes != numbers % classes for numbers in (truth, predicted))
    assert result["f1"] == pytest.approx(sklearn.f1_score(x, y), abs=1e-6)
    assert result["precision"] == pytest.approx(sklearn.precision_score(x, y), abs=1e-6)
    assert result["recall"] == pytest.approx(sklearn.recall_score(x, y), abs=1e-6)
    assert result["kappa"] == pytest.approx(sklearn.cohen_kappa_score(x, y), abs=1e-6)
    assert result["confusion"] == sklearn.confusion_matrix(x, y).tolist()
    assert result["correct_transitions"] == pytest.approx((truth == predicted)[x].mean(), abs=1e-6)


def test_a_map_without_any_change_has_no_precision_and_no_error() -> None:
    result = change_scores(confusion_matrix(np.array([0, 0, 3]), np.array([0, 0, 3]), 4), 2)
    assert (result["f1"], result["correct_transitions"], result["accuracy"], result["pixels"]) == (None, None, 1.0, 0)


def evaluate(folder: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """Scores of a map of half of the true change, from bands that show the class of each date."""
    before, after = landscape(2)
    assert write_from_to_labels(folder, before, after) == 0
    stored = np.stack([before * 1000 + 500, after * 1000 + 500]).astype(np.uint16)
    tiles = write_tiles(folder / "all.zarr", stored, names=names, grid=GRID, day="2019-07-01")
    mapped = from_to(before, np.where(np.arange(64)[:, None] < 32, after, before), 3)
    with new_map(folder / "classes.tif", GRID, MapFormat("uint8", NO_LABEL, ("class",), scene_tags(["all"]))) as file:
        file.write(mapped, 1)
    split = write_split(folder / "split.json", ["all"], from_to_names(CLASSES), 8, west_east(SHAPE, 8, 32))
    inputs = ["--tiles", tiles, "--labels", folder / "labels.zarr", "--chips", split]
    return builders.evaluate(folder, "--classes", folder / "classes.tif", *inputs)


@pytest.mark.exhaustive
def test_the_comparison_of_two_classifications_detects_change_that_each_date_shows(tmp_path: Path) -> None:
    change = evaluate(tmp_path, ("red_2017", "red_2021"))["change"]
    before, after = (part[:, 32:] for part in landscape(2))
    changed = before != after
    assert change["classes"] == [*CLASSES]
    assert change["post_classification"]["f1"] == 1.0
    assert change["post_classification"]["correct_transitions"] == 1.0
    assert change["model"]["recall"] == pytest.approx(changed[:32].sum() / changed.sum(), abs=1e-6)
    assert (change["model"]["precision"], change["model"]["pixels"]) == (1.0, changed.sum())
    # A pixel of 20 m has 0.04 ha.
    expected = confusion_matrix(before, after, 3) * 0.04
    # In the middle of a UTM zone the ground is 0.08 % larger.
    np.testing.assert_allclose(change["areas"]["labels"], expected * 1.0008, rtol=1e-4)
    assert np.sum(change["areas"]["map"]) == pytest.approx(64 * 64 * 0.04 * 1.0008, rel=1e-4)
    sections = change_sections(ChangeScores.model_validate(change))["change"]
    assert [row[0] for row in sections["rows"]][-2] == "Post-classification comparison"
    (_, labels), *_ = sections["tables"]
    assert [cell.is_highlighted for cell in labels[1].cells] == [False, True, False]


@pytest.mark.exhaustive
def test_without_bands_of_two_dates_the_comparison_has_a_reason(tmp_path: Path) -> None:
    change = evaluate(tmp_path, ("red", "nir"))["change"]
    assert "bands of two dates" in change["post_classification"]["reason"]
    assert "bands of two dates" in change_sections(ChangeScores.model_validate(change))["change"]["note"]
    assert change_sections(None) == {"change": None}


def test_years_are_parts_of_all_time_and_of_nothing_shorter() -> None:
    assert part_of(date(2019, 12, 31), "year") == "2019"
    assert stack_conflict("all", "year", ("2017", "2021")) == ""
    assert "year is not shorter than composite.period year" in stack_conflict("year", "year")
    assert "has JJA, but the years are such as 2019" in stack_conflict("all", "year", ("JJA",))
    assert channels_by_date(("red_2021", "nir_2021", "red_2017", "nir_2017")) == [[2, 3], [0, 1]]


def test_transitions_that_do_not_occur_are_named_and_not_refused(caplog: pytest.LogCaptureFixture) -> None:
    splits, pixels = np.array([0, 2], np.uint8), np.array([[5, 0, 1, 7], [5, 1, 1, 7]])
    plan = SplitPlan("blocks", (0.5, 0.2, 0.3), 8, 8, 0, 16, 0, 0, 0)
    names = from_to_names(CLASSES[:2])
    check_complete(splits, pixels, names, SHAPE, plan, is_change=True)
    assert "split=train classes='forest to field'" in caplog.text
    with pytest.raises(BadInputError, match="the train split have no pixel of class forest to field"):
        check_complete(splits, pixels, names, SHAPE, plan)
    with pytest.raises(BadInputError, match="the train split have no pixel"):
        check_complete(splits, pixels * [[0], [1]], names, SHAPE, plan, is_change=True)
