"""What a raster says of itself (mask, nodata, scale, unit, direction) holds at every door that reads one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray
import xarray
from rasterio.transform import Affine
from scenery import LEFT, STEP, TOP, Catalog, Run, search_outputs

from eopipe.arrays import AnyArray, FloatArray
from eopipe.documents import typed_mistakes
from eopipe.errors import BadInputError
from eopipe.evaluation.metrics_document import ScoreIntervals, ScoresOfClass, ScoresOfValues
from eopipe.inspection.models import read_array
from eopipe.models.input_check import RATIO, TileProperties
from eopipe.tiles.store import Tiles

HEIGHT, WIDTH, EDGE = 24, 32, 0.75
STORED = np.arange(1, HEIGHT * WIDTH + 1, dtype=np.int16).reshape(HEIGHT, WIDTH)
HOLE = np.zeros((HEIGHT, WIDTH), bool)
HOLE[4:9, 5:20] = True


def nothing_said(file: Any) -> AnyArray:
    file.write(STORED, 1)
    return STORED.astype(np.float32)


def nodata(file: Any) -> AnyArray:
    file.nodata = -9
    file.write(np.where(HOLE, -9, STORED).astype(np.int16), 1)
    return np.where(HOLE, np.nan, STORED)


def mask(file: Any) -> AnyArray:
    file.write(np.where(HOLE, 1, STORED).astype(np.int16), 1)
    file.write_mask(~HOLE)
    return np.where(HOLE, np.nan, STORED)


def scale(file: Any) -> AnyArray:
    nothing_said(file)
    file.scales, file.offsets = (0.01,), (0.5,)
    return STORED * 0.01 + 0.5


def scale_and_nodata(file: Any) -> AnyArray:
    nodata(file)
    file.scales, file.offsets = (0.01,), (0.5,)
    return np.where(HOLE, np.nan, STORED * 0.01 + 0.5)


TABLE = [nothing_said, nodata, mask, scale, scale_and_nodata]


def raster(path: Path, fill: Any, *, runs_north: bool = False) -> tuple[Path, AnyArray]:
    """A GeoTIFF, whose rows may run north, and its physical values from north to south, NaN where it has no data."""
    transform = Affine(STEP, 0, LEFT, 0, STEP if runs_north else -STEP, TOP - HEIGHT * STEP * runs_north)
    profile = {"driver": "GTiff", "width": WIDTH, "height": HEIGHT, "count": 1, "dtype": "int16", "crs": "EPSG:32633"}
    path.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "w", transform=transform, **profile) as file:
        values = fill(file)
    return path, values[::-1] if runs_north else values


@pytest.mark.parametrize("fill", TABLE)
@pytest.mark.parametrize("options", [{}, {"masked": True}, {"mask_and_scale": True}], ids=str)
def test_python_reads_what_rioxarray_opens(tmp_path: Path, fill: Any, options: dict[str, Any]) -> None:
    path, values = raster(tmp_path / "a.tif", fill)
    array = rioxarray.open_rasterio(path, **options)
    if fill is mask and "masked" not in options and "mask_and_scale" not in options:
        # rioxarray itself drops a mask of the file, if it is not asked for one.
        values = np.where(HOLE, 1, STORED)
    np.testing.assert_allclose(read_array(array, None)[0], values, rtol=1e-6)


@pytest.mark.parametrize("fill", [nothing_said, nodata, mask])
def test_python_reads_a_masked_array_of_rasterio(tmp_path: Path, fill: Any) -> None:
    path, values = raster(tmp_path / "a.tif", fill)
    with rasterio.open(path) as file:
        np.testing.assert_allclose(read_array(file.read(masked=True), None)[0], values)


@pytest.mark.parametrize("runs_north", [False, True])
@pytest.mark.parametrize("fill", TABLE)
def test_labels_and_masks_of_chips_have_the_same_classes(tmp_path: Path, run: Run, fill: Any, runs_north: bool) -> None:
    path, values = raster(tmp_path / "label.tif", fill, runs_north=runs_north)
    bins = float(np.nanmedian(values))
    expected = np.where(np.isnan(values), 255, values >= bins).astype(np.uint8)
    grid = tmp_path / "grid.json"
    grid.write_text(
        f'{{"crs": "EPSG:32633", "shape": [{HEIGHT}, {WIDTH}], "transform": [{STEP}, 0, {LEFT}, 0, {-STEP}, {TOP}]}}'
    )
    classes = ("--classes", "low", "high", "--bins", bins)
    done = run("label", "--grid", grid, "--source", path, "--labels", tmp_path / "l.zarr", *classes)
    assert done.code == 0, done.stderr
    np.testing.assert_array_equal(Tiles(tmp_path / "l.zarr").read("label"), expected)
    if runs_north:
        return
    raster(tmp_path / "images/a.tif", nothing_said)
    raster(tmp_path / "masks/a.tif", fill)
    patterns = ("--images", tmp_path / "images/*.tif", "--masks", tmp_path / "masks/*.tif")
    done = run("import", tmp_path / "set", *patterns, *classes)
    assert done.code == 0, done.stderr
    [labels] = (tmp_path / "set/labels").glob("*.zarr")
    np.testing.assert_array_equal(Tiles(labels).read("label")[:HEIGHT, :WIDTH], expected)


@pytest.mark.parametrize("fill", TABLE)
def test_preprocess_and_import_keep_the_physical_values(tmp_path: Path, run: Run, fill: Any) -> None:
    catalog = Catalog(tmp_path / "catalog")
    item = catalog.add(bands={"b": STORED.astype(np.uint16)}, shape=(HEIGHT, WIDTH))
    _, values = raster(catalog.root / "s0/b.tif", fill)
    item["assets"]["b"] = {key: item["assets"]["b"][key] for key in ("href", "proj:transform", "proj:shape")}
    catalog.write()
    done = run("search", "--catalog", catalog.root, *search_outputs(tmp_path), "--assets", "b")
    assert done.code == 0, done.stderr
    files = ("--item", tmp_path / "items/scene.geojson", "--catalog", catalog.root, "--grid", tmp_path / "grid.json")
    done = run("fetch", *files, "--scene", tmp_path / "scene")
    assert done.code == 0, done.stderr
    tiles = ("--scene", tmp_path / "scene", *files[-2:], "--tiles", tmp_path / "t.zarr", "--bands", "b")
    done = run("preprocess", *tiles, "--mask", "none", "--resampling", "nearest")
    assert done.code == 0, done.stderr
    check(Tiles(tmp_path / "t.zarr"), values, "b")
    raster(tmp_path / "images/a.tif", fill)
    raster(tmp_path / "masks/a.tif", nothing_said)
    patterns = ("--images", tmp_path / "images/*.tif", "--masks", tmp_path / "masks/*.tif")
    done = run("import", tmp_path / "set", *patterns, "--classes", "low", "high", "--bins", "300")
    assert done.code == 0, done.stderr
    [store] = (tmp_path / "set/tiles").glob("*.zarr")
    check(Tiles(store), values, "band_1")


def check(store: Tiles, values: AnyArray, band: str) -> None:
    window = np.s_[:HEIGHT], np.s_[:WIDTH]
    np.testing.assert_array_equal(store.read("valid", *window) > 0, np.isfinite(values))
    physical = store.physical((band,), *window)[0]
    np.testing.assert_allclose(physical[np.isfinite(values)], values[np.isfinite(values)], rtol=1e-5)


def named(values: FloatArray, **attributes: Any) -> xarray.DataArray:
    return xarray.DataArray(values, dims=("band", "y", "x"), attrs=attributes)


@pytest.mark.parametrize(
    ("attributes", "is_missing"),
    [
        ({"missing_value": 3}, [3]),
        ({"_FillValue": 3, "missing_value": [4, 5]}, [3, 4, 5]),
        ({"valid_min": 2, "valid_max": 4}, [0, 1, 5]),
        ({"valid_range": (1, 4)}, [0, 5]),
        ({"_FillValue": -9999}, []),
    ],
    ids=str,
)
def test_attributes_of_cf_say_what_is_missing(attributes: dict[str, Any], is_missing: list[int]) -> None:
    values = np.arange(6, dtype=np.uint8).reshape(1, 1, 6)
    actual = read_array(named(values, scale_factor=0.5, **attributes), None).ravel()
    assert np.flatnonzero(np.isnan(actual)).tolist() == is_missing
    assert np.nanmax(actual) == 0.5 * max(set(range(6)) - set(is_missing))


def test_numbers_of_another_unit_than_in_the_training_are_refused() -> None:
    trained_on = TileProperties(10.0, (RATIO,), ("",))
    stored = np.ones((1, 2, 2), np.uint16)
    with pytest.raises(BadInputError, match=r"digital numbers, and the model learned from physical"):
        read_array(stored, trained_on)
    with pytest.raises(BadInputError, match="the array has dB"):
        read_array(named(stored.astype(np.float32), units="dB"), trained_on)
    assert read_array(named(stored, scale_factor=0.5), trained_on).max() == 0.5
    assert read_array(stored.astype(np.float32), trained_on).max() == 1
    assert read_array(stored, TileProperties(10.0, ("digital numbers",), ("",))).max() == 1


def test_a_file_whose_scale_is_0_is_refused_where_its_numbers_are_used(tmp_path: Path, run: Run) -> None:
    def zero(file: Any) -> AnyArray:
        file.scales = (0.0,)
        return nothing_said(file)

    raster(tmp_path / "masks/a.tif", zero)
    raster(tmp_path / "images/a.tif", zero)
    patterns = ("--images", tmp_path / "images/*.tif", "--masks", tmp_path / "masks/*.tif")
    done = run("import", tmp_path / "set", *patterns, "--classes", "low", "high", "--bins", "300")
    assert done.code == 3
    assert "a.tif has the scale 0; correct it" in done.stderr


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        (ScoresOfValues, {"rmse": -1, "mae": 1, "bias": -1, "r2": 0.5}, "rmse"),
        (ScoresOfValues, {"rmse": 1, "mae": 1, "bias": -1, "r2": 1.5}, "r2"),
        (ScoresOfClass, {"iou": 1.2, "precision": 0, "recall": 1, "f1": None, "support": 3}, "iou"),
        (ScoreIntervals, {"level": 95}, "level"),
    ],
)
def test_scores_that_no_map_can_have_are_refused(kind: Any, values: dict[str, Any], field: str) -> None:
    [sentence] = typed_mistakes(kind, values)
    assert sentence.startswith(f"{field} is ")
    possible = {"rmse": 1, "r2": -3.0, "iou": 1.0, "level": 0.95}
    assert not typed_mistakes(kind, values | {field: possible[field]})
