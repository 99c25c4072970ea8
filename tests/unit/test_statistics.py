"""Statistics are those of the training chips: each pixel once, no other pixel, and they merge exactly."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import write_store
from hypothesis import given, settings
from hypothesis import strategies as st
from scenery import covered_area

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.chips.statistics import (
    MAX_BINS,
    BandStatistics,
    BandSummary,
    Histogram,
    Moments,
    band_normaliser,
    measure_bands,
    read_statistics,
)
from eopipe.errors import BadInputError
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles

SHAPE, CHIP = (64, 96), 16
SCALE, OFFSET = 0.0001, -0.1
BANDS = ("red", "nir")
VALUES = st.lists(st.integers(0, 65535), min_size=1, max_size=60)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False, width=32)


def ones(values: AnyArray) -> IntArray:
    return np.ones(len(values), np.int64)


def measured(values: list[float]) -> Moments:
    array = np.array(values, np.float64)
    return Moments.of(array, ones(array))


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=30), min_size=1, max_size=6))
def test_merged_moments_are_those_of_all_values_together(parts: list[list[float]]) -> None:
    whole = np.concatenate([np.array(part, np.float64) for part in parts])
    merged = measured(parts[0])
    for part in parts[1:]:
        merged = merged.merge(measured(part))
    size = max(1.0, float(np.abs(whole).max()))
    assert merged.count == len(whole)
    assert merged.mean == pytest.approx(whole.mean(), rel=1e-12, abs=1e-12 * size)
    assert merged.std == pytest.approx(whole.std(), rel=1e-12, abs=1e-9 * size)
    assert (merged.low, merged.high) == (whole.min(), whole.max())


@settings(max_examples=40)
@given(st.lists(VALUES, min_size=2, max_size=5))
def test_bands_of_reflectance_merge_to_twelve_digits(parts: list[list[int]]) -> None:
    whole = np.concatenate([np.array(part, np.float64) for part in parts]) * SCALE + OFFSET
    bands = [BandStatistics.of(np.array(part, np.uint16), (SCALE, OFFSET)) for part in parts]
    merged = bands[0]
    for band in bands[1:]:
        merged = merged.merge(band)
    assert merged.moments.mean == pytest.approx(whole.mean(), rel=1e-12, abs=1e-12)
    assert merged.moments.squares == pytest.approx(((whole - whole.mean()) ** 2).sum(), rel=1e-12, abs=1e-12)


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=30), min_size=1, max_size=5), st.randoms())
def test_merged_histograms_are_that_of_all_values_in_any_order(parts: list[list[float]], random: Any) -> None:
    arrays = [np.array(part, np.float64) for part in parts]
    whole = np.concatenate(arrays)
    expected = Histogram.of(whole, ones(whole))
    random.shuffle(arrays)
    merged = Histogram.of(arrays[0], ones(arrays[0]))
    for array in arrays[1:]:
        merged = merged.merge(Histogram.of(array, ones(array)))
    assert (merged.level, merged.first) == (expected.level, expected.first)
    np.testing.assert_array_equal(merged.counts, expected.counts)


@given(st.lists(NUMBERS, min_size=1, max_size=50))
def test_every_value_is_in_its_bin_and_the_bins_are_few(values: list[float]) -> None:
    array = np.array(values, np.float64)
    histogram = Histogram.of(array, ones(array))
    edges = (histogram.first + np.arange(len(histogram.counts) + 1)) * 2.0**histogram.level
    assert len(histogram.counts) <= MAX_BINS
    np.testing.assert_array_equal(histogram.counts, np.histogram(array, np.append(edges[:-1], np.inf))[0])
    assert array.max() < edges[-1]


def test_quantiles_are_within_a_bin_of_those_of_the_values() -> None:
    values = np.random.default_rng(2).gamma(2.0, 300.0, 20_000)
    summary = BandStatistics(Moments.of(values), Histogram.of(values, np.ones(len(values), np.int64))).summary
    width = summary.model_extra["histogram"]["width"]  # type: ignore[index]
    shares = (0.01, 0.5, 0.99)
    np.testing.assert_allclose(summary.quantiles(shares), np.quantile(values, shares), atol=width)
    assert BandSummary(mean=0, std=1, count=2).quantiles(shares) == ()


def test_equal_values_have_no_spread_and_one_bin() -> None:
    band = BandStatistics.of(np.full(9, 7, np.uint16), (1.0, 0.0))
    assert (band.moments.std, len(band.histogram.counts), band.histogram.counts.sum()) == (0.0, 1, 9)


def make_scene(
    folder: Path,
    scene: str,
    bands: tuple[str, ...] = BANDS,
    pixels: AnyArray | None = None,
    valid: AnyArray | None = None,
) -> Tiles:
    """Write a scene of random pixels; each band has its own values, whatever its position among the others."""
    random = np.random.default_rng(len(scene))
    values = {band: random.integers(0, 10_000, SHAPE).astype(np.uint16) for band in BANDS}
    image = np.stack([values[band] for band in bands]) if pixels is None else pixels
    arrays = {"image": image} | ({} if valid is None else {"valid": valid})
    options: dict[str, Any] = {"layout": Layout(16, 16), "scaling": (SCALE, OFFSET)}
    return Tiles(write_store(folder / f"{scene}.zarr", bands, arrays, **options))


def physical(store: Tiles, band: str, mask: BoolArray) -> Float64Array:
    stored = store.read("image")[store.names.index(band)][mask]
    return np.asarray(stored.astype(np.float64) * SCALE + OFFSET)


def test_each_valid_pixel_counts_once_however_many_chips_contain_it(tmp_path: Path) -> None:
    valid = np.ones(SHAPE, np.uint8)
    valid[:, 5:9] = 0
    stores = [make_scene(tmp_path, "a", valid=valid), make_scene(tmp_path, "bb", bands=BANDS[::-1])]
    samples = np.array([[0, 0, 0], [0, 4, 0], [0, 4, 8], [1, 40, 70], [1, 41, 70]])
    statistics = measure_bands(stores, samples, CHIP)
    masks = [
        covered_area(SHAPE, samples[samples[:, 0] == n], CHIP) & (s.read("valid") > 0) for n, s in enumerate(stores)
    ]
    for band in BANDS:
        values = np.concatenate([physical(s, band, m) for s, m in zip(stores, masks, strict=True)])
        row = statistics.json_document()["bands"][band]
        assert row["count"] == len(values) == sum(row["histogram"]["counts"])
        assert (row["mean"], row["std"]) == pytest.approx((values.mean(), values.std()), rel=1e-11)
        assert (row["min"], row["max"]) == pytest.approx((values.min(), values.max()), rel=1e-11)
    assert statistics.pixels == {"a": int(masks[0].sum()), "bb": int(masks[1].sum())}
    json.dumps(statistics.json_document(), allow_nan=False)


def test_no_pixel_outside_the_training_chips_is_read(tmp_path: Path) -> None:
    store, samples = make_scene(tmp_path, "a"), np.array([[0, 16, 32]])
    before = measure_bands([store], samples, CHIP)
    # One shard is one chip: all others are made unreadable.
    shards = [p for p in (store.path / "image/c").rglob("*") if p.is_file()]
    others = [p for p in shards if p.parts[-2:] != ("1", "2")]
    assert len(others) == len(shards) - 1
    for path in others:
        path.write_bytes(b"rubbish" * 9)
    assert measure_bands([Tiles(store.path)], samples, CHIP) == before


def test_other_scenes_and_bands_do_not_count(tmp_path: Path) -> None:
    stores = [make_scene(tmp_path, "a"), make_scene(tmp_path, "bb")]
    expected = measure_bands(stores[:1], np.array([[0, 0, 0]]), CHIP).bands
    assert measure_bands(stores, np.array([[0, 0, 0]]), CHIP).bands == expected


def test_a_model_is_normalised_by_band_name(tmp_path: Path) -> None:
    statistics = measure_bands([make_scene(tmp_path, "a")], np.array([[0, 0, 0]]), CHIP)
    normaliser = band_normaliser(statistics, ("nir", "red"))
    assert normaliser.mean == (statistics.bands["nir"].mean, statistics.bands["red"].mean)
    with pytest.raises(BadInputError, match="lack band swir; they have red, nir"):
        band_normaliser(statistics, ("red", "swir"))


def test_a_band_without_spread_does_not_divide_by_zero(tmp_path: Path) -> None:
    store = make_scene(tmp_path, "a", pixels=np.full((2, *SHAPE), 500, np.uint16))
    normaliser = band_normaliser(measure_bands([store], np.array([[0, 0, 0]]), CHIP), BANDS)
    stored, valid = store.read("image"), np.ones(SHAPE, bool)
    np.testing.assert_allclose(normaliser(stored, store.scaling, valid), 0, atol=0.01)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int32"])
def test_every_data_type_is_measured_alike(tmp_path: Path, dtype: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 120, (2, *SHAPE)).astype(dtype)
    band = measure_bands([make_scene(tmp_path, "a", pixels=pixels)], np.array([[0, 8, 8]]), CHIP).bands["red"]
    values = pixels[0, 8:24, 8:24].astype(np.float64) * SCALE + OFFSET
    assert (band.count, band.mean) == (256, pytest.approx(values.mean(), rel=1e-11))


def test_valid_pixels_that_are_not_finite_are_reported(tmp_path: Path) -> None:
    pixels = np.zeros((2, *SHAPE), np.float32)
    pixels[1, 3, 3] = np.nan
    with pytest.raises(BadInputError, match="band nir of scene a has valid pixels that are not finite"):
        measure_bands([make_scene(tmp_path, "a", pixels=pixels)], np.array([[0, 0, 0]]), CHIP)


def test_training_chips_without_a_valid_pixel_are_reported(tmp_path: Path) -> None:
    store = make_scene(tmp_path, "a", valid=np.zeros(SHAPE, np.uint8))
    for samples in (np.array([[0, 0, 0]]), np.empty((0, 3), np.int64)):
        with pytest.raises(BadInputError, match="no valid pixel in the training chips"):
            measure_bands([store], samples, CHIP)


@pytest.mark.parametrize("text", ["{}", "[]", '{"bands": {}}'])
def test_a_file_that_is_not_statistics_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "statistics.json").write_text(text)
    with pytest.raises(BadInputError, match="is not a statistics file"):
        read_statistics(tmp_path / "statistics.json")
