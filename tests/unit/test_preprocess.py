"""Preprocess puts every pixel at its position, recognises invalid pixels, and publishes nothing damaged."""

import re
import shutil
import warnings
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401 - georeferences arrays of xarray
import xarray
from scenery import CLEAR, CRS, LEFT, STEP, TOP, Catalog, Preprocess, Run, numbered, write_raster

from eopipe.inspection.tiles_command import find_errors
from eopipe.publish import digest, verify
from eopipe.tiles.store import Tiles


@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "cubic", "average"])
def test_every_pixel_keeps_its_place_on_its_own_grid(catalog: Catalog, preprocess: Preprocess, resampling: str) -> None:
    catalog.add()
    image, valid = preprocess.pixels("--resampling", resampling)
    np.testing.assert_array_equal(image, [numbered((64, 48)), numbered((64, 48), 101)])
    assert valid.all()


@pytest.mark.parametrize("resampling", ["nearest", "bilinear"])
@pytest.mark.parametrize(("right", "down"), [(5, 3), (-7, 10), (40, -60)])
@pytest.mark.parametrize("nodata", [0, None])
def test_a_grid_shifted_by_whole_pixels_shifts_the_scene(
    catalog: Catalog, preprocess: Preprocess, resampling: str, right: int, down: int, nodata: int | None
) -> None:
    catalog.add(nodata=nodata)
    image, valid = preprocess.pixels("--resampling", resampling, left=LEFT + right * STEP, top=TOP - down * STEP)
    around = np.pad(numbered((64, 48)), 64)
    expected = around[64 + down : 128 + down, 64 + right : 112 + right]
    np.testing.assert_array_equal(valid, expected > 0)
    np.testing.assert_array_equal(image[0], expected)


@pytest.mark.parametrize("nodata", [0, None])
def test_coarser_bands_repeat_their_pixels_with_nearest(
    catalog: Catalog, preprocess: Preprocess, nodata: int | None
) -> None:
    coarse = numbered((32, 24))
    bands = {"blue": numbered((64, 48)), "swir": coarse, "scl": np.full((32, 24), 4, np.uint8)}
    catalog.add(bands=bands, steps={"swir": 20.0, "scl": 20.0}, nodata=nodata)
    image, valid = preprocess.pixels("--resampling", "nearest", bands=("swir", "blue"))
    np.testing.assert_array_equal(image[0], coarse.repeat(2, 0).repeat(2, 1))
    np.testing.assert_array_equal(image[1], numbered((64, 48)))
    assert valid.all()


# Across a coarse pixel of 120 and the 240 and 600 that follow it, by hand: half a coarse pixel at either end has no
# neighbour to interpolate with, between their centres numbers rise linearly.
ACROSS = {
    20.0: [120, 150, 210, 330, 510, 600],
    60.0: [120] * 3 + [130, 150, 170, 190, 210, 230, 270, 330, 390, 450, 510, 570] + [600] * 3,
}


@pytest.mark.parametrize("step", [20.0, 60.0])
@pytest.mark.parametrize("nodata", [0, None])
def test_bilinear_shifts_coarser_bands_by_half_a_pixel(
    catalog: Catalog, preprocess: Preprocess, step: float, nodata: int | None
) -> None:
    coarse, across = np.array([[120, 240, 600]] * 3, np.uint16), np.array(ACROSS[step])
    edge = len(across)
    bands = {"right": coarse, "down": coarse.T.copy(), "scl": np.full((edge, edge), 4, np.uint8)}
    catalog.add(bands=bands, steps={"right": step, "down": step}, nodata=nodata, shape=(edge, edge))
    image, valid = preprocess.pixels(bands=("right", "down"), shape=(edge, edge))
    np.testing.assert_array_equal(image[0], np.tile(across, (edge, 1)))
    np.testing.assert_array_equal(image[1], image[0].T)
    assert valid.all()


