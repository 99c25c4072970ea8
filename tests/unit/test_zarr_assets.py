"""Arrays of Zarr stores are assets like GeoTIFFs: same pixels, place, scale and errors."""

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pyproj
import pytest
import rasterio
import xarray
import zarr
from affine import Affine
from loopback import Fault, Loopback, Request
from odc.geo.geobox import GeoBox
from remote_assets import fetch, item_of, loopback_session
from scenery import CRS, LEFT, STEP, TOP, Catalog, Run, numbered
from xarray.backends.zarr import FillValueCoder
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, EopipeError, IntegrityError, RefusedError
from eopipe.fetch.assets import asset_sizes, fetch_assets
from eopipe.fetch.zarr_array import describe_array, fetch_array
from eopipe.fetch.zarr_place import is_zarr
from eopipe.scenes.item import StatedRaster
from eopipe.text_files import write_json
from eopipe.tiles.store import Tiles

TYPE, WHERE, PIXELS = "application/vnd+zarr", "scene S, asset red", numbered((64, 48))
PLACE = {"proj:epsg": 32633, "proj:transform": [STEP, 0.0, LEFT, 0.0, -STEP, TOP, 0.0, 0.0, 1.0]}
SCALE = {"scale_factor": 0.0001, "add_offset": -0.1}
GRID = GeoBox((8, 8), Affine(STEP, 0, LEFT + 20 * STEP, 0, -STEP, TOP - 20 * STEP), CRS)


def put(store: Any, path: str, pixels: AnyArray = PIXELS, *, version: int = 2, **other: Any) -> zarr.Array:
    """Write an array with the place of `scenery` into a store; in version 2 as EOPF products are."""
    options: dict[str, Any] = {"chunks": (16, 16), "attributes": PLACE, "fill_value": 0} | other
    names = ["time", "y", "x"][-pixels.ndim :]
    if version == 2:
        options["attributes"] = options["attributes"] | {"_ARRAY_DIMENSIONS": names}
    else:
        options["dimension_names"] = names
    array = zarr.create_array(store, name=path, shape=pixels.shape, dtype=pixels.dtype, zarr_format=version, **options)
    array[...] = pixels
    return array


def window(asset: dict[str, Any], folder: Path, *grids: GeoBox) -> Path:
    """Fetch an asset from a catalog of this folder or from a server; the GeoTIFF."""
    return fetch_array({"type": TYPE} | asset, WHERE, folder, folder / "red.part", grids, loopback_session(), NOWHERE)


NOWHERE = StatedRaster(None, None, None)


def pixels_of(file: Path) -> tuple[AnyArray, Any]:
    with rasterio.open(file) as source:
        assert source.crs.to_epsg() == 32633
        return source.read(1), source.transform


@pytest.mark.parametrize(
    "form",
    [
        {"version": 2, "compressors": numcodecs.Blosc(cname="zstd", clevel=3, shuffle=2)},
        {"version": 2, "chunks": (30, 20)},
        {"version": 3},
        {"version": 3, "shards": (32, 32)},
    ],
    ids=["v2 blosc", "v2", "v3", "v3 sharded"],
)
@pytest.mark.parametrize("is_remote", [False, True])
def test_pixels_and_place_are_those_stored(
    tmp_path: Path, web: Loopback, form: dict[str, Any], is_remote: bool
) -> None:
    put(tmp_path / "p.zarr", "r10m/b02", **form)
    asset = {"href": f"{web.url}/p.zarr/r10m/b02" if is_remote else "p.zarr/r10m/b02"}
    pixels, transform = pixels_of(window(asset, tmp_path))
    np.testing.assert_array_equal(pixels, PIXELS)
    assert transform == Affine(STEP, 0, LEFT, 0, -STEP, TOP)
    (tmp_path / "red.whole").unlink()
    pixels, transform = pixels_of(window(asset, tmp_path, GRID))
    row, column = round((TOP - transform.f) / STEP), round((transform.c - LEFT) / STEP)
    np.testing.assert_array_equal(pixels, PIXELS[row:, column:][: pixels.shape[0], : pixels.shape[1]])
    assert row <= 16
    assert pixels.shape[0] <= 64


