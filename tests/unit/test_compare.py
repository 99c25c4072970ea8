"""Finished runs compared: on the places that all test, with paired intervals, and the settings that differ."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import grid_of, write_map, write_store
from chip_files import made_split

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, UsageError
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.evaluation.paired import PairedTables, RunScores, compare_runs
from eopipe.inspection.compare_command import names_of
from eopipe.reporting.leaderboard import difference_text
from eopipe.reporting.page import read_panels, render_comparison, score_table
from eopipe.reporting.scores import TextTable
from eopipe.tasks import TASKS
from eopipe.tasks.multilabel import LabelTables, label_tables
from eopipe.tasks.regression import ValueTables, value_parts
from eopipe.tasks.segmentation import ClassTables
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL, Tiles

EDGE, CHIP, CLASSES = 128, 8, ("water", "land", "wood")
EAST = [(0, row, col) for row in range(0, EDGE, CHIP) for col in range(EDGE // 2, EDGE, CHIP)]
NAMES = ["first", "other"]


def store(path: Path, arrays: dict[str, AnyArray], names: tuple[str, ...]) -> Tiles:
    options: dict[str, Any] = {"layout": Layout(64, 64), "scaling": (1.0, 0.0), "scene": path.stem}
    return Tiles(write_store(path, names, arrays, **options, datetime="2020-07-01T00:00:00Z"))


def write_bands(path: Path, mapped: AnyArray, nodata: float, names: tuple[str, ...] = (), **tags: Any) -> Path:
    """A map (y, x), or (band, y, x), of such a store."""
    bands = mapped.reshape(-1, EDGE, EDGE)
    return write_map(path, bands, grid_of(bands.shape), nodata, names if len(bands) > 1 else (), **tags)


def run_of(folder: Path, truth: AnyArray, mapped: AnyArray, task: str = "segmentation", **split: Any) -> EvaluationData:
    """A run with a map of one scene, which the east of it tests."""
    folder.mkdir()
    is_value = task == "regression"
    image = store(folder / "s.zarr", {"image": np.ones((1, EDGE, EDGE), np.uint16)}, ("red",))
    label = store(folder / "label.zarr", {"label": truth}, ("height",) if is_value else CLASSES)
    write_bands(folder / "map.tif", mapped, np.nan if is_value else NO_LABEL, task=task)
    document = made_split(chip=CHIP, samples={"train": [], "val": [], "test": EAST} | split)
    map_ = EvaluatedMap(0, {"": folder / "map.tif"}, [image], label)
    names, unit = (("height",), "m") if is_value else (CLASSES, "")
    return EvaluationData([map_], names, document, TASKS[task], unit, 0.3)


def classes(seed: int = 0) -> AnyArray:
    """Patches of three classes, of 8 x 8 pixels."""
    patches = np.random.default_rng(seed).integers(0, 3, (EDGE // 8, EDGE // 8))
    return np.kron(patches, np.ones((8, 8), int)).astype(np.uint8)


def with_errors(truth: AnyArray, share: float, seed: int) -> AnyArray:
    """Classes of which a share of the pixels is another class."""
    random = np.random.default_rng(seed)
    moved = (truth + random.integers(1, 3, truth.shape)) % 3
    return np.where(random.random(truth.shape) < share, moved, truth).astype(np.uint8)


def test_scores_are_those_of_each_map_and_a_better_map_is_significant(tmp_path: Path) -> None:
    truth = classes()
    maps = [with_errors(truth, share, seed) for share, seed in ((0.3, 1), (0.1, 2))]
    runs = [run_of(tmp_path / name, truth, mapped) for name, mapped in zip(NAMES, maps, strict=True)]
    compared = compare_runs(runs, NAMES)
    assert compared.count == EDGE * EDGE // 2
    east = np.s_[:, EDGE // 2 :]
    for run, mapped in zip(compared.runs, maps, strict=True):
        counts = np.bincount(truth[east].ravel() * 3 + mapped[east].ravel(), minlength=9).reshape(3, 3)
        expected = ClassTables(CLASSES).document(counts.ravel())
        assert run.scores["miou"] == pytest.approx(expected["miou"], abs=1e-6)
        assert run.scores["iou:wood"] == pytest.approx(expected["per_class"]["wood"]["iou"], abs=1e-6)
    first, other = compared.runs
    assert first.differences is None
    assert other.differences
    assert other.differences["accuracy"] == other.scores["accuracy"] - first.scores["accuracy"]
    low, high = other.paired["accuracy"] or (np.nan, np.nan)
    assert 0 < low < other.differences["accuracy"] < high
    table = score_table(compared, NAMES, runs[0], "test")
    assert table.heads == ("Score", "first", "other", "other minus first (95 %)")
    titles = [score.title for score in TASKS["segmentation"].scores]
    assert [row[0] for row in table.rows] == [*titles, *(f"IoU {n}" for n in CLASSES)]
    assert "not significant" not in table.rows[0][3]
    assert table.caption.startswith("Scores on 8\u202f192 test pixels")


def test_a_worse_map_is_as_significant_as_a_better_one(tmp_path: Path) -> None:
    truth = classes()
    runs = [
        run_of(tmp_path / name, truth, with_errors(truth, share, 3)) for name, share in (("good", 0.1), ("bad", 0.3))
    ]
    tables = PairedTables.read(runs, NAMES)
    better, worse = (tables.compared(order).runs[1] for order in ((1, 0), (0, 1)))
    assert better.differences
    for key, difference in better.differences.items():
        low, high = better.paired[key] or (np.nan, np.nan)
        assert 0 < low < difference < high
        assert worse.paired[key] == pytest.approx([-high, -low], abs=1e-6)
        assert better.is_significant(key) is worse.is_significant(key) is True


def test_a_difference_is_significant_where_its_interval_is_on_one_side_of_zero() -> None:
    ends = {"above": [0.1, 0.2], "below": [-0.2, -0.1], "around": [-0.1, 0.1], "from": [0.0, 0.1], "to": [-0.1, 0.0]}
    scores = RunScores({}, {}, {}, {**ends, "unknown": None})
    actual = {key: scores.is_significant(key) for key in (*ends, "unknown", "absent")}
    assert actual == {
        "above": True,
        "below": True,
        "around": False,
        "from": False,
        "to": False,
        "unknown": None,
        "absent": None,
    }


def test_maps_of_the_same_quality_have_no_significant_difference(tmp_path: Path) -> None:
    truth = classes()
    runs = [run_of(tmp_path / f"{n}", truth, with_errors(truth, 0.2, n)) for n in range(3)]
    compared = compare_runs(runs, ["a", "b", "c"])
    for row in score_table(compared, ["a", "b", "c"], runs[0], "test").rows[:1]:
        assert [text.endswith("not significant") for text in row[4:]] == [True, True]


def test_only_pixels_that_all_runs_test_and_map_count(tmp_path: Path) -> None:
    truth = classes()
    unmapped = truth.copy()
    unmapped[:, EDGE - 3 :] = NO_LABEL
    south = [(0, row, col) for row in range(EDGE // 2, EDGE, CHIP) for col in range(0, EDGE, CHIP)]
    runs = [run_of(tmp_path / "first", truth, unmapped), run_of(tmp_path / "other", truth, truth, test=south)]
    assert compare_runs(runs, NAMES).count == EDGE // 2 * (EDGE // 2 - 3)
    assert compare_runs(runs[::-1], NAMES).count == EDGE // 2 * (EDGE // 2 - 3)
    of_both = [run_of(tmp_path / f"val{n}", truth, truth, val=south[:n]) for n in (20, 30)]
    assert compare_runs(of_both, NAMES, "val").count == 20 * CHIP**2
    west = [(0, row, col) for row in range(0, EDGE, CHIP) for col in range(0, EDGE // 2, CHIP)]
    apart = [runs[0], run_of(tmp_path / "west", truth, truth, test=west)]
    with pytest.raises(
        BadInputError, match="first and other have no labelled, mapped place that is a test place of all"
    ):
        compare_runs(apart, NAMES)


def test_values_and_chips_are_compared_by_their_own_scores(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    heights = random.normal(20, 5, (EDGE, EDGE)).astype(np.float32)
    maps = [(heights + random.normal(0, sigma, heights.shape)).astype(np.float32) for sigma in (2.0, 1.0)]
    runs = [run_of(tmp_path / f"v{n}", heights, mapped, "regression") for n, mapped in enumerate(maps)]
    east = np.s_[:, EDGE // 2 :]
    for run, mapped in zip(compare_runs(runs, NAMES).runs, maps, strict=True):
        sums = value_parts(heights[east].ravel(), mapped[east].ravel(), 20.0).sum(1)
        assert run.scores["rmse"] == pytest.approx(ValueTables().document(sums)["rmse"], abs=1e-6)
    assert score_table(compare_runs(runs, NAMES), NAMES, runs[0], "test").rows[0][3].startswith("-1.0")
    # A chip has one class in these maps, as in those of a classifier.
    truth = classes()
    of_chips = [np.kron(with_errors(truth[::8, ::8], share, 4), np.ones((8, 8), np.uint8)) for share in (0.4, 0.1)]
    runs = [run_of(tmp_path / f"c{n}", truth, mapped, "classification") for n, mapped in enumerate(of_chips)]
    compared = compare_runs(runs, NAMES)
    assert compared.count == len(EAST)
    for run, mapped in zip(compared.runs, of_chips, strict=True):
        assert run.scores["accuracy"] == pytest.approx((mapped == truth)[east].mean())
    sets = [np.stack([(mapped == n).astype(np.uint8) for n in range(3)]) for mapped in of_chips]
    runs = [run_of(tmp_path / f"m{n}", truth, mapped, "multilabel") for n, mapped in enumerate(sets)]
    compared = compare_runs(runs, NAMES)
    present = np.stack([truth == n for n in range(3)])[:, ::8, EDGE // 2 :: 8].reshape(3, -1).T
    for run, labels in zip(compared.runs, sets, strict=True):
        tables = label_tables(present, labels[:, ::8, EDGE // 2 :: 8].reshape(3, -1).T > 0)
        assert run.scores["f1_micro"] == pytest.approx(
            LabelTables(CLASSES).document(tables.sum(0))["f1_micro"], abs=1e-6
        )
    assert read_panels(runs, NAMES, "test").groups == []


def test_runs_that_have_no_places_in_common_are_refused_with_what_differs(tmp_path: Path) -> None:
    truth = classes()
    first = run_of(tmp_path / "first", truth, truth)
    with pytest.raises(BadInputError, match="do not have the same classes"):
        compare_runs([first, replace(first, names=("a", "b", "c"))], NAMES)
    with pytest.raises(BadInputError, match="do not have the same task"):
        compare_runs([first, replace(first, task=TASKS["classification"])], NAMES)
    with pytest.raises(BadInputError, match="first and other have other labels at the same pixels"):
        compare_runs([first, run_of(tmp_path / "labels", classes(7), truth)], NAMES)
    of_chips = [run_of(tmp_path / f"c{n}", classes(n), truth, "classification") for n in (0, 7)]
    with pytest.raises(BadInputError, match="first and other have other labels at the same pixels"):
        compare_runs(of_chips, NAMES)
    with pytest.raises(BadInputError, match="do not have the same min_share"):
        compare_runs([of_chips[0], replace(of_chips[0], min_share=0.5)], NAMES)


def test_the_page_shows_each_map_and_where_one_alone_is_right(tmp_path: Path) -> None:
    truth = classes()
    runs = [run_of(tmp_path / name, truth, with_errors(truth, 0.2, n)) for n, name in enumerate(NAMES)]
    names, rows = ["<b>first", "other"], [("train.width", "<16>", "8")]
    panels = read_panels(runs, names, "test")
    assert [panel.title for panel in panels.groups[0].panels] == ["Label", *names, "<b>first and other"]
    scores = score_table(compare_runs(runs, names), names, runs[0], "test")
    page = render_comparison(names, scores, TextTable("Settings", ("Setting", *names), rows), panels)
    assert "&lt;b&gt;first" in page
    assert "<b>first" not in page
    assert "&lt;16&gt;" in page
    assert page.count("<img ") == 4


def test_runs_are_named_by_the_end_of_their_paths_that_differs_and_one_run_twice_is_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a/forest/results", "b/forest/results", "b/lakes")]
    assert names_of(paths) == ["a/forest", "b/forest", "b/lakes"]
    assert names_of(paths[1:]) == ["forest", "lakes"]
    with pytest.raises(UsageError, match="are one run; give runs that differ"):
        names_of([paths[0], paths[0].parent])


def test_equal_scores_on_each_piece_are_no_interval_of_nothing(tmp_path: Path) -> None:
    same = RunScores({"accuracy": 0.9}, {}, {"accuracy": 0.0}, {"accuracy": [0.0, 0.0]})
    assert difference_text(same, "accuracy", "") == "0.000, equal on each piece"