@pytest.mark.parametrize("step", [20.0, 60.0])
@pytest.mark.parametrize("off", [0, 1, 3])
def test_nearest_repeats_coarser_pixels_from_any_corner_on(
    catalog: Catalog, preprocess: Preprocess, step: float, off: int
) -> None:
    times, coarse = round(step / STEP), numbered((9, 7))
    shape = (9 * times - off, 7 * times - off)
    catalog.add(bands={"red": coarse, "scl": CLEAR}, steps={"red": step})
    corner = {"left": LEFT + off * STEP, "top": TOP - off * STEP}
    arguments = ("--resampling", "nearest", "--mask", "none")
    image, valid = preprocess.pixels(*arguments, bands=("red",), shape=shape, **corner)
    np.testing.assert_array_equal(image[0], coarse.repeat(times, 0).repeat(times, 1)[off:, off:])
    assert valid.all()


@pytest.mark.parametrize(("crs", "resampling"), [(CRS, "bilinear"), ("EPSG:32634", "cubic"), ("EPSG:32634", "average")])
def test_the_number_of_threads_changes_no_byte(
    catalog: Catalog, preprocess: Preprocess, crs: str, resampling: str
) -> None:
    from rasterio.warp import transform

    noise = np.random.default_rng(2).integers(0, 400, (512, 512), np.uint16)
    scl = np.where(noise[:256, :256] < 8, 9, 4).astype(np.uint8)
    catalog.add(bands={"blue": noise, "red": noise[::-1], "scl": scl}, steps={"scl": 20.0}, shape=(512, 512))
    digests = set()
    (left,), (top,) = transform(CRS, crs, [LEFT + 303], [TOP - 404])
    size = ("--chunk", 32, "--shard", 96, "--dilate", 3, "--resampling", resampling)
    for threads in (0, 1, 2, 3):
        georeference = {"left": left, "top": top, "crs": crs, "shape": (400, 410)}
        _, valid = preprocess.pixels(*size, "--threads", threads, size=(), **georeference)
        assert 0.1 < valid.mean() < 0.9
        digests.add(digest(preprocess.store))
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("crs", "resampling"), [(CRS, "nearest"), ("EPSG:32634", "bilinear"), ("EPSG:32634", "average")]
)
def test_damage_inside_a_block_is_reported_with_its_row_and_column(
    catalog: Catalog, preprocess: Preprocess, crs: str, resampling: str
) -> None:
    import rasterio
    from rasterio.warp import transform

    noise = np.random.default_rng(1).integers(1, 9999, (768, 768), np.uint16)
    catalog.add(bands={"red": noise}, shape=(768, 768), driver="GTiff", tiled=True, blockxsize=256, blockysize=256)
    with rasterio.open(preprocess.scene / "red.tif") as file:
        offset, size = (int(file.get_tag_item(f"BLOCK_{tag}_1_2", "TIFF", 1)) for tag in ("OFFSET", "SIZE"))
    with (preprocess.scene / "red.tif").open("r+b") as raw:
        raw.seek(offset + size // 2)
        raw.write(b"\xff" * 64)
    (left,), (top,) = transform(CRS, crs, [LEFT + 40], [TOP - 60])
    arguments = ("--mask", "none", "--resampling", resampling, "--threads", 2)
    georeference = {"left": left, "top": top, "crs": crs, "shape": (700, 700)}
    completed = preprocess(*arguments, bands=("red",), size=("--chunk", 64, "--shard", 256), **georeference).ends(4)
    match = re.search(r"scene scene, asset red is truncated or damaged near row (\d+), column (\d+)", completed.stderr)
    assert match, completed.stderr
    # Where GDAL resamples, the position is that of the first window of the grid that needs the block.
    expected = (512, 256) if resampling != "average" else (256, 0)
    assert (int(match[1]), int(match[2])) == expected


def test_another_crs_puts_a_landmark_where_it_is(catalog: Catalog, preprocess: Preprocess) -> None:
    from pyproj import Transformer

    pixels = np.full((64, 48), 10, np.uint16)
    pixels[20:23, 30:33] = 5000
    catalog.add(bands={"red": pixels})
    x, y = Transformer.from_crs(CRS, "EPSG:3035", always_xy=True).transform(LEFT + 315.0, TOP - 215.0)
    arguments = ("--mask", "red", "--masked", 0, "--resampling", "nearest")
    image, _ = preprocess.pixels(
        *arguments, crs="EPSG:3035", left=x - 105, top=y + 105, shape=(21, 21), bands=("red",), size=()
    )
    assert image[0, 10, 10] == 5000
    rows, cols = np.nonzero(image[0] == 5000)
    assert abs(rows.mean() - 10) < 0.7
    assert abs(cols.mean() - 10) < 0.7


@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "cubic"])
@pytest.mark.parametrize("nodata", [0, None])
def test_pixels_outside_the_scene_are_not_valid(
    catalog: Catalog, preprocess: Preprocess, resampling: str, nodata: int | None
) -> None:
    first = 1 if nodata == 0 else 0  # without a nodata value a zero is valid
    blue, red = numbered((64, 48), first), numbered((64, 48), 101)
    catalog.add(bands={"blue": blue, "red": red, "scl": CLEAR}, nodata=nodata)
    arguments = ("--resampling", resampling, "--masked", 9)
    image, valid = preprocess.pixels(*arguments, left=LEFT - 160, top=TOP + 160, shape=(96, 80))
    inside = np.zeros((96, 80), bool)
    inside[16:80, 16:64] = True
    np.testing.assert_array_equal(valid, inside)
    assert (image[:, ~inside] == 0).all()
    np.testing.assert_array_equal(image[0][inside].reshape(64, 48), blue)
    assert Tiles(preprocess.store).attributes["valid_fraction"] == pytest.approx(0.4)