def test_a_scene_of_arrays_becomes_the_tiles_of_the_same_geotiffs(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    item = catalog.add(nodata=0)
    for asset in item["assets"].values():
        asset["raster:bands"] = [{"scale": 0.0001, "offset": -0.1, "nodata": 0}]
    catalog.write()
    arrays = json.loads(json.dumps(item))
    for name in item["assets"]:
        with rasterio.open(catalog.root / "s0" / f"{name}.tif") as source:
            put(catalog.root / "p.zarr", f"r10m/{name}", source.read(1), attributes=PLACE | SCALE)
        arrays["assets"][name] = {"href": f"p.zarr/r10m/{name}", "type": TYPE}
        item["assets"][name]["href"] = f"s0/{name}.tif"
    stores = []
    write_json(tmp_path / "grid.json", {"crs": CRS, "shape": [64, 48], "transform": [STEP, 0, LEFT, 0, -STEP, TOP]})
    for number, scene in enumerate((item, arrays)):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        fetch(run, folder, scene, "--catalog", catalog.root).ends(0)
        outputs = ("--grid", tmp_path / "grid.json", "--tiles", folder / "t.zarr", "--chunk", 16, "--shard", 32)
        run("preprocess", "--scene", folder / "scene", *outputs, "--bands", "blue", "red", "--mask", "scl").ends(0)
        stores.append(Tiles(folder / "t.zarr"))
    np.testing.assert_array_equal(*(store.physical(("blue", "red")) for store in stores))
    np.testing.assert_array_equal(*(store.read("valid") for store in stores))
    red = json.loads((tmp_path / "run1/scene/scene.json").read_text())["assets"]["red"]
    assert red["raster:bands"] == [{"scale": 0.0001, "offset": -0.1, "nodata": 0.0}]
    assert red["href"] == "red.tif"


def test_what_the_item_states_has_priority_over_the_store(tmp_path: Path, run: Run) -> None:
    band = {"name": "b02", "scale": 0.5, "offset": 0.0}
    for attributes, stated in (({}, {}), ({"missing_value": 9}, {"nodata": 9})):
        put(tmp_path / "p.zarr", "b02", attributes=PLACE | SCALE | attributes, overwrite=True)
        asset = {"href": "p.zarr/b02", "type": TYPE, "bands": [band | stated]}
        fetch(run, tmp_path, item_of({"red": asset}), "--catalog", tmp_path).ends(0)
        fetched = json.loads((tmp_path / "scene/scene.json").read_text())["assets"]["red"]
        assert fetched["bands"] == [band | {"nodata": 0.0} | stated]
    # Fill values that the item overrides stay in the pixels.
    np.testing.assert_array_equal(pixels_of(tmp_path / "scene/red.tif")[0], PIXELS)


def test_a_window_costs_only_the_chunks_it_needs(tmp_path: Path, web: Loopback) -> None:
    put(tmp_path / "p.zarr", "b02", numbered((512, 512), dtype="uint32"), chunks=(32, 32))
    window({"href": f"{web.url}/p.zarr/b02"}, tmp_path, GRID)
    chunks = [request.path for request in web.received if request.path.rpartition("/")[2][0].isdigit()]
    assert sorted(chunks) == sorted({f"/p.zarr/b02/{row}.{column}" for row in (0, 1) for column in (0, 1)})


def test_a_request_that_fails_is_repeated(tmp_path: Path, web: Loopback, impatient: list[float]) -> None:
    put(tmp_path / "p.zarr", "b02")
    web.fail("/p.zarr/b02/1.1", times=2, status=503)
    web.fail("/p.zarr/b02/0.0", cut=20)
    web.fail("/p.zarr/b02/.zarray", reset=True)
    np.testing.assert_array_equal(pixels_of(window({"href": f"{web.url}/p.zarr/b02"}, tmp_path))[0], PIXELS)
    assert len(impatient) == 4


def test_a_store_in_a_bucket_is_read_in_part(tmp_path: Path, web: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", web.url)
    noise = np.random.default_rng(1).integers(1, 2**32, (2048, 2048), np.uint32)
    put(tmp_path / "scenes/p.zarr", "b02", noise, version=3, chunks=(64, 64), shards=(2048, 2048), compressors=None)
    web.sent = 0
    pixels, _ = pixels_of(window({"href": "s3://scenes/p.zarr/b02"}, tmp_path, GRID))
    np.testing.assert_array_equal(pixels, noise[: pixels.shape[0], : pixels.shape[1]])
    assert web.sent < 0.02 * noise.nbytes


def test_a_signature_is_sent_to_the_server_and_never_printed(
    tmp_path: Path, web: Loopback, run: Run, caplog: pytest.LogCaptureFixture, impatient: list[float]
) -> None:
    put(tmp_path / "p.zarr", "b02")
    web.fail("/p.zarr/b02/0.0", status=503)
    web.fail("/p.zarr/b02/1.1", times=None, status=403)
    item = item_of({"red": {"href": f"{web.url}/p.zarr/b02?sig=SECRET", "type": TYPE}})
    completed = fetch(run, tmp_path, item).ends(3, "asset red could not be fetched: 127.0.0.1 answered 403")
    assert "SECRET" not in completed.stderr + completed.stdout + caplog.text
    assert {request.value.get("sig") for request in web.received} == {"SECRET"}
    assert not (tmp_path / "scene").exists()


def coordinates(store: Path, group: str) -> None:
    for name, first, step, count in (("x", LEFT, STEP, 48), ("y", TOP, -STEP, 64)):
        centres = first + step * (np.arange(count) + 0.5)
        zarr.create_array(store, name=f"{group}/{name}", data=centres, zarr_format=2)


@pytest.mark.parametrize("source", ["coordinates", "GeoTransform", "group", "eopf", "code", "node", "item"])
def test_crs_and_transform_come_from_each_convention(tmp_path: Path, source: str) -> None:
    store, place, stated = tmp_path / "p.zarr", {}, NOWHERE
    transform = [STEP, 0.0, LEFT, 0.0, -STEP, TOP]
    if source == "code":
        place = {"proj:code": CRS, "spatial:transform": transform}
    if source == "node":
        # The place of the centre of the first pixel.
        at_centres = [STEP, 0.0, LEFT + STEP / 2, 0.0, -STEP, TOP - STEP / 2]
        place = {"proj:code": CRS, "spatial:registration": "node", "spatial:transform": at_centres}
    if source == "item":
        stated = StatedRaster(CRS, tuple(transform), (64, 48))
    zarr.create_group(store, zarr_format=2, attributes={"other_metadata": {"horizontal_CRS_code": CRS}})
    if source != "eopf":
        zarr.create_group(store, zarr_format=2, overwrite=True)
    group = {"proj:code": CRS, "spatial:transform": transform, "spatial:shape": [64, 48]} if source == "group" else {}
    zarr.create_group(store, path="m", zarr_format=2, attributes=group)
    if source in ("coordinates", "GeoTransform"):
        mapping = pyproj.CRS(CRS).to_cf()
        if source == "GeoTransform":
            mapping["GeoTransform"] = f"{LEFT} {STEP} 0 {TOP} 0 {-STEP}"
        reference = zarr.create_array(store, name="m/crs", shape=(), dtype="int32", zarr_format=2)
        reference.attrs.update(mapping)
        place = {"grid_mapping": "crs"}
    if source in ("coordinates", "eopf"):
        coordinates(store, "m")
    put(store, "m/b02", attributes=place)
    asset = {"href": "p.zarr/m/b02", "type": TYPE}
    part = fetch_array(asset, WHERE, tmp_path, tmp_path / "red.part", (), loopback_session(), stated)
    pixels, affine = pixels_of(part)
    np.testing.assert_array_equal(pixels, PIXELS)
    assert affine == Affine(*transform)


@pytest.mark.parametrize("form", [{"version": 2}, {"version": 3}, {"version": 3, "shards": (32, 32)}])
@pytest.mark.parametrize("grids", [(), (GRID,)], ids=["whole", "window"])
@pytest.mark.parametrize("is_remote", [False, True], ids=["disk", "server"])
def test_an_array_without_a_chunk_is_not_a_scene_of_fill_values(
    tmp_path: Path, web: Loopback, form: dict[str, Any], grids: tuple[GeoBox, ...], is_remote: bool
) -> None:
    put(tmp_path / "p.zarr", "m/b02", np.zeros_like(PIXELS), **form)
    href = {"href": f"{web.url if is_remote else ''}/p.zarr/m/b02".lstrip("/")}
    with pytest.raises(BadInputError, match="asset red has metadata but no pixels: none of the chunks of /m/b02 exist"):
        window(href, tmp_path, *grids)
    assert [path.name for path in tmp_path.iterdir()] == ["p.zarr"]


def test_chunks_that_were_never_written_read_as_the_fill_value_and_a_warning_has_their_share(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "p.zarr", "b02", attributes={"proj:epsg": 32633}, fill_value=7)
    # Coordinates have chunks too, which are not pixels.
    coordinates(tmp_path / "p.zarr", "")
    expected = PIXELS.copy()
    for row, column in ((1, 1), (0, 2), (3, 0)):
        (tmp_path / f"p.zarr/b02/{row}.{column}").unlink()
        expected[16 * row :, 16 * column :][:16, :16] = 7
    np.testing.assert_array_equal(pixels_of(window({"href": "p.zarr/b02"}, tmp_path))[0], expected)
    (record,) = [record for record in caplog.records if "missing_chunks" in record.message]
    assert record.levelname == "WARNING"
    assert "asset=scene S, asset red chunks=3 share=0.25 " in record.message


def test_a_window_without_a_chunk_of_an_array_that_has_others_is_read(tmp_path: Path) -> None:
    put(tmp_path / "p.zarr", "b02", fill_value=7)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        (tmp_path / f"p.zarr/b02/{row}.{column}").unlink()
    pixels, _ = pixels_of(window({"href": "p.zarr/b02"}, tmp_path, GRID.translate_pix(-10, -10)))
    assert np.unique(pixels).tolist() == [7]


# Every number of a type is once at least in the pixels.
BYTES, SHORTS = (np.resize(np.arange(2 ** (8 * size)), (300, 300)) for size in (1, 2))
FORMS: dict[str, tuple[AnyArray, str, dict[str, Any], float | None]] = {
    "unsigned": (BYTES, "int8", {"_Unsigned": "true"}, None),
    "unsigned with fill value": (BYTES, "int8", {"_Unsigned": "true"}, -1),
    "unsigned with fill value of few": (BYTES, "int8", {"_Unsigned": "true"}, 7),
    "unsigned of two bytes": (SHORTS, "int16", {"_Unsigned": "true"}, -2),
    "unsigned, scaled": (SHORTS, "int16", {"_Unsigned": "true", **SCALE}, -2),
    # Without a fill value, whose bytes xarray 2026.9 would swap here.
    "unsigned, big-endian, scaled": (SHORTS, ">i2", {"_Unsigned": "true", **SCALE}, None),
    "big-endian with fill value": (SHORTS, ">u2", {}, 300),
    "unsigned of four bytes": (SHORTS * 65_000, "int32", {"_Unsigned": "true"}, None),
    "signed": (BYTES, "uint8", {"_Unsigned": "false"}, None),
    "signed with fill value": (SHORTS, "uint16", {"_Unsigned": "false", "scale_factor": 0.5}, 7),
    "unsigned that says so": (BYTES, "uint8", {"_Unsigned": "true"}, 255),
    "signed that says so": (BYTES, "int8", {"_Unsigned": "false"}, -1),
    "float that has no sign to state": (BYTES, "float32", {"_Unsigned": "true"}, 7),
    "missing value": (BYTES, "uint8", {"missing_value": 9}, None),
    "missing value beside the fill value": (BYTES, "uint8", {"missing_value": 9, **SCALE}, 8),
    "missing values": (BYTES, "uint8", {"missing_value": [9, 10]}, None),
    "missing value that no integer is": (BYTES, "uint8", {"missing_value": float("nan")}, None),
    "numbers in lists": (BYTES, "uint8", {"scale_factor": [0.5], "add_offset": [3.0]}, None),
    "offset alone": (BYTES, "uint8", {"add_offset": -3.0}, 0),
    "float, big-endian": (BYTES, ">f4", {}, 7),
    "NaN": (BYTES, "float64", {}, float("nan")),
    "valid range": (BYTES, "uint8", {"valid_range": [10, 20]}, 0),
}


@pytest.mark.filterwarnings("ignore:variable")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("form", FORMS)
def test_values_and_gaps_of_each_cf_attribute_are_what_xarray_reads(tmp_path: Path, form: str, version: int) -> None:
    numbers, dtype, attributes, fill = FORMS[form]
    pixels = numbers.astype(np.dtype(dtype))
    encoded = {} if fill is None else {"_FillValue": fill}
    if version == 3 and pixels.dtype.kind == "f" and fill is not None:
        encoded = {"_FillValue": FillValueCoder.encode(fill, pixels.dtype)}
    # In Zarr 2 xarray keeps `_FillValue` as the fill value of the array.
    of_array = {"fill_value": fill} if version == 2 else {"fill_value": 5, "attributes": PLACE | attributes | encoded}
    options = {"attributes": PLACE | attributes, "chunks": (100, 100)} | of_array
    put(tmp_path / "p.zarr", "b02", pixels, version=version, **options)
    # The fill value of the array is in a chunk that was never written.
    (tmp_path / "p.zarr/b02" / ("1.1" if version == 2 else "c/1/1")).unlink()
    zarr.open_group(tmp_path / "p.zarr", mode="a", zarr_format=version)
    with xarray.open_zarr(tmp_path / "p.zarr", consolidated=False) as store:
        expected = store.b02.values.astype(np.float64)
    with rasterio.open(window({"href": "p.zarr/b02"}, tmp_path)) as file:
        values = file.read(1).astype(np.float64)
        gaps = (file.read_masks(1) == 0) | np.isnan(values)
        values = np.where(gaps, np.nan, values * file.scales[0] + file.offsets[0])
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize("fill", ["nan", "inf", "-inf"])
def test_a_fill_value_that_is_not_finite_is_a_text_in_the_item(tmp_path: Path, fill: str) -> None:
    put(tmp_path / "p.zarr", "b02", PIXELS.astype(np.float32), attributes=PLACE | {"missing_value": fill})
    described = describe_array({"href": "p.zarr/b02"}, window({"href": "p.zarr/b02"}, tmp_path), WHERE)
    assert described["raster:bands"] == [{"nodata": fill}]
    write_json(tmp_path / "item.json", described)


def test_coordinates_without_a_sign_give_the_place_that_xarray_reads(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "p.zarr", zarr_format=2)
    for name, count, step in (("x", 48, STEP), ("y", 64, -STEP)):
        # From 60,000 on, which are negative numbers of two bytes.
        centres = (60_000 + step * (np.arange(count) + 0.5)).astype(np.uint16).view(np.int16)
        axis = zarr.create_array(tmp_path / "p.zarr", name=name, data=centres, zarr_format=2)
        axis.attrs["_Unsigned"] = "true"
    put(tmp_path / "p.zarr", "b02", attributes={"proj:epsg": 32633})
    _, transform = pixels_of(window({"href": "p.zarr/b02"}, tmp_path))
    assert transform == Affine(STEP, 0, 60_000, 0, -STEP, 60_000)


def test_an_axis_of_length_1_is_read_and_a_longer_one_refused(tmp_path: Path) -> None:
    put(tmp_path / "p.zarr", "one", PIXELS[None], chunks=(1, 16, 16))
    np.testing.assert_array_equal(pixels_of(window({"href": "p.zarr/one"}, tmp_path))[0], PIXELS)
    put(tmp_path / "p.zarr", "three", np.stack([PIXELS] * 3), chunks=(1, 16, 16))
    (tmp_path / "red.whole").unlink()
    with pytest.raises(BadInputError, match=r"red has the shape \(3, 64, 48\) \(time, y, x\); two axes"):
        window({"href": "p.zarr/three"}, tmp_path)


def test_a_group_lists_its_arrays_or_its_only_band_is_the_array(tmp_path: Path) -> None:
    for name in ("b02", "b03"):
        put(tmp_path / "p.zarr", f"r10m/{name}")
    with pytest.raises(BadInputError, match=r"is the group /r10m of a Zarr store, .*; its arrays are b02, b03"):
        window({"href": "p.zarr/r10m"}, tmp_path)
    file = window({"href": "p.zarr/r10m", "bands": [{"name": "b03"}]}, tmp_path)
    np.testing.assert_array_equal(pixels_of(file)[0], PIXELS)


def at(left: float) -> dict[str, Any]:
    return {"spatial:transform": [1, 0, left, 0, -1, 0]}


HREF, CATEGORIES = "p.zarr/m/b02", {"id": "categorize", "labels": ["a"], "dtype": "<U1", "astype": "|u1"}
CHUNKS_OF_0 = {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 0]}}}
# The array, a file with other content and the message; a file `zarr.json` is of version 3.
UNREADABLE: list[tuple[str, str, Any, type[EopipeError], str]] = [
    ("q.zarr/m/b02", "", b"", BadInputError, "is missing: there is no folder q.zarr in"),
    ("p.zarr/m/b99", "", b"", BadInputError, "is missing: the store has neither an array nor a group at /m/b99"),
    ("../p.zarr/m/b02", "", b"", RefusedError, "only http.*paths inside the catalog are read"),
    (HREF, "b02/1.1", b"no chunk", IntegrityError, "is damaged in its rows 16 to 32"),
    (HREF, "x/0", b"no chunk", IntegrityError, "coordinates x of .* are damaged"),
    (HREF, "b02/.zarray", {"filters": [{"id": "jpegls"}]}, BadInputError, "cannot be read as a Zarr array: .*jpegls"),
    (HREF, "b02/.zarray", {"filters": [{"id": "pickle"}]}, BadInputError, "cannot be read as a Zarr array: .*pickle"),
    (HREF, "b02/.zarray", {"compressor": {"id": "pickle"}}, BadInputError, "be read as a Zarr array: .*pickle"),
    (HREF, "b02/.zarray", {"filters": [CATEGORIES]}, RefusedError, "is encoded by categorize, and only numbers are"),
    (HREF, "zarr.json", b'{"zarr_format": 7, "node_type": "group"}', BadInputError, "as a Zarr array: .* of /m"),
    (HREF, "b02/zarr.json", CHUNKS_OF_0, RefusedError, "in chunks of 0 bytes"),
    (HREF, "b02/zarr.json", {"attributes": PLACE | {"grid_mapping": ":"}}, BadInputError, "grid_mapping is ':'"),
    (HREF, "b02/zarr.json", {"attributes": PLACE | at(float("nan"))}, BadInputError, "which is not six numbers that"),
    (HREF, "b02/zarr.json", {"attributes": PLACE | at(1e999)}, BadInputError, "which is not six numbers that can be"),
    (HREF, "b02/zarr.json", {"attributes": {"proj:shape": 5}}, BadInputError, "proj:shape is 5: write a list"),
    (HREF, "b02/zarr.json", {"attributes": 7}, BadInputError, "not an object"),
    (HREF, "b02/zarr.json", {"dimension_names": ["y"]}, BadInputError, "need to have the same number of dimensions"),
]


