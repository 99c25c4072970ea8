"""A store opens in xarray, rioxarray and GDAL with its pixels georeferenced."""

import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401 - georeferences arrays of xarray
import xarray
import zarr
import zarr_cm
from affine import Affine
from gdal import Gdal, available_libraries
from odc.geo.geobox import GeoBox
from pyproj import CRS

from eopipe.text_files import read_json, write_json
from eopipe.tiles.grid import make_grid
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles, add_array, declare_nodata, new_store

GDALS = available_libraries()
VALIDATORS = Path(__file__).parents[2] / ".venv/validators/bin/python"
# Zarr v3 as it was standardised, and shards, came with these.
STANDARD, SHARDS = (3, 11), (3, 13)
GRIDS = {
    "EPSG:32633": ((500000.0, 4999520.0, 500400.0, 5000000.0), 10.0),
    "EPSG:4326": ((15.0, 45.0, 15.4, 45.48), 0.01),
    "EPSG:3035": ((4321000.0, 3210000.0, 4329000.0, 3219600.0), 200.0),
}


@pytest.fixture(params=GRIDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / "t.zarr", request.param)


def grid_of(crs: str = "EPSG:32633") -> GeoBox:
    bounds, step = GRIDS[crs]
    return make_grid(bounds, crs, step, (0, 0))


def write(path: Path, crs: str, *, shards: bool = True) -> Path:
    """Write a store of two bands whose numbers encode their position."""
    grid = grid_of(crs)
    pixels = np.arange(2 * 48 * 40, dtype="uint16").reshape(2, 48, 40)
    with new_store(path, grid, ("red", "nir"), "s", {"datetime": "2020-01-01T00:00:00Z"}) as group:
        if shards:
            image = add_array(group, "image", pixels.shape, "uint16", Layout(16, 32), scale_factor=0.5, add_offset=-1.0)
        else:
            image = group.create_array(
                "image", shape=pixels.shape, chunks=(2, 16, 16), dtype="uint16", dimension_names=("band", "y", "x")
            )
            image.attrs.update({"grid_mapping": "spatial_ref"})
        image[:] = pixels
        add_array(group, "valid", pixels.shape[1:], "uint8", Layout(16, 32))[:] = 1
    return path


def test_xarray_and_rioxarray_find_grid_and_physical_values_by_themselves(store: Path) -> None:
    grid = Tiles(store).grid
    with xarray.open_zarr(store, decode_coords="all") as opened:
        image = opened["image"]
        assert image.dims == ("band", "y", "x")
        assert image.rio.crs == CRS.from_user_input(str(grid.crs))
        assert image.rio.transform().almost_equals(grid.affine, 1e-9)
        assert opened["valid"].rio.crs == image.rio.crs
        assert image.rio.bounds() == pytest.approx(tuple(grid.boundingbox.bbox))
        # CF: stored * scale_factor + add_offset.
        assert float(image[1, 47, 39]) == (2 * 48 * 40 - 1) * 0.5 - 1.0
        names = {opened[axis].attrs["standard_name"] for axis in "xy"}
        geographic = {"longitude", "latitude"}
        assert names == (geographic if grid.crs.geographic else {"projection_x_coordinate", "projection_y_coordinate"})


def test_a_plain_open_zarr_has_crs_band_names_and_time(store: Path) -> None:
    grid = Tiles(store).grid
    with xarray.open_zarr(store) as opened:
        image = opened["image"]
        assert CRS.from_user_input(str(grid.crs)) == opened.rio.crs == image.rio.crs == opened["valid"].rio.crs
        np.testing.assert_array_equal(image.sel(band="nir"), Tiles(store).physical(("nir",))[0])
        assert opened["time"].values == np.datetime64("2020-01-01T00:00:00")
        assert set(image.coords) == {"band", "spatial_ref", "time", "y", "x"}
        two = xarray.concat([opened, opened.assign_coords(time=np.datetime64("2020-02-01", "ns"))], "time")
        assert two["image"].sizes["time"] == 2


