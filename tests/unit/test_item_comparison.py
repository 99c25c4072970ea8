"""What an item says otherwise than its file is reported with both values, or refused where the grid follows it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scenery import CRS, LEFT, STEP, TOP, Catalog, Completed, Preprocess, Run, Search, numbered, write_raster

from eopipe.text_files import read_json
from eopipe.tiles.store import Tiles

DIFFERENCES: dict[str, tuple[dict[str, Any], str]] = {
    "half a pixel": (
        {"proj:transform": [STEP, 0, LEFT + 5, 0, -STEP, TOP]},
        "field='proj:transform' item='[10, 0, 500005, 0, -10, 5100000]' file='[10, 0, 500000, 0, -10, 5100000]'",
    ),
    "another pixel size": (
        {"proj:transform": [20.0, 0, LEFT, 0, -20.0, TOP]},
        "field='proj:transform' item='[20, 0, 500000, 0, -20, 5100000]' file='[10, 0, 500000, 0, -10, 5100000]'",
    ),
    "another shape": ({"proj:shape": [48, 64]}, "field='proj:shape' item='48 x 64' file='64 x 48' used=file"),
    "another nodata": ({"raster:bands": [{"nodata": 5, "scale": 0.01}]}, "field='nodata' item='5' file='0' used=item"),
    "another scale": ({"raster:bands": [{"scale": 0.1}]}, "field='scale' item='0.1' file='0.01' used=item"),
    "a scale of 1": ({"raster:bands": [{"scale": 1}]}, "field='scale' item='1' file='0.01' used=file"),
    "more bands": ({"raster:bands": [{"scale": 0.01}] * 3}, "field='number of bands' item='3' file='1' used=file"),
}


def describe(catalog: Catalog, stated: dict[str, Any]) -> None:
    """Add a scene of one band with scale 0.01, of which the item says something of its own."""
    import rasterio

    item = catalog.add(bands={"red": numbered((64, 48))}, driver="GTiff")
    with rasterio.open(catalog.root / "s0/red.tif", "r+") as file:
        file.scales = (0.01,)
    item["assets"]["red"] |= {"raster:bands": [{"scale": 0.01, "offset": 0.0, "nodata": 0}]} | stated


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_what_item_and_file_say_differently_is_reported_once_with_both(
    catalog: Catalog, preprocess: Preprocess, caplog: pytest.LogCaptureFixture, difference: str
) -> None:
    stated, expected = DIFFERENCES[difference]
    describe(catalog, stated)
    # The grid is neither the one of the item nor that of the file.
    preprocess("--mask", "none", bands=("red",), left=LEFT + 80, shape=(20, 20)).ends(0)
    assert caplog.text.count("event=item_differs_from_file") == 1, caplog.text
    assert f"raster='scene scene, asset red' {expected}" in caplog.text


def test_an_item_that_agrees_with_its_file_is_not_reported(
    catalog: Catalog, preprocess: Preprocess, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.add()
    preprocess().ends(0)
    assert "item_differs" not in caplog.text


@pytest.mark.parametrize(("stated", "scale"), [({}, 0.01), ({"scale": 1.0}, 0.01), ({"scale": 0.5}, 0.5)])
def test_the_scale_of_the_file_is_used_where_the_item_does_not_scale(
    catalog: Catalog, preprocess: Preprocess, stated: dict[str, float], scale: float
) -> None:
    describe(catalog, {"raster:bands": [stated]})
    preprocess("--mask", "none", bands=("red",)).ends(0)
    array = zarr.open_group(preprocess.store, mode="r")["image"]
    assert (array.attrs["scale_factor"], array.attrs["add_offset"]) == (scale, 0)


WRONG = {
    "pixel size": {"proj:transform": [1.0, 0, LEFT, 0, -1.0, TOP]},
    "larger pixel size": {"proj:transform": [60.0, 0, LEFT, 0, -60.0, TOP]},
    "transposed shape": {"proj:shape": [48, 64]},
    "smaller shape": {"proj:shape": [32, 48]},
}


def staged(catalog: Catalog, run: Run, folder: Path, *arguments: str, fetch: tuple[object, ...] = ()) -> Completed:
    """Search, fetch and preprocess; the first that does not end well."""
    done = Search(run, folder, ("--assets", "red"))(catalog.write(), *arguments)
    assert done.code == 0, done.stderr
    scene, grid = folder / "scene", ("--grid", folder / "grid.json")
    item = ("--item", folder / "items/scene.geojson", "--catalog", catalog.root)
    done = run("fetch", *item, "--scene", scene, *grid, *fetch)
    if done.code:
        return done
    tiles = ("--tiles", folder / "tiles.zarr", "--bands", "red", "--mask", "none")
    return run("preprocess", "--scene", scene, *grid, *tiles)


@pytest.mark.parametrize("fetch", [(), ("--windows",)], ids=["whole", "windows"])
@pytest.mark.parametrize("difference", WRONG)
def test_a_grid_of_a_wrong_item_is_refused_and_the_settings_named(
    catalog: Catalog, run: Run, tmp_path: Path, difference: str, fetch: tuple[object, ...]
) -> None:
    catalog.add(bands={"red": numbered((64, 48))})["assets"]["red"] |= WRONG[difference]
    done = staged(catalog, run, tmp_path, fetch=fetch)
    done.ends(3, "asset red has 64 x 48 pixels and the transform [10, 0, 500000", "search.resolution and search.bbox")


def test_a_transform_in_the_order_of_gdal_gives_the_grid_of_the_file_and_a_warning(
    catalog: Catalog, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # As `gdalinfo -json` writes it (GDAL issue 13358).
    catalog.add(bands={"red": numbered((64, 48))})["assets"]["red"]["proj:transform"] = [LEFT, STEP, 0, TOP, 0, -STEP]
    staged(catalog, run, tmp_path).ends(0)
    assert read_json(tmp_path / "grid.json")["transform"] == [STEP, 0, LEFT, 0, -STEP, TOP]
    assert "event=transform_in_order_of_gdal" in caplog.text
    assert "item_differs" not in caplog.text


@pytest.mark.parametrize("dtype", ["complex64", "complex_int16"])
def test_complex_numbers_are_refused_with_the_command_that_writes_their_amplitude(
    catalog: Catalog, preprocess: Preprocess, tmp_path: Path, dtype: str
) -> None:
    import rasterio

    catalog.add(bands={"red": numbered((64, 48))}, driver="GTiff")
    path = catalog.root / "s0/red.tif"
    with rasterio.open(path) as file:
        profile, values = file.profile, file.read()
    with rasterio.open(path, "w", **profile | {"dtype": dtype, "nodata": None}) as file:
        file.write(values.astype("complex64"))
    preprocess("--mask", "none", bands=("red",)).ends(3, f"complex numbers ({dtype})", "write their amplitude")


@pytest.mark.parametrize("fetch", [(), ("--windows",)], ids=["whole", "windows"])
@pytest.mark.parametrize("difference", WRONG)
def test_resolution_and_area_make_a_grid_without_the_item(
    catalog: Catalog,
    run: Run,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    difference: str,
    fetch: tuple[object, ...],
) -> None:
    item = catalog.add(bands={"red": numbered((64, 48))})
    item["assets"]["red"] |= WRONG[difference]
    points = np.array(item["geometry"]["coordinates"][0])
    west, south, east, north = (*points.min(0), *points.max(0))
    box = [str(value) for value in (west, south, east, north)]
    staged(catalog, run, tmp_path, "--resolution", "10", "--bbox", *box, fetch=fetch).ends(0)
    assert "event=item_differs_from_file" in caplog.text
    assert read_json(tmp_path / "grid.json")["transform"][0] == 10
    assert read_json(tmp_path / "grid.json")["shape"][0] >= 64


@pytest.mark.parametrize("code", ["EPSG:None", "epsg:null", "EPSG:nan", None])
def test_a_crs_code_that_is_not_known_is_ignored(catalog: Catalog, run: Run, tmp_path: Path, code: str | None) -> None:
    item = catalog.add(bands={"red": numbered((64, 48))})
    item["properties"]["proj:code"] = code
    staged(catalog, run, tmp_path, "--crs", CRS, "--resolution", "10").ends(0)
    tiles = Tiles(tmp_path / "tiles.zarr")
    image, valid = tiles.read("image"), tiles.read("valid") > 0
    assert valid.sum() == 64 * 48
    np.testing.assert_array_equal(np.sort(image[0][valid]), np.arange(1, 64 * 48 + 1))


def test_the_mask_asset_is_compared_too(
    catalog: Catalog, preprocess: Preprocess, caplog: pytest.LogCaptureFixture
) -> None:
    item = catalog.add()
    item["assets"]["scl"] |= {"raster:bands": [{"nodata": 255}]}
    preprocess().ends(0)
    assert "raster='scene scene, asset scl' field='nodata' item='255' file='0'" in caplog.text


def test_a_label_asset_is_compared_too(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    catalog.add(bands={"lc": np.ones((64, 48), np.uint8)})
    write_raster(catalog.root / "s0/lc.tif", np.ones((64, 48), np.uint8), crs="EPSG:25833")
    grid = {"crs": CRS, "shape": [64, 48], "transform": [STEP, 0, LEFT, 0, -STEP, TOP]}
    (tmp_path / "g.json").write_text(json.dumps(grid))
    outputs = ("--grid", tmp_path / "g.json", "--labels", tmp_path / "l.zarr")
    scene = catalog.root / "s0"
    (scene / "scene.json").write_text(json.dumps(catalog.items[0]))
    done = run("label", "--scene", scene, "--asset", "lc", "--classes", "a", "b", *outputs)
    done.ends(3, "lc is in EPSG:25833 according to its file", "in EPSG:32633 according to its item")