@pytest.mark.parametrize(("href", "file", "change", "kind", "message"), UNREADABLE)
def test_what_cannot_be_read_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, href: str, file: str, change: Any, kind: type[EopipeError], message: str
) -> None:
    store, version = tmp_path / "p.zarr", 3 if file.endswith("zarr.json") else 2
    put(store, "m/b02", version=version, attributes={} if version == 3 else {"proj:epsg": 32633})
    if version == 2:
        coordinates(store, "m")
    if file:
        changed = store / "m" / file
        text = change if isinstance(change, bytes) else json.dumps(json.loads(changed.read_text()) | change).encode()
        changed.write_bytes(text)
    with pytest.raises(kind, match=message) as caught:
        window({"href": href}, tmp_path)
    assert WHERE in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["p.zarr"]


@pytest.mark.parametrize("size", ["100k", "300k"], ids=["pixels", "GeoTIFF"])
def test_a_full_disk_ends_with_code_6_and_leaves_nothing(
    tmp_path: Path, run: Run, small_disk: Callable[[str], Path], size: str
) -> None:
    disk = small_disk(f"size={size}")
    noise = np.random.default_rng(1).integers(1, 60_000, (320, 320), np.uint16)
    put(tmp_path / "p.zarr", "b02", noise, chunks=(32, 32))
    write_json(tmp_path / "item.geojson", item_of({"red": {"href": "p.zarr/b02", "type": TYPE}}))
    words = ("--item", tmp_path / "item.geojson", "--scene", disk / "scene", "--catalog", tmp_path)
    run("fetch", *words).ends(6, "no space left while writing red")
    assert {path.name for path in disk.rglob("*")} <= {".scene.parts", "scene.run.json"}