def test_a_pixel_is_valid_only_where_every_band_is(catalog: Catalog, preprocess: Preprocess) -> None:
    blue, red = numbered((64, 48)), numbered((64, 48), 101)
    blue[3, 4], red[5, 6] = 0, 0
    catalog.add(bands={"blue": blue, "red": red, "scl": CLEAR})
    _, valid = preprocess.pixels()
    assert sorted(map(tuple, np.argwhere(~valid).tolist())) == [(3, 4), (5, 6)]


def test_nodata_of_the_item_overrides_that_of_the_file(catalog: Catalog, preprocess: Preprocess) -> None:
    item = catalog.add()
    for name in ("blue", "red"):
        item["assets"][name]["raster:bands"][0]["nodata"] = 110
    _, valid = preprocess.pixels()
    assert np.argwhere(~valid).tolist() == [[0, 9], [2, 13]]


def test_the_mask_asset_decides_what_is_usable(catalog: Catalog, preprocess: Preprocess) -> None:
    scl = (np.arange(64 * 48).reshape(64, 48) % 12).astype(np.uint8)
    catalog.add(bands={"blue": numbered((64, 48)), "red": numbered((64, 48)), "scl": scl})
    image, valid = preprocess.pixels()
    np.testing.assert_array_equal(valid, np.isin(scl, (2, 4, 5, 6, 7)))
    np.testing.assert_array_equal(image[0], numbered((64, 48)), "masked pixels keep their numbers")
    _, valid = preprocess.pixels("--masked", 4)
    np.testing.assert_array_equal(valid, (scl != 4) & (scl != 0))


def test_a_coarser_mask_asset_is_never_interpolated(catalog: Catalog, preprocess: Preprocess) -> None:
    scl = np.where(np.random.default_rng(5).random((32, 24)) < 0.5, 4, 8).astype(np.uint8)
    catalog.add(bands={"blue": numbered((64, 48)), "red": numbered((64, 48)), "scl": scl}, steps={"scl": 20.0})
    _, valid = preprocess.pixels("--resampling", "cubic")
    np.testing.assert_array_equal(valid, (scl == 4).repeat(2, 0).repeat(2, 1))


def test_a_missing_band_is_reported_with_the_available_ones(catalog: Catalog, preprocess: Preprocess) -> None:
    catalog.add()
    preprocess(bands=("blue", "swir", "coastal")).ends(3, "no band swir, coastal", "it has blue, red, scl")
    preprocess("--mask", "qa").ends(3, "no band qa")


def test_a_missing_file_is_reported(catalog: Catalog, preprocess: Preprocess) -> None:
    catalog.add()
    (preprocess.scene / "red.tif").unlink()
    preprocess().ends(3, "asset red is missing")


