"""Continuous labels: their pixels, unit and unlabelled values, and their statistics in the split."""

from pathlib import Path

import numpy as np
import pytest
from builders import write_features
from scenery import CRS, LEFT, STEP, TOP, Run, write_raster
from shapely import Polygon, box
from test_label import label

from eopipe.arrays import AnyArray
from eopipe.chips.chips import is_continuous, unit_of
from eopipe.chips.statistics import BandSummary, Statistics, label_scaling
from eopipe.errors import BadInputError
from eopipe.publish import digest
from eopipe.tiles.store import Tiles


def stored(folder: Path) -> AnyArray:
    store = Tiles(folder / "labels.zarr")
    values = store.read("label")
    assert is_continuous(store)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(store.read("valid"), np.isfinite(values))
    return values


def heights() -> AnyArray:
    return (np.arange(64 * 48).reshape(64, 48) % 97 / 4).astype(np.float32)


def test_a_raster_keeps_its_numbers_with_quantity_unit_and_range(tmp_path: Path, run: Run) -> None:
    values = heights()
    values[0, 0], values[5, 7] = np.nan, -1
    source = write_raster(tmp_path / "height.tif", values, nodata=-1)
    completed = label(run, tmp_path, "--source", source, "--measure", "canopy height", "--unit", "m")
    assert completed.code == 0, completed.stderr
    values[5, 7] = np.nan
    np.testing.assert_array_equal(stored(tmp_path), values)
    store = Tiles(tmp_path / "labels.zarr")
    assert (store.names, unit_of(store)) == (("canopy height",), "m")
    assert store.attributes["pixels"] == {"canopy height": 64 * 48 - 2}
    assert store.attributes["range"] == [0, 24]
    before = digest(tmp_path / "labels.zarr")
    assert label(run, tmp_path, "--source", source, "--measure", "canopy height", "--unit", "m").code == 0
    assert digest(tmp_path / "labels.zarr") == before


def test_a_store_of_values_passes_the_check(tmp_path: Path, run: Run) -> None:
    source = write_raster(tmp_path / "height.tif", heights(), nodata=-1)
    assert label(run, tmp_path, "--source", source, "--measure", "canopy height", "--unit", "m").code == 0
    assert run("tiles", "check", tmp_path / "labels.zarr").code == 0


def test_the_average_of_integers_is_a_fraction(tmp_path: Path, run: Run) -> None:
    fine = np.tile(np.array([[0, 1], [0, 0]], np.uint8), (32, 24))
    source = write_raster(tmp_path / "cover.tif", fine, nodata=None)
    arguments = ("--source", source, "--measure", "cover", "--resampling", "average")
    completed = label(run, tmp_path, *arguments, shape=(32, 24), step=2 * STEP)
    assert completed.code == 0, completed.stderr
    np.testing.assert_allclose(stored(tmp_path), 0.25)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_outside_of_a_raster_without_nodata_there_is_no_value(tmp_path: Path, run: Run, dtype: str) -> None:
    source = write_raster(tmp_path / "height.tif", np.full((32, 48), 7, dtype), nodata=None)
    assert label(run, tmp_path, "--source", source, "--measure", "height").code == 0
    values = stored(tmp_path)
    assert (values[:32] == 7).all()
    assert np.isnan(values[32:]).all()


def test_ignored_numbers_are_unlabelled(tmp_path: Path, run: Run) -> None:
    numbers = (np.arange(64 * 48).reshape(64, 48) % 5).astype(np.int16)
    source = write_raster(tmp_path / "cover.tif", numbers, nodata=None)
    assert label(run, tmp_path, "--source", source, "--measure", "cover", "--ignore", 3, 4).code == 0
    np.testing.assert_array_equal(stored(tmp_path), np.where(numbers < 3, numbers, np.nan))


def square(left: float, right: float, value: object) -> tuple[Polygon, dict[str, object]]:
    return box(LEFT + STEP * left, TOP - 8 * STEP, LEFT + STEP * right, TOP), {"height": value}


def shapes(folder: Path, *features: tuple[Polygon, dict[str, object]]) -> Path:
    return write_features(folder / "heights.geojson", *features, crs=CRS)


@pytest.mark.parametrize(("overlap", "between"), [("invalid", np.nan), ("last", 2.5), ("first", 7.0)])
def test_shapes_are_rasterised_with_their_number_and_overlaps_are_unlabelled_or_one_of_them(
    tmp_path: Path, run: Run, overlap: str, between: float
) -> None:
    source = shapes(tmp_path, square(0, 6, 7), square(4, 10, 2.5), square(8, 12, 2.5), square(14, 16, None))
    arguments = ("--source", source, "--measure", "height", "--attribute", "height", "--overlap", overlap)
    completed = label(run, tmp_path, *arguments)
    assert completed.code == 0, completed.stderr
    row = stored(tmp_path)[3]
    np.testing.assert_array_equal(row[:12], [*[7.0] * 4, *[between] * 2, *[2.5] * 6])
    assert np.isnan(row[12:]).all()
    assert Tiles(tmp_path / "labels.zarr").attributes["conflicts"] == 16


def test_text_in_place_of_numbers_and_options_of_classes_are_reported(tmp_path: Path, run: Run) -> None:
    source = shapes(tmp_path, square(0, 4, "tall"))
    arguments = ("--source", source, "--attribute", "height")
    completed = label(run, tmp_path, *arguments, "--measure", "height")
    assert (completed.code, "not numbers: tall" in completed.stderr) == (3, True)
    completed = label(run, tmp_path, *arguments, "--measure", "height", "--bins", 5)
    assert (completed.code, "label.bins turns them into classes" in completed.stderr) == (2, True)
    completed = label(run, tmp_path, *arguments, "--resampling", "bilinear")
    assert (completed.code, "would average class numbers" in completed.stderr) == (2, True)


def test_a_file_without_a_value_on_the_grid_is_refused(tmp_path: Path, run: Run) -> None:
    source = write_raster(tmp_path / "height.tif", np.full((64, 48), -1, np.float32), nodata=-1)
    completed = label(run, tmp_path, "--source", source, "--measure", "height")
    assert (completed.code, "no value on the grid" in completed.stderr) == (3, True)
    assert not (tmp_path / "labels.zarr").exists()


def test_statistics_without_labels_or_of_one_value_cannot_scale_them() -> None:
    without = Statistics(bands={}, pixels={}, samples="")
    with pytest.raises(BadInputError, match="run split again"):
        label_scaling(without, Path("statistics.json"))
    one_value = without.model_copy(update={"labels": BandSummary(mean=3.0, std=0.0, count=4)})
    with pytest.raises(BadInputError, match="nothing to learn"):
        label_scaling(one_value, Path("statistics.json"))