def two_assets(root: str = "") -> dict[str, Any]:
    return item_of({name: {"href": f"{root}p.zarr/{name}", "type": TYPE} for name in ("b02", "b03")})


def put_version(folder: Path, value: int) -> None:
    for name in ("b02", "b03"):
        put(folder / "p.zarr", name, np.full((64, 48), value, np.uint16), overwrite=True)


def is_version(scene: Path, value: int) -> bool:
    return all((pixels_of(scene / f"{name}.tif")[0] == value).all() for name in ("b02", "b03"))


@pytest.mark.parametrize("drop", [(), ("ETag",)], ids=["ETag", "no ETag"])
@pytest.mark.parametrize("moment", ["b02/0.0", "b02/2.1", "b03/3.2"])
def test_a_store_that_is_rewritten_while_it_is_fetched_is_never_mixed(
    tmp_path: Path, web: Loopback, run: Run, moment: str, drop: tuple[str, ...]
) -> None:
    put_version(web.folder, 1)

    def rewrite(request: Request) -> Fault:
        if request.path == f"/p.zarr/{moment}" and not (web.folder / "rewritten").exists():
            put_version(web.folder, 2)
            (web.folder / "rewritten").touch()
        return Fault(drop=drop)

    web.random_fault, item = rewrite, two_assets(f"{web.url}/")
    fetch(run, tmp_path, item, "--workers", 1).ends(5, "is of a Zarr store that was written while it was fetched")
    assert not (tmp_path / "scene").exists()
    fetch(run, tmp_path, item).ends(0)
    assert is_version(tmp_path / "scene", 2)


