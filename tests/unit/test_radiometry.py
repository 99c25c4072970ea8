"""What stored numbers mean comes right without the user knowing the history of the product."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenery import Catalog, Preprocess, numbered

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError
from eopipe.scenes.item import SceneBand, bands
from eopipe.scenes.products import origin_attributes
from eopipe.tiles.store import Tiles

S2, NEW, OLD = "sentinel-2-l2a", {"s2:processing_baseline": "05.11"}, {"s2:processing_baseline": "03.01"}
C2 = {"landsat:correction": "L2SP", "landsat:collection_number": "02"}
STATED = {"scale": 0.0001, "offset": -0.1, "nodata": 0}
RTC = "sentinel-1-rtc"
NEW_RED, OLD_RED = (1e-4, -0.1, None, 0), (1e-4, 0.0, None, 0)
# Id, collection, properties, asset, what the item says of it -> scale, offset, nodata that the item states, the usual.
MEANINGS: list[tuple[str, str, dict[str, Any], str, dict[str, Any], tuple[Any, ...]]] = [
    # Sentinel-2: the offset came with baseline 04.00 and is never applied twice.
    ("x", S2, NEW, "B04", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, NEW, "B8A", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, NEW, "nir", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, NEW, "B04_10m", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, OLD, "B04", {}, (1e-4, 0.0, None, 0)),
    ("x", S2, {"s2:processing_baseline": "04.00"}, "B04", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, {"s2:processing_baseline": "02.14"}, "B04", {}, (1e-4, 0.0, None, 0)),
    ("x", S2, {"sentinel:processing_baseline": "04.00"}, "B04", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, {"platform": "sentinel-2a", "processing:version": "05.11"}, "B04", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, {"s2:product_uri": "S2A_MSIL2A_20230815T095031_N0509_R079.SAFE"}, "B04", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, NEW | {"earthsearch:boa_offset_applied": True}, "B04", {}, (1e-4, 0.0, None, 0)),
    ("x", S2, NEW | {"earthsearch:boa_offset_applied": True}, "B04", STATED, (1e-4, 0.0, 0, 0)),
    ("x", S2, NEW | {"earthsearch:boa_offset_applied": "true"}, "B04", STATED, (1e-4, 0.0, 0, 0)),
    ("x", S2, NEW | {"sentinel:boa_offset_applied": True}, "B04", STATED, (1e-4, 0.0, 0, 0)),
    ("x", S2, NEW | {"earthsearch:boa_offset_applied": False}, "B04", STATED, (1e-4, -0.1, 0, 0)),
    ("x", S2, NEW | {"earthsearch:boa_offset_applied": "false"}, "B04", STATED, (1e-4, -0.1, 0, 0)),
    ("x", S2, NEW, "B04", {"scale": 1e-4, "offset": 0}, (1e-4, 0.0, None, 0)),
    # Not reflectance: these were never shifted.
    ("x", S2, NEW, "aot", {}, (1e-3, 0.0, None, 0)),
    ("x", S2, NEW, "WVP_10m", {}, (1e-3, 0.0, None, 0)),
    ("x", S2, NEW, "SCL", {}, (1.0, 0.0, None, None)),
    ("x", S2, NEW, "cloud", {}, (1.0, 0.0, None, None)),
    # Without a baseline name and dates of the product decide; float pixels without either are read as they are.
    ("x", S2, {"platform": "sentinel-2a"}, "B04", {}, (1.0, 0.0, None, None)),
    ("x", S2, {"datetime": "2022-01-25T10:00:00Z"}, "B04", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, {"datetime": "2023-08-15T10:00:00Z"}, "red", {}, (1e-4, -0.1, None, 0)),
    ("x", S2, {"datetime": "2023-08-15T10:00:00Z"}, "ndvi", {}, (1.0, 0.0, None, None)),
    ("x", S2, {"datetime": "2023-08-15T10:00:00Z"}, "aot", {}, (1e-3, 0.0, None, 0)),
    ("x", S2, {"datetime": "2019-08-15T10:00:00Z", "s2:generation_time": "2019-08-16T01:00:00Z"}, "B04", {}, OLD_RED),
    ("x", S2, {"datetime": "2019-08-15T10:00:00Z", "s2:generation_time": "2023-08-16T01:00:00Z"}, "B04", {}, NEW_RED),
    ("S2A_MSIL2A_20230815T095031_N0509_R079_T33TWL_20230815T155057", "own", {}, "B04", {}, NEW_RED),
    ("S2A_MSIL2A_20190815T095031_N0213_R079_T33TWL_20190815T155057", "own", {}, "B04", {}, OLD_RED),
    ("S2A_MSIL2A_20190815T095031_N0500_R079_T33TWL_20230515T155057", "own", {}, "B04", {}, NEW_RED),
    ("S2A_MSIL2A_20190815T095031_R079_T33TWL_20201015T155057", "own", {}, "B04", {}, OLD_RED),
    ("S2A_MSIL2A_20190815T095031_R079_T33TWL_20230515T155057", "own", {}, "B04", {}, NEW_RED),
    ("x", S2, {"s2:datatake_id": "GS2A_20230815T095031_042547_N05.09"}, "B04", {}, NEW_RED),
    ("x", S2, {"s2:datatake_id": "GS2A_20190815T095031_021655_N02.13"}, "B04", {}, OLD_RED),
    ("x", S2, NEW | {"earthsearch:boa_offset_applied": False}, "B04", {"scale": 1e-4}, NEW_RED),
    ("x", S2, OLD, "B04", {"scale": 1e-4}, OLD_RED),
    # Landsat Collection 2 Level 2.
    ("LC09_L2SP", "landsat-c2-l2", C2, "red", {}, (2.75e-5, -0.2, None, 0)),
    ("LC09_L2SP", "landsat-c2l2-sr", C2, "SR_B5", {}, (2.75e-5, -0.2, None, 0)),
    ("LC09_L2SP", "landsat-c2-l2", {}, "nir08", {}, (2.75e-5, -0.2, None, 0)),
    ("LC09_L2SP", "landsat-c2-l2", C2, "lwir11", {}, (0.00341802, 149.0, None, 0)),
    ("LE07_L2SP", "landsat-c2l2-st", C2, "ST_B6", {}, (0.00341802, 149.0, None, 0)),
    ("LC09_L2SP", "landsat-c2-l2", C2, "qa_pixel", {}, (1.0, 0.0, None, 1)),
    ("LC09_L2SP", "landsat-c2-l2", C2, "red", {"scale": 2.75e-5, "offset": -0.2, "nodata": 0}, (2.75e-5, -0.2, 0, 0)),
    ("LC09_L1TP", "landsat-c2-l1", {"landsat:correction": "L1TP"}, "red", {}, (1.0, 0.0, None, None)),
    # Harmonized Landsat Sentinel-2: band 10 is cirrus of one and heat of the other.
    ("HLS.S30.T33TWL.2023227T095031.v2.0", "HLSS30_2.0", {}, "B04", {}, (1e-4, 0.0, None, -9999)),
    ("HLS.S30.T33TWL.2023227T095031.v2.0", "HLSS30_2.0", {}, "B10", {}, (1e-4, 0.0, None, -9999)),
    ("HLS.L30.T33TWL.2023227T095031.v2.0", "hls2-l30", {}, "B10", {}, (1e-2, 0.0, None, -9999)),
    ("HLS.L30.T33TWL.2023227T095031.v2.0", "hls2-l30", {}, "B05", {}, (1e-4, 0.0, None, -9999)),
    ("x", "hls2-s30", {}, "B8A", {}, (1e-4, 0.0, None, -9999)),
    ("x", "hls2-s30", {}, "Fmask", {}, (1.0, 0.0, None, 255)),
    ("x", "HLSL30_2.0", {}, "SZA", {}, (1e-2, 0.0, None, 40000)),
    # Radar as linear power; heights in metres.
    ("S1A_IW_GRDH", RTC, {}, "vv", {}, (1.0, 0.0, None, -32768)),
    ("S1A_IW_GRDH", RTC, {}, "vh", {"nodata": "nan"}, (1.0, 0.0, math.nan, -32768)),
    ("N45_00_E015_00", "cop-dem-glo-30", {}, "data", {}, (1.0, 0.0, None, None)),
    # Whatever is not known is taken as it is.
    ("x", "own", {}, "red", {}, (1.0, 0.0, None, None)),
    ("x", "own", NEW, "red", {"scale": 0.5}, (0.5, 0.0, None, 0)),
    ("x", "own", {}, "red", {"scale": "0.5", "offset": "-1", "nodata": "-inf"}, (0.5, -1.0, -math.inf, None)),
]


def item_of(name: str, collection: str, properties: dict[str, Any], asset: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "collection": collection, "properties": properties, "geometry": None, "assets": asset}


@pytest.mark.parametrize("form", ["raster:bands", "bands", "asset", "raster: in bands", "raster: on the asset"])
@pytest.mark.parametrize(("name", "collection", "properties", "asset", "fields", "expected"), MEANINGS)
def test_numbers_mean_what_the_product_says_in_every_form_of_stac(
    name: str,
    collection: str,
    properties: dict[str, Any],
    asset: str,
    fields: dict[str, Any],
    expected: tuple[Any, ...],
    form: str,
) -> None:
    prefixed = {key if key == "nodata" else f"raster:{key}": value for key, value in fields.items()}
    forms: dict[str, dict[str, Any]] = {
        "raster:bands": {"raster:bands": [fields]},
        "bands": {"bands": [fields]},
        "asset": fields,
        "raster: in bands": {"bands": [prefixed]},
        "raster: on the asset": {"bands": [{"name": "B1"}], **prefixed},
    }
    item = item_of(name, collection, properties, {asset: {"href": "x.tif"} | forms[form]})
    (band,) = bands(Path(), item, (asset,))
    assert (band.scale, band.offset, band.nodata, band.product_nodata) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("fields", [{"scale": "much"}, {"offset": [1]}, {"nodata": "none"}, {"nodata": {}}])
def test_what_is_no_number_is_told(fields: dict[str, Any]) -> None:
    item = item_of("scene", "own", {}, {"red": {"href": "x.tif", "raster:bands": [fields]}})
    with pytest.raises(
        BadInputError, match="scene scene, asset red has a scale, offset or nodata that is not a number"
    ):
        bands(Path(), item, ("red",))


# Nodata of the item, of the file and of the product, type of the pixels -> the nodata value.
MISSING: list[tuple[float | None, float | None, float | None, str, float | None]] = [
    (None, None, None, "uint16", None),
    (None, None, 0, "uint16", 0),
    (None, 7, 0, "uint16", 7),
    (5, 7, 0, "uint16", 5),
    (None, None, -9999, "int16", -9999),
    (None, None, -9999, "uint8", None),
    (math.nan, 7, 0, "uint16", None),
    (None, None, -32768, "float32", -32768),
    (math.nan, -1, None, "float32", math.nan),
    (None, math.nan, -32768, "float32", math.nan),
]


@pytest.mark.parametrize(("stated", "filed", "product_nodata", "kind", "expected"), MISSING)
def test_the_item_counts_more_than_the_file_and_the_file_more_than_the_usual(
    stated: float | None, filed: float | None, product_nodata: float | None, kind: str, expected: float | None
) -> None:
    band = SceneBand("red", Path("red.tif"), 1.0, 0.0, stated, product_nodata)
    nodata = band.nodata_value(filed, np.dtype(kind), "scene s, asset red")
    assert nodata == expected or (nodata is not None and math.isnan(nodata) and math.isnan(expected or 0))


@pytest.mark.parametrize("stated", [-1, 65536, 0.5, math.inf])
def test_a_nodata_that_no_pixel_can_be_is_told(stated: float) -> None:
    band = SceneBand("red", Path("red.tif"), 1.0, 0.0, stated)
    with pytest.raises(BadInputError, match=r"scene s, asset red has nodata .* its uint16 pixels cannot hold"):
        band.nodata_value(0, np.dtype("uint16"), "scene s, asset red")


EDGE = (16, 16)


def add_scene(
    catalog: Catalog,
    bands: dict[str, AnyArray],
    stated: dict[str, Any] | None = None,
    *,
    collection: str = "sentinel",
    **properties: Any,
) -> None:
    """A scene whose files say nothing of their numbers, and whose item says no more of each band than is stated."""
    item = catalog.add(bands=bands, properties=properties, driver="GTiff", nodata=None)
    item["collection"] = collection
    for asset in item["assets"].values():
        del asset["raster:bands"]
        if stated is not None:
            asset["raster:bands"] = [stated]


# Field notes, E8: vegetation of reflectance 0.03 in red and 0.25 in near infrared.
@pytest.mark.parametrize(
    ("properties", "stated", "shift"),
    [
        (OLD, {}, 0),
        (NEW, {}, 1000),
        (NEW, STATED, 1000),
        (NEW | {"earthsearch:boa_offset_applied": True}, {}, 0),
        (NEW | {"earthsearch:boa_offset_applied": True}, STATED, 0),
        (NEW | {"sentinel:boa_offset_applied": True}, STATED, 0),
    ],
)
def test_a_vegetation_index_is_the_same_through_all_the_history(
    catalog: Catalog, preprocess: Preprocess, properties: dict[str, Any], stated: dict[str, Any], shift: int
) -> None:
    pixels = {"red": np.full(EDGE, 300 + shift, np.uint16), "nir": np.full(EDGE, 2500 + shift, np.uint16)}
    add_scene(catalog, pixels, stated, **properties)
    tiles = preprocess.tiles("--mask", "none", shape=EDGE, bands=("red", "nir"))
    red, nir = tiles.physical(("red", "nir"))
    np.testing.assert_allclose((nir - red) / (nir + red), 0.7857, atol=1e-4)


def test_dark_pixels_of_new_baselines_are_negative_and_never_wrap(catalog: Catalog, preprocess: Preprocess) -> None:
    dark = numbered((32, 32), 0)
    add_scene(catalog, {"red": dark}, **NEW)
    image, valid = preprocess.pixels("--mask", "none", shape=(32, 32), bands=("red",))
    physical = Tiles(preprocess.store).physical(("red",))[0]
    assert np.argwhere(~valid).tolist() == [[0, 0]], "0 stays no data though neither item nor file says so"
    np.testing.assert_array_equal(image[0], dark)
    np.testing.assert_allclose(physical[valid], (dark[valid].astype(float) - 1000) / 10000, atol=1e-7)
    assert physical.max() < 0.003


def test_radar_power_becomes_decibel_where_there_is_any(catalog: Catalog, preprocess: Preprocess) -> None:
    power = numbered(EDGE).astype(np.float32) / 256
    power[0, :4] = [0.0, -1.0, np.nan, -32768.0]
    add_scene(catalog, {"vv": power}, {"nodata": -32768}, collection=RTC)
    image, valid = preprocess.pixels("--mask", "none", "--decibel", shape=EDGE, bands=("vv",))
    assert Tiles(preprocess.store).scaling == (1.0, 0.0)
    assert np.argwhere(~valid).tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
    np.testing.assert_allclose(image[0][valid], 10 * np.log10(power[valid]), rtol=1e-6, atol=1e-6)
    assert np.isfinite(image).all()


def with_pixel(pixels: AnyArray, place: tuple[int, int], value: float) -> AnyArray:
    pixels[place] = value
    return pixels


@pytest.mark.parametrize(
    ("collection", "band", "pixels", "gaps"),
    [
        (RTC, "vv", with_pixel(numbered(EDGE).astype(np.float32), (3, 4), -32768), [[3, 4]]),
        ("cop-dem-glo-30", "data", with_pixel(np.linspace(-5, 2500, 256, dtype="f4").reshape(EDGE), (0, 1), 0), []),
        # The usual nodata, -9999, is no number of a byte.
        ("hls2-s30", "B04", numbered(EDGE, 1, "uint8"), []),
    ],
    ids=["gaps of radar", "the sea is a measurement", "nodata that a type cannot hold"],
)
def test_of_an_item_that_says_nothing_the_product_decides_the_gaps(
    catalog: Catalog, preprocess: Preprocess, collection: str, band: str, pixels: AnyArray, gaps: list[list[int]]
) -> None:
    add_scene(catalog, {band: pixels}, collection=collection)
    image, valid = preprocess.pixels("--mask", "none", shape=EDGE, bands=(band,))
    assert np.argwhere(~valid).tolist() == gaps
    np.testing.assert_array_equal(image[0][valid], pixels[valid])


def test_whole_numbers_are_no_power(catalog: Catalog, preprocess: Preprocess) -> None:
    add_scene(catalog, {"vv": numbered(EDGE)})
    preprocess("--mask", "none", "--decibel", shape=EDGE, bands=("vv",)).ends(3, "asset vv")


@pytest.mark.parametrize(
    ("properties", "attributes"),
    [
        ({"instruments": ["MSI"], "s2:processing_baseline": "05.09"}, {"sensors": ["msi"], "baselines": ["05.09"]}),
        ({"platform": "landsat-8", "instruments": ["tirs", "oli"]}, {"sensors": ["oli", "tirs"]}),
        ({"constellation": "sentinel-1", "processing:version": "3.1"}, {"sensors": ["sentinel-1"]}),
        ({"platform": None}, {}),
    ],
)
def test_a_store_says_which_sensor_and_baseline_its_pixels_are_from(
    properties: dict[str, Any], attributes: dict[str, Any]
) -> None:
    item = {"id": "scene", "collection": "any", "properties": {"datetime": "2020-01-01T00:00:00Z"} | properties}
    assert origin_attributes(item) == attributes


# Properties of an item, what it says of its bands, and what the refusal says; with a declared offset it is that.
DOUBTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"platform": "sentinel-2a"}, {}, "asset red, nir states neither offset nor processing baseline"),
    ({"s2:mgrs_tile": "33TWL", "datetime": "2019-08-01T10:00:00Z"}, {}, "set preprocess.offset to -0.1 or 0"),
    (NEW, {"scale": 1e-4}, "states a scale but no offset, while products of its baseline 05.11 have an offset of -0.1"),
]


@pytest.mark.parametrize(("properties", "stated", "message"), DOUBTS)
def test_an_offset_that_nothing_decides_is_refused_until_it_is_declared(
    catalog: Catalog, preprocess: Preprocess, properties: dict[str, Any], stated: dict[str, Any], message: str
) -> None:
    pixels = {"red": np.full(EDGE, 1300, np.uint16), "nir": np.full(EDGE, 3500, np.uint16)}
    add_scene(catalog, pixels, stated, **properties)
    preprocess("--mask", "none", shape=EDGE, bands=("red", "nir")).ends(3, message)
    for offset in (-0.1, 0.0):
        tiles = preprocess.tiles("--mask", "none", "--offset", offset, shape=EDGE, bands=("red", "nir"))
        red, nir = tiles.physical(("red", "nir"))
        np.testing.assert_allclose((red[0, 0], nir[0, 0]), (0.13 + offset, 0.35 + offset), atol=1e-6)


def test_a_declared_offset_does_not_change_what_item_or_baseline_state(
    catalog: Catalog, preprocess: Preprocess
) -> None:
    add_scene(catalog, {"red": np.full(EDGE, 1300, np.uint16)}, **NEW)
    tiles = preprocess.tiles("--mask", "none", "--offset", 0, shape=EDGE, bands=("red",))
    assert tiles.scaling == pytest.approx((1e-4, -0.1))


def test_floating_point_reflectance_without_a_baseline_is_read_as_it_is(
    catalog: Catalog, preprocess: Preprocess
) -> None:
    red = np.linspace(0, 1, 256, dtype=np.float32).reshape(EDGE)
    add_scene(catalog, {"red": red}, platform="sentinel-2b")
    tiles = preprocess.tiles("--mask", "none", shape=EDGE, bands=("red",))
    np.testing.assert_array_equal(tiles.physical(("red",))[0], red)