@pytest.mark.exhaustive
def test_odc_finds_the_grid_in_a_plain_open_zarr(store: Path) -> None:
    if not VALIDATORS.exists():
        pytest.skip("odc.geo.xr and dask are not installed; run `make .venv/validators`")
    # In an environment of its own, since xarray opens stores otherwise where dask is.
    code = """
import sys, odc.geo.xr, xarray
opened = xarray.open_zarr(sys.argv[1])
assert opened["image"].odc.crs == opened.odc.crs
print(opened.odc.crs.to_epsg(), *opened["image"].odc.geobox.affine[:6])
"""
    line = [VALIDATORS, "-c", code, store]
    epsg, *affine = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    grid = Tiles(store).grid
    assert int(epsg) == grid.crs.to_epsg()
    assert Affine(*map(float, affine)).almost_equals(grid.affine, 1e-9)


def test_a_store_without_a_date_has_no_time_but_opens(tmp_path: Path) -> None:
    with new_store(tmp_path / "t.zarr", grid_of(), ("a",), "s", {"datetime": None}) as group:
        add_array(group, "image", (1, 48, 40), "uint16", Layout(16, 32), scale_factor=1.0, add_offset=0.0)[:] = 3
    with xarray.open_zarr(tmp_path / "t.zarr") as opened:
        assert np.isnat(opened["time"].values)


@pytest.mark.parametrize("dtype", ["uint16", "int16", "float32"])
def test_pixels_without_data_are_nan_in_xarray_and_no_others(tmp_path: Path, dtype: str) -> None:
    pixels = np.arange(2 * 48 * 40).reshape(2, 48, 40).astype(dtype)
    pixels[:, :, :5] = 0
    with new_store(tmp_path / "t.zarr", grid_of(), ("red", "nir"), "s", {}) as group:
        image = add_array(group, "image", pixels.shape, dtype, Layout(16, 32), scale_factor=0.5, add_offset=-1.0)
        image[:] = pixels
        declare_nodata(image)
    with xarray.open_zarr(tmp_path / "t.zarr") as opened:
        np.testing.assert_array_equal(np.isnan(opened["image"]), pixels == 0)
        np.testing.assert_allclose(opened["image"].values[pixels > 0], pixels[pixels > 0] * 0.5 - 1.0)
    np.testing.assert_array_equal(Tiles(tmp_path / "t.zarr").read("image"), pixels, "the stored numbers are the same")


def test_a_store_of_an_earlier_version_reads_as_before(tmp_path: Path) -> None:
    """Without band names, time and nodata, as stores were until revision 2."""
    store = write(tmp_path / "t.zarr", "EPSG:32633")
    pixels = Tiles(store).read("image")
    for name in ("band", "time"):
        shutil.rmtree(store / name)
    for name in ("image", "valid"):
        metadata = read_json(store / name / "zarr.json")
        for key in ("coordinates", "ancillary_variables", "flag_values", "flag_meanings"):
            metadata["attributes"].pop(key, None)
        write_json(store / name / "zarr.json", metadata)
    (store / "manifest.json").unlink()
    with warnings.catch_warnings(action="ignore"):
        zarr.consolidate_metadata(store)
    np.testing.assert_array_equal(Tiles(store).read("image"), pixels)
    assert Tiles(store).physical(("nir",)).shape == (1, 48, 40)


def test_the_grid_mapping_is_complete_by_cf(store: Path) -> None:
    attributes = dict(zarr.open_group(store, mode="r")["spatial_ref"].attrs)
    assert CRS.from_cf(attributes) == CRS.from_user_input(str(Tiles(store).grid.crs))
    assert attributes["grid_mapping_name"]
    assert CRS.from_wkt(str(attributes["spatial_ref"])) == CRS.from_wkt(str(attributes["crs_wkt"]))