def test_a_resumed_fetch_does_not_mix_two_versions_of_a_store(tmp_path: Path, run: Run) -> None:
    put_version(tmp_path, 1)
    shutil.rmtree(tmp_path / "p.zarr/b03")
    options = ("--catalog", tmp_path, "--workers", 1)
    assert fetch(run, tmp_path, two_assets(), *options).code == 3
    put_version(tmp_path, 2)
    fetch(run, tmp_path, two_assets(), *options).ends(5, "asset b02 is of a Zarr store that was written")
    assert fetch(run, tmp_path, two_assets(), *options).code == 0
    assert is_version(tmp_path / "scene", 2)


# A frame of zstd that does not declare its size: 200 blocks of one byte that is repeated.
OPEN_FRAME = b"\x28\xb5\x2f\xfd\x00\x38" + b"".join(
    ((1 << 20) + 2 + (number == 199)).to_bytes(3, "little") + b"\0" for number in range(200)
)
BOMBS: dict[str, tuple[Any, Any]] = {
    "gzip": (numcodecs.GZip(), GzipCodec()),
    "zstd": (numcodecs.Zstd(), ZstdCodec()),
    "blosc": (numcodecs.Blosc(), BloscCodec()),
    "zlib": (numcodecs.Zlib(), None),
    "bz2": (numcodecs.BZ2(), None),
    "lzma": (numcodecs.LZMA(), None),
    "lz4": (numcodecs.LZ4(), None),
}
CODECS = [
    *((name, 2) for name in (*BOMBS, "open zstd")),
    *((name, 3) for name in ("gzip", "zstd", "blosc", "open zstd")),
]


