"""Masks say which pixels are usable, whatever kind of asset they come from and however the scene is cut."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scenery import CLEAR, Catalog, Preprocess, numbered, write_raster

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, UsageError
from eopipe.scenes.item import SceneBand
from eopipe.scenes.masks import Mask, mask_of
from eopipe.tiles.store import Tiles

ALL = np.ones((1, 256), bool)


def band(name: str) -> SceneBand:
    return SceneBand(name, Path(f"{name}.tif"), 1.0, 0.0, None)


def usable(mask: Mask, values: AnyArray) -> list[int]:
    """Return the numbers among these that the mask leaves usable."""
    return [int(v) for v in values[0][mask.usable(values, np.ones(values.shape, bool))[0]]]


@pytest.mark.parametrize("name", ["scl", "SCL", "SCL_20m"])
def test_the_scene_classification_leaves_ground_and_water(name: str) -> None:
    assert usable(mask_of(band(name)), np.arange(12, dtype=np.uint8)[None]) == [2, 4, 5, 6, 7]


def test_fmask_leaves_what_has_none_of_its_bits() -> None:
    # Clear, cirrus, cloud, adjacent, shadow, snow, water, high aerosol, water with high aerosol.
    values = np.array([[0, 1, 2, 4, 8, 16, 32, 192, 224]], np.uint8)
    assert usable(mask_of(band("Fmask")), values) == [0, 1, 32, 192, 224]


def test_qa_pixel_of_landsat_is_read_by_its_bits() -> None:
    # The product guide's examples: fill, clear, water, dilated cloud, cloud, cloud and cirrus, shadow, snow.
    values = np.array([[1, 21824, 21952, 21826, 22280, 54596, 23888, 30048]], np.uint16)
    assert usable(mask_of(band("qa_pixel")), values) == [21824, 21952]


def test_bits_that_the_user_names_count_instead_of_the_standard_ones() -> None:
    values = np.array([[0, 2, 4, 8, 16, 24]], np.uint8)
    assert usable(mask_of(band("fmask"), masked=(4,)), values) == [0, 2, 4, 8]
    assert usable(mask_of(band("quality"), "bits", (3, 4)), values) == [0, 2, 4]


@pytest.mark.parametrize("dtype", [np.int16, np.uint32, np.int64])
def test_bits_of_wider_numbers_are_the_same_bits(dtype: Any) -> None:
    assert usable(mask_of(band("quality"), "bits", (1, 3)), np.arange(16, dtype=dtype)[None]) == [0, 1, 4, 5]


@pytest.mark.parametrize("name", ["cld", "cloud", "cloud_probability", "CLD_20m"])
def test_a_cloud_probability_above_the_limit_is_not_usable(name: str) -> None:
    values = np.array([[0, 39, 40, 41, 100, 255]], np.uint8)
    assert usable(mask_of(band(name)), values) == [0, 39, 40]
    assert usable(mask_of(band(name), max_probability=0), values) == [0]


def test_numbers_for_no_data_are_no_probability() -> None:
    values = np.array([[-9999.0, math.nan, 0.0, 50.0]], np.float32)
    mask = mask_of(band("clear"), "probability")
    assert mask.usable(values, np.isfinite(values)).tolist() == [[False, False, True, False]]


def test_an_unknown_mask_is_reported_with_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r"mask udm2 is not known to eopipe \(fmask, qa_pixel, scl, .* are\); set .*mask_as"
    ):
        mask_of(band("udm2"))


@pytest.mark.parametrize("mask_as", ["classes", "bits"])
def test_a_mask_of_a_given_kind_needs_its_numbers(mask_as: Any) -> None:
    with pytest.raises(UsageError, match=f"read as {mask_as}, for which no standard numbers are known: set masked"):
        mask_of(band("udm2"), mask_as)


def test_classes_alone_say_how_a_mask_that_is_not_known_is_read() -> None:
    assert mask_of(band("udm2"), masked=(3, 1, 3)) == Mask(band("udm2"), "classes", (1, 3))


@pytest.mark.parametrize(("name", "mask_as"), [("scl", "bits"), ("fmask", "classes"), ("cloud", "classes")])
def test_standard_numbers_do_not_leak_into_another_reading(name: str, mask_as: Any) -> None:
    with pytest.raises(UsageError, match="no standard numbers"):
        mask_of(band(name), mask_as)


def test_contradictions_are_reported() -> None:
    with pytest.raises(UsageError, match="give max_probability instead of masked"):
        mask_of(band("cloud"), masked=(1,))
    with pytest.raises(UsageError, match="bit numbers from 0 to 31"):
        mask_of(band("fmask"), masked=(1, 64))
    with pytest.raises(BadInputError, match="bits need integers"):
        mask_of(band("fmask")).usable(np.zeros((2, 2), np.float32), np.ones((2, 2), bool))


@given(
    kind=st.sampled_from(["classes", "bits", "probability"]),
    masked=st.sets(st.integers(0, 7), min_size=1).map(tuple),
    dtype=st.sampled_from([np.uint8, np.uint16]),
    data=st.data(),
)
@settings(max_examples=40)
def test_the_table_says_what_the_pixels_say(kind: Any, masked: tuple[int, ...], dtype: Any, data: Any) -> None:
    values = data.draw(arrays(dtype, (5, 7)))
    mask = Mask(band("any"), kind, tuple(sorted(masked)))
    valid = np.ones(values.shape, bool)
    np.testing.assert_array_equal(mask.usable(values, valid), mask.usable(values.astype(np.int64), valid))


def by_hand(invalid: AnyArray, margin: int) -> AnyArray:
    """Grow by a disk as its definition says, pixel by pixel."""
    grown = invalid.copy()
    for row, col in np.argwhere(invalid):
        y, x = np.ogrid[: invalid.shape[0], : invalid.shape[1]]
        grown |= (y - row) ** 2 + (x - col) ** 2 <= margin**2
    return grown


@given(invalid=arrays(np.bool_, (17, 23), elements=st.integers(0, 20).map(lambda n: n == 0)), margin=st.integers(0, 9))
@settings(max_examples=40)
def test_dilation_is_a_disk(invalid: AnyArray, margin: int) -> None:
    mask = Mask(band("any"), "classes", (1,), margin=margin)
    usable = mask.usable(invalid.astype(np.uint8), np.ones(invalid.shape, bool))
    np.testing.assert_array_equal(usable, ~by_hand(invalid, margin))


def test_pixels_outside_of_the_mask_are_not_usable_but_are_not_dilated() -> None:
    valid = np.ones((5, 5), bool)
    valid[:, :2] = False
    mask = Mask(band("any"), "classes", (0,), margin=2)
    np.testing.assert_array_equal(mask.usable(np.where(valid, 4, 0).astype(np.uint8), valid), valid)


def add_clouds(catalog: Catalog, scl: AnyArray, steps: dict[str, float] | None = None) -> None:
    """Add a scene with these classes."""
    shape = (64, 48)
    catalog.add(bands={"blue": numbered(shape), "red": numbered(shape, 101), "scl": scl}, steps=steps)


@pytest.mark.parametrize("margin", [1, 5, 20])
@pytest.mark.parametrize("shard", [16, 32, 64])
def test_dilation_does_not_depend_on_how_the_scene_is_cut(
    catalog: Catalog, preprocess: Preprocess, margin: int, shard: int
) -> None:
    scl = np.where(np.random.default_rng(margin).random((64, 48)) < 0.004, 9, 4).astype(np.uint8)
    add_clouds(catalog, scl)
    _, valid = preprocess.pixels("--dilate", margin, size=("--chunk", 16, "--shard", shard))
    np.testing.assert_array_equal(valid, ~by_hand(scl == 9, margin))


def test_dilation_counts_pixels_of_the_grid(catalog: Catalog, preprocess: Preprocess) -> None:
    scl = np.full((32, 24), 4, np.uint8)
    scl[10, 11] = 9
    add_clouds(catalog, scl, {"scl": 20.0})
    _, valid = preprocess.pixels("--dilate", 3)
    np.testing.assert_array_equal(valid, ~by_hand((scl == 9).repeat(2, 0).repeat(2, 1), 3))


@pytest.mark.parametrize("stated", [0, None])
def test_the_clearest_sky_is_a_measurement_even_where_the_item_calls_it_no_data(
    catalog: Catalog, preprocess: Preprocess, stated: int | None
) -> None:
    shape = (64, 48)
    cloud = (np.arange(64 * 48).reshape(shape) % 101).astype(np.uint8)
    item = catalog.add(bands={"blue": numbered(shape), "red": numbered(shape), "cloud": cloud})
    item["assets"]["cloud"]["raster:bands"][0]["nodata"] = stated
    _, valid = preprocess.pixels("--mask", "cloud", "--max-probability", 60)
    np.testing.assert_array_equal(valid, cloud <= 60)


def test_a_mask_of_bits_comes_through_the_stage(catalog: Catalog, preprocess: Preprocess) -> None:
    shape = (64, 48)
    fmask = (np.arange(64 * 48).reshape(shape) % 256).astype(np.uint8)
    item = catalog.add("HLS.S30.T33TWL", bands={"B04": numbered(shape), "Fmask": fmask}, nodata=None)
    write_raster(catalog.root / "s0" / "Fmask.tif", fmask, nodata=255)
    for asset in item["assets"].values():
        asset["raster:bands"] = []
    _, valid = preprocess.pixels("--mask", "Fmask", bands=("B04",))
    np.testing.assert_array_equal(valid, (fmask & 0b11110) == 0)


def test_no_mask_leaves_every_measurement(catalog: Catalog, preprocess: Preprocess) -> None:
    add_clouds(catalog, np.full((64, 48), 9, np.uint8))
    assert preprocess.tiles("--mask", "none").read("valid").all()


def test_an_unknown_mask_ends_before_anything_is_read(catalog: Catalog, preprocess: Preprocess) -> None:
    add_clouds(catalog, CLEAR)
    preprocess("--mask", "red").ends(2, "mask red is not known to eopipe")


def test_saturated_pixels_are_not_usable_and_counted(catalog: Catalog, preprocess: Preprocess) -> None:
    add_clouds(catalog, CLEAR)
    image, valid = preprocess.pixels("--saturated", 3000)
    np.testing.assert_array_equal(valid, numbered((64, 48), 101) < 3000)
    assert image[1].max() == 3172, "the number itself is kept"
    share = Tiles(preprocess.store).attributes["quality"]["saturated"]
    assert share == pytest.approx((~valid).mean(), abs=1e-6)