def test_overviews_of_a_class_raster_do_not_invent_classes(catalog: Catalog, preprocess: Preprocess) -> None:
    scl = np.where(np.random.default_rng(3).random((512, 512)) < 0.5, 4, 8).astype(np.uint8)
    catalog.add(bands={"scl": scl}, overview_resampling="average", overview_count=3)
    arguments = ("--mask", "scl", "--masked", 8, "--resampling", "nearest")
    image, valid = preprocess.pixels(*arguments, shape=(102, 102), step=50.0, bands=("scl",))
    np.testing.assert_array_equal(image[0], scl[2:512:5, 2:512:5])
    np.testing.assert_array_equal(valid, image[0] == 4)


def test_a_virtual_dataset_named_as_a_tiff_is_refused(catalog: Catalog, preprocess: Preprocess) -> None:
    catalog.add()
    (preprocess.scene / "red.tif").write_text(
        '<VRTDataset rasterXSize="48" rasterYSize="64"><SRS>EPSG:32633</SRS>'
        "<GeoTransform>500000,10,0,5100000,0,-10</GeoTransform>"
        '<VRTRasterBand dataType="Byte" band="1" subClass="VRTRawRasterBand">'
        '<SourceFilename relativetoVRT="0">/etc/passwd</SourceFilename></VRTRasterBand></VRTDataset>'
    )
    preprocess().ends(8, "asset red")


def test_other_formats_are_not_opened(catalog: Catalog, preprocess: Preprocess) -> None:
    catalog.add()
    write_raster(preprocess.scene / "red.png", numbered((64, 48)), driver="PNG", nodata=None, compress=None)
    (preprocess.scene / "red.png").rename(preprocess.scene / "red.tif")
    preprocess().ends(4)


def test_a_raster_without_georeference_is_reported(catalog: Catalog, preprocess: Preprocess) -> None:
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    catalog.add()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        size = {"height": 64, "width": 48, "count": 1, "dtype": "uint16"}
        with rasterio.open(preprocess.scene / "red.tif", "w", driver="GTiff", **size) as file:
            file.write(numbered((64, 48)), 1)
    preprocess().ends(3, "asset red (red.tif) is not georeferenced")


@pytest.mark.parametrize(
    "georeference", [{"crs": "EPSG:32601"}, {"left": 15.0, "top": 46.0, "step": 1e-4}, {"left": LEFT + 1e5}], ids=str
)
def test_a_raster_outside_the_grid_is_reported_and_never_all_nodata(
    catalog: Catalog, preprocess: Preprocess, georeference: dict[str, Any]
) -> None:
    catalog.add()
    write_raster(preprocess.scene / "red.tif", numbered((64, 48)), **georeference)
    preprocess().ends(3, "asset red covers", "outside the grid at")


def test_a_scene_without_a_valid_pixel_is_recorded_as_such(catalog: Catalog, preprocess: Preprocess) -> None:
    empty = np.zeros((64, 48), np.uint16)
    catalog.add(bands={"blue": empty, "red": empty, "scl": CLEAR})
    tiles = preprocess.tiles()
    assert not tiles.read("valid").any()
    assert tiles.attributes["valid_fraction"] == 0
    verify(preprocess.store)