@pytest.mark.parametrize("is_coordinate", [False, True], ids=["pixels", "coordinate"])
@pytest.mark.parametrize(("codec", "version"), CODECS)
def test_a_chunk_that_decodes_to_far_more_than_it_declares_is_refused(
    tmp_path: Path, codec: str, version: int, is_coordinate: bool
) -> None:
    encoder, of_version_3 = BOMBS[codec.removeprefix("open ")]
    compressor = encoder if version == 2 else of_version_3
    bomb = OPEN_FRAME if codec == "open zstd" else encoder.encode(bytes(20 << 20))
    if not is_coordinate:
        put(tmp_path / "p.zarr", "b02", version=version, compressors=compressor)
        np.testing.assert_array_equal(pixels_of(window({"href": "p.zarr/b02"}, tmp_path))[0], PIXELS)
        (tmp_path / "red.whole").unlink()
        (tmp_path / "p.zarr/b02" / ("1.1" if version == 2 else "c/1/1")).write_bytes(bomb)
    else:
        put(tmp_path / "p.zarr", "b02", version=version, attributes={"proj:epsg": 32633})
        centres = LEFT + STEP * (np.arange(48) + 0.5)
        zarr.create_array(tmp_path / "p.zarr", name="x", data=centres, zarr_format=version, compressors=compressor)
        (tmp_path / "p.zarr/x" / ("0" if version == 2 else "c/0")).write_bytes(bomb)
    tracemalloc.start()
    message = f"red has a chunk that is more than .* bytes by {codec.removeprefix('open ')}"
    with pytest.raises(RefusedError, match=message):
        window({"href": "p.zarr/b02"}, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # lzma itself needs 8 MiB for each chunk that is decoded at a time.
    assert peak < (10 << 20) or codec == "lzma"


def test_an_array_without_a_place_and_one_outside_of_the_grid_are_refused(tmp_path: Path) -> None:
    for attributes, grids, message in (
        ({}, (), "has no CRS: neither proj:code"),
        ({"proj:epsg": 32633}, (), "has no place: neither proj:transform"),
        (PLACE, (GRID.translate_pix(900, 0),), "is at .* in EPSG:32633, outside the grid at"),
    ):
        put(tmp_path / "p.zarr", "b02", attributes=attributes, overwrite=True)
        with pytest.raises(BadInputError, match=f"asset red {message}"):
            window({"href": "p.zarr/b02"}, tmp_path, *grids)


def test_a_link_out_of_the_catalog_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "catalog/p.zarr", "b02")
    chunk = (tmp_path / "catalog/p.zarr/b02/0.0").rename(tmp_path / "elsewhere")
    (tmp_path / "catalog/p.zarr/b02/0.0").symlink_to(chunk)
    with pytest.raises(RefusedError, match=r"has the file 'b02/0\.0', outside the catalog"):
        window({"href": "p.zarr/b02"}, tmp_path / "catalog")