def test_the_attributes_keep_the_released_conventions_of_geozarr(store: Path) -> None:
    attributes = Tiles(store).attributes
    newest = {name: zarr_cm.latest_revisions()[name] for name in ("proj", "spatial")}
    assert zarr_cm.detect_revisions(attributes) == newest
    zarr_cm.validate_all(attributes)
    group = read_json(store / "zarr.json")
    assert zarr_cm.spatial.validate_group_metadata(group)
    assert zarr_cm.proj.validate_group_metadata(group)
    for entry in attributes["zarr_conventions"]:
        released = zarr_cm.convention_metadata(entry["name"])
        assert entry == {key: released[key] for key in ("name", "uuid", "schema_url", "spec_url")}
    with pytest.raises(ValueError, match="spatial:shape"):
        zarr_cm.validate_all(attributes | {"spatial:shape": [48]})
    assert CRS.from_user_input(attributes["proj:code"]) == CRS.from_user_input(str(Tiles(store).grid.crs))
    left, bottom, right, top = attributes["spatial:bbox"]
    affine, (height, width) = Affine(*attributes["spatial:transform"]), attributes["spatial:shape"]
    assert (affine @ (0, 0), affine @ (width, height)) == (pytest.approx((left, top)), pytest.approx((right, bottom)))
    assert attributes["spatial:dimensions"] == ["y", "x"]


def test_two_lines_make_a_geotiff_for_every_program_that_reads_no_shards(store: Path, tmp_path: Path) -> None:
    with xarray.open_zarr(store, decode_coords="all", mask_and_scale=False) as opened:
        opened["image"].rio.to_raster(tmp_path / "image.tif")
    with rasterio.open(tmp_path / "image.tif") as file:
        assert file.crs == rasterio.CRS.from_user_input(str(Tiles(store).grid.crs))
        assert file.transform.almost_equals(Tiles(store).grid.affine, 1e-9)
        np.testing.assert_array_equal(file.read(), Tiles(store).read("image"))


@pytest.mark.parametrize("gdal", GDALS, ids=lambda gdal: "GDAL " + ".".join(map(str, gdal.version)))
def test_gdal_shows_the_image_in_its_place_where_it_reads_shards_and_else_says_why_not(
    gdal: Gdal, tmp_path: Path
) -> None:
    store = write(tmp_path / "t.zarr", "EPSG:32633")
    dataset = gdal.read(f'ZARR:"{store}":/image')
    if "blosc" not in gdal.zarr:
        assert "pixels" not in dataset, "built without the Zarr driver or Blosc"
    elif gdal.version >= SHARDS:
        in_place(dataset, store)
    elif gdal.version >= (3, 8):
        # https://github.com/OSGeo/gdal/pull/13708 added shards and crc32c.
        assert dataset == {"error": "Unsupported codec: sharding_indexed"}
    else:
        assert dataset == {"error": ""}, "a driver that knows only drafts of Zarr v3 does not take it for its own"


@pytest.mark.parametrize("gdal", GDALS, ids=lambda gdal: "GDAL " + ".".join(map(str, gdal.version)))
def test_but_for_the_shards_every_gdal_since_3_11_finds_place_and_pixels(gdal: Gdal, tmp_path: Path) -> None:
    store = write(tmp_path / "t.zarr", "EPSG:32633", shards=False)
    dataset = gdal.read(f'ZARR:"{store}":/image')
    if gdal.version >= STANDARD and "blosc" in gdal.zarr:
        in_place(dataset, store)
    else:
        assert "pixels" not in dataset


def in_place(dataset: dict[str, Any], store: Path) -> None:
    tiles = Tiles(store)
    assert dataset["error"] == ""
    assert dataset["transform"] == pytest.approx(list(tiles.grid.affine.to_gdal()))
    assert CRS.from_wkt(dataset["wkt"]) == CRS.from_user_input(str(tiles.grid.crs))
    np.testing.assert_array_equal(np.array(dataset["pixels"]), tiles.read("image"))