@pytest.mark.parametrize("fault", ["virtual dataset", "missing band", "outside"])
def test_a_scene_with_bad_data_is_left_out_with_the_reason_where_the_config_says_so(
    catalog: Catalog, preprocess: Preprocess, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    catalog.add()
    reasons = {"virtual dataset": "is XML", "missing band": "has no band swir", "outside": "outside the grid"}
    if fault == "virtual dataset":
        (preprocess.scene / "red.tif").write_text("<VRTDataset></VRTDataset>")
    elif fault == "outside":
        write_raster(preprocess.scene / "red.tif", numbered((64, 48)), left=LEFT + 1e5)
    bands = ("blue", "swir") if fault == "missing band" else ("blue", "red")
    assert preprocess(bands=bands).code in (3, 8)
    tiles = preprocess.tiles("--on-bad", "leave_out", bands=bands)
    (reason,) = tiles.attributes["left_out"].values()
    assert reasons[fault] in reason
    assert str(catalog.root) not in reason
    assert (tiles.shape, tiles.names, tiles.attributes["valid_fraction"]) == ((64, 48), bands, 0)
    assert not tiles.read("valid").any()
    assert [*find_errors(tiles)] == []
    assert f"event=scene_left_out scene=scene reason={reason!r}" in caplog.text


def test_wrong_settings_and_damaged_files_leave_no_scene_out(catalog: Catalog, preprocess: Preprocess) -> None:
    catalog.add(bands={"red": numbered((64, 48))})
    leave_out = ("--on-bad", "leave_out")
    preprocess(*leave_out, "--mask", "red", bands=("red",)).ends(2)
    (preprocess.scene / "red.tif").write_bytes((preprocess.scene / "red.tif").read_bytes()[:-50])
    preprocess(*leave_out, "--mask", "none", bands=("red",)).ends(4)


APPLIED = [
    ({}, {"scale": 0.0001, "offset": -0.1}, (0.0001, -0.1)),
    ({"earthsearch:boa_offset_applied": False}, {"scale": 0.0001, "offset": -0.1}, (0.0001, -0.1)),
    ({"earthsearch:boa_offset_applied": True}, {"scale": 0.0001, "offset": -0.1}, (0.0001, 0.0)),
    ({"sentinel:boa_offset_applied": True}, {"scale": 0.0001, "offset": -0.1}, (0.0001, 0.0)),
    ({"s2:processing_baseline": "05.09"}, {}, (0.0001, -0.1)),
    ({"s2:processing_baseline": "03.01"}, {}, (0.0001, 0.0)),
    ({"s2:processing_baseline": "05.09", "earthsearch:boa_offset_applied": True}, {}, (0.0001, 0.0)),
    ({"s2:processing_baseline": "05.09"}, {"scale": 0.0001, "offset": 0}, (0.0001, 0.0)),
    ({}, {"scale": 2.75e-05, "offset": -0.2}, (2.75e-05, -0.2)),
    ({}, {}, (1.0, 0.0)),
]


@pytest.mark.parametrize(("properties", "band", "expected"), APPLIED)
@pytest.mark.parametrize("key", ["raster:bands", "bands", None])
def test_stored_numbers_are_scaled_by_the_processing_baseline_of_the_product(
    catalog: Catalog,
    preprocess: Preprocess,
    properties: dict[str, Any],
    band: dict[str, Any],
    expected: tuple[float, float],
    key: str | None,
) -> None:
    item = catalog.add(properties=properties, driver="GTiff", shape=(16, 16))
    for asset in item["assets"].values():
        del asset["raster:bands"]
        asset.update({key: [dict(band)]} if key else band)
    tiles = preprocess.tiles(shape=(16, 16))
    assert tiles.scaling == pytest.approx(expected)
    reflectance = tiles.physical(("red",))[0]
    np.testing.assert_allclose(reflectance, numbered((16, 16), 101) * expected[0] + expected[1], rtol=1e-6)


def test_bands_of_different_scales_are_reported(catalog: Catalog, preprocess: Preprocess) -> None:
    item = catalog.add()
    item["assets"]["red"]["raster:bands"][0]["scale"] = 0.5
    preprocess().ends(3, "different scales")


@pytest.mark.parametrize("value", [-9999, 70000, "much"])
def test_nodata_that_the_pixels_cannot_hold_is_reported(
    catalog: Catalog, preprocess: Preprocess, value: object
) -> None:
    item = catalog.add()
    item["assets"]["red"]["raster:bands"][0]["nodata"] = value
    completed = preprocess().ends(3)
    assert re.search(r"\bassets?[ .]red\b", completed.stderr)


@pytest.mark.parametrize("nodata", [float("nan"), -9999.0, None])
@pytest.mark.parametrize("resampling", ["nearest", "bilinear"])
def test_float_bands_with_gaps_are_valid_where_they_are_finite(
    catalog: Catalog, preprocess: Preprocess, nodata: float | None, resampling: str
) -> None:
    power = numbered((64, 48)).astype(np.float32) / 7
    power[4, 5], power[6, 7], power[8, 9] = np.nan, np.inf, -9999.0
    item = catalog.add(bands={"vv": power, "scl": CLEAR}, nodata=None, driver="GTiff")
    write_raster(catalog.root / "s0" / "vv.tif", power, nodata=nodata)
    item["assets"]["vv"]["raster:bands"][0]["nodata"] = None if nodata is None else str(nodata)
    image, valid = preprocess.pixels("--resampling", resampling, bands=("vv",))
    gaps = [(4, 5), (6, 7), (8, 9)] if nodata == -9999.0 else [(4, 5), (6, 7)]
    assert sorted(map(tuple, np.argwhere(~valid).tolist())) == gaps
    assert np.isfinite(image).all()
    np.testing.assert_array_equal(image[0][valid], power[valid])
    assert image.dtype == np.float32


def test_a_store_opens_in_xarray_with_georeference_and_units(catalog: Catalog, preprocess: Preprocess) -> None:
    catalog.add()
    preprocess().ends(0)
    with xarray.open_zarr(preprocess.store, chunks=None, decode_coords="all") as store:
        np.testing.assert_array_equal(store.x, LEFT + 5 + 10 * np.arange(48))
        np.testing.assert_array_equal(store.y, TOP - 5 - 10 * np.arange(64))
        assert store.image.dims == ("band", "y", "x")
        np.testing.assert_allclose(store.image[1], numbered((64, 48), 101) * 0.0001, rtol=1e-6)
        assert store.attrs["names"] == ["blue", "red"]
        georeference = store.image.rio
        assert georeference.crs.to_epsg() == 32633
        assert list(georeference.transform())[:6] == [10.0, 0.0, LEFT, 0.0, -10.0, TOP]


def test_the_part_of_a_scene_beyond_its_orbit_is_nan_in_xarray(catalog: Catalog, preprocess: Preprocess) -> None:
    blue, red = numbered((64, 48)), numbered((64, 48), 101)
    blue[:, :6] = red[:, :6] = red[0, 7] = 0
    catalog.add(bands={"blue": blue, "red": red, "scl": CLEAR})
    preprocess().ends(0)
    with xarray.open_zarr(preprocess.store) as store:
        np.testing.assert_array_equal(np.isnan(store["image"]), np.stack([blue, red]) == 0)
        assert float(store["image"].sel(band="red").mean()) == pytest.approx(1e-4 * red[red > 0].mean())
        assert store["time"].values == np.datetime64("2023-08-01T10:00:00")
        assert store["valid"].attrs["flag_meanings"] == "not_usable usable"


def test_a_zero_that_is_data_is_never_declared_as_nodata(catalog: Catalog, preprocess: Preprocess) -> None:
    height = numbered((64, 48), 0)
    bands = {"blue": height, "red": numbered((64, 48), 101), "scl": CLEAR}
    item = catalog.add(bands=bands, nodata=None)
    for asset in item["assets"].values():
        asset["raster:bands"][0]["nodata"] = None
    item["collection"] = "heights"
    preprocess().ends(0)
    with xarray.open_zarr(preprocess.store) as store:
        assert not np.isnan(store["image"]).any()
        assert float(store["image"][0, 0, 0]) == 0


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_two_runs_give_identical_bytes(catalog: Catalog, preprocess: Preprocess, codec: str) -> None:
    noise = np.random.default_rng(2).integers(1, 400, (512, 512), np.uint16)
    catalog.add(bands={"blue": noise, "red": noise[::-1], "scl": np.full((512, 512), 4, np.uint8)})
    store, digests = preprocess.store, set()
    for _ in range(3):
        arguments = ("--codec", codec)
        preprocess(*arguments, shape=(512, 512), size=("--chunk", 128, "--shard", 256)).ends(0)
        digests.add(digest(store))
        shutil.rmtree(store)
    assert len(digests) == 1


def test_a_shard_that_was_deleted_is_found(catalog: Catalog, run: Run, preprocess: Preprocess) -> None:
    catalog.add()
    preprocess().ends(0)
    run("verify", preprocess.folder).ends(0)
    (preprocess.store / "image/c/0/1/0").unlink()
    run("verify", preprocess.folder).ends(4, "image/c/0/1/0 is missing")


def test_a_shard_of_half_chunks_is_a_usage_error(catalog: Catalog, preprocess: Preprocess) -> None:
    catalog.add()
    preprocess(size=("--chunk", 96, "--shard", 256)).ends(2, "not a multiple of the chunk edge")


def test_a_store_contains_no_path_of_this_machine(catalog: Catalog, preprocess: Preprocess) -> None:
    catalog.add()
    preprocess().ends(0)
    for file in preprocess.store.rglob("*.json"):
        assert str(preprocess.folder) not in file.read_text()