@pytest.mark.parametrize(
    ("asset", "text"),
    [
        ({"href": "p.icechunk/b02"}, r"there is no p\.icechunk/b02 in "),
        ({"href": "p.icechunk/b02", "type": "application/x-icechunk"}, r"there is no p\.icechunk/b02 in "),
        ({"href": "p.icechunk/b02", "type": TYPE}, "the store has neither an array nor a group at /b02"),
        ({"href": "p.zarr/b02", "icechunk:tag": "v1"}, "the store has neither an array nor a group at /b02"),
    ],
)
@pytest.mark.parametrize("grids", [(), (GRID,)], ids=["whole", "window"])
def test_an_icechunk_repository_is_missing_as_other_addresses_without_an_array_are(
    tmp_path: Path, asset: dict[str, Any], text: str, grids: tuple[GeoBox, ...]
) -> None:
    # Its arrays are in files that are named by their number.
    for name in ("refs/branch.main/ref.json", "snapshots/1CECHNKREP0F1RSTCMT0", "manifests/F7JANT8WWWM1Q9XSSNC0"):
        for store in ("p.icechunk", "p.zarr"):
            file = tmp_path / store / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"{}")
    (tmp_path / "parts").mkdir()
    with pytest.raises(BadInputError, match=f"scene scene, asset red is missing: {text}"):
        fetch_assets(item_of({"red": asset}), tmp_path, tmp_path / "parts", loopback_session(), 1, grids)


def test_the_size_of_an_array_is_not_known_and_nothing_is_requested(web: Loopback) -> None:
    item = item_of({"red": {"href": f"{web.url}/p.zarr/b02", "type": TYPE, "file:size": 10**12}})
    (size,) = asset_sizes([item], None, loopback_session())
    assert size.bytes == 0
    assert web.received == []


def test_zarr_assets_are_recognised() -> None:
    types = (TYPE, "application/vnd.zarr; version=3", "application/x-zarr")
    arrays = [{"href": "a", "type": kind} for kind in types] + [{"href": "https://h/S2B.zarr/r10m/b02"}]
    others = [{"href": f"https://h/S2B.zarr{name}"} for name in ("/quicklook.tif", ".zip")]
    others += [{"href": "a", "icechunk:branch": "main"}]
    others += [{"href": "p.zarr/b.tif", "type": "image/tiff; application=geotiff"}]
    assert [asset for asset in arrays if not is_zarr(asset)] == []
    assert [asset for asset in others if is_zarr(asset)] == []


@pytest.mark.parametrize("kind", ["", TYPE, "image/tiff"])
def test_an_address_that_is_not_one_is_refused_at_fetch(kind: str, run: Run, tmp_path: Path) -> None:
    asset = {"href": "http://[bad/x.tif"} | ({"type": kind} if kind else {})
    write_json(tmp_path / "i.geojson", item_of({"red": asset}))
    refused = run("fetch", "--item", tmp_path / "i.geojson", "--scene", tmp_path / "scene")
    refused.ends(8, "asset red points to '(an address)': only http(s)")
