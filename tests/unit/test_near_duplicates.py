"""Copies of real chips are found however they were changed, and chips of two places of the sample are not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
from builders import write_store
from scipy.ndimage import gaussian_filter, shift
from stores import table_of

from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.chips.alignment import ChipAligner
from eopipe.chips.chips import apply_symmetry
from eopipe.chips.near_duplicates import (
    ChipFingerprints,
    PartnerSearch,
    find_pairs,
    find_similar_chips,
    fingerprint_chips,
)
from eopipe.chips.statistics import measure_bands
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles

SAMPLE = Path(__file__).parents[2] / "sample/sentinel-2-l2a-romania"
BANDS = ("blue", "green", "red", "nir")
DATES = ("20170621", "20180919", "20190407", "20190830")


def real_scene(date: str) -> Float64Array:
    """Bands (band, y, x) of a scene of the sample, 100 x 100 pixels."""
    layers = []
    for name in ("B02", "B03", "B04", "B08"):
        with rasterio.open(SAMPLE / f"S2_ROMANIA_{date}" / f"{name}.tif") as file:
            layers.append(file.read(1))
    return np.stack(layers).astype(np.float64)


def store_of(path: Path, image: Float64Array) -> Tiles:
    pixels = image.round().clip(0, 65535).astype(np.uint16)
    return Tiles(write_store(path, BANDS, {"image": pixels}, layout=Layout(32, 128)))


def chips(edge: int, columns: range, scenes: int = 1) -> IntArray:
    """Chips (scene, row, column) of these columns of the sample, half a chip apart."""
    cols = range(columns.start, columns.stop - edge + 1, edge // 2)
    return np.array([[n, row, col] for n in range(scenes) for row in range(0, 101 - edge, edge // 2) for col in cols])


def at_20_m(image: Float64Array) -> Float64Array:
    """Averaged to 20 m and back to 10 m."""
    bands, edge, _ = image.shape
    mean = image.reshape(bands, edge // 2, 2, edge // 2, 2).mean((2, 4))
    return np.asarray(mean.repeat(2, 1).repeat(2, 2), np.float64)


def noisy(image: Float64Array) -> Float64Array:
    """With noise of a tenth of the signal."""
    noise = np.random.default_rng(0).normal(size=image.shape)
    return np.asarray(image + 0.1 * image.std((1, 2), keepdims=True) * noise, np.float64)


CHANGES: dict[str, Callable[[Float64Array], Float64Array]] = {
    "moved by half a pixel": lambda image: shift(image, (0, 0.5, 0.5), order=1, mode="nearest"),
    "moved by half a pixel with a cubic spline": lambda image: shift(image, (0, 0, 0.5), order=3, mode="nearest"),
    "moved by a pixel": lambda image: np.roll(image, (1, -1), (1, 2)),
    "turned": lambda image: np.rot90(image, axes=(1, 2)),
    "turned half": lambda image: np.rot90(image, 2, axes=(1, 2)),
    "flipped": lambda image: image[:, :, ::-1],
    "flipped and moved": lambda image: np.roll(image[:, ::-1], 1, 2),
    "blurred": lambda image: gaussian_filter(image, (0, 1, 1)),
    "at 20 m": at_20_m,
    "brighter": lambda image: image * 1.1 + 100,
    "noisy": noisy,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("edge", [16, 32])
def test_a_changed_copy_of_a_chip_is_found(tmp_path: Path, change: str, edge: int) -> None:
    image = real_scene("20180919")
    row, col, margin = 40, 8, 4
    # A margin, so that what moves in comes from beside the chip.
    around = image[:, row - margin : row + edge + margin, col - margin : col + edge + margin]
    copied = np.array(image)
    copied[:, 40 : 40 + edge, 64 : 64 + edge] = CHANGES[change](around)[:, margin:-margin, margin:-margin]
    store = store_of(tmp_path / "s.zarr", copied)
    train = np.concatenate([chips(edge, range(60)), [[0, row, col]]])
    samples = {"train": train, "test": np.array([[0, 40, 64], [0, 4, 66]])}
    spread = {name: band.std for name, band in measure_bands([store], samples["train"], edge).bands.items()}
    fingerprints = fingerprint_chips([store], *table_of(samples, edge), spread)
    results = list(find_similar_chips(fingerprints, "train", "test"))
    assert [(kind, count) for kind, count, _, _ in results] == [("near-duplicate", 1)], results
    assert results[0][2][1] == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("edge", [8, 16, 24, 32])
def test_chips_of_west_and_east_of_real_scenes_are_not_alike(tmp_path: Path, edge: int) -> None:
    stores = [store_of(tmp_path / f"{date}.zarr", real_scene(date)) for date in DATES]
    samples = {"train": chips(edge, range(48), len(stores)), "test": chips(edge, range(64, 100), len(stores))}
    spread = {name: band.std for name, band in measure_bands(stores, samples["train"], edge).bands.items()}
    fingerprints = fingerprint_chips(stores, *table_of(samples, edge), spread)
    assert list(find_similar_chips(fingerprints, "train", "test")) == []


SHAPES: dict[str, Callable[[Float64Array, Float64Array], AnyArray]] = {
    "a straight shore": lambda y, x: x > 3,
    "a shore across the grid": lambda y, x: x + 0.7 * y > 1,
    "the corner of a field": lambda y, x: (x > 1) & (y > -2),
    "a bay": lambda y, x: x**2 + (y - 6) ** 2 < 64,
}


def places_of_one_shape(shape: str) -> Float64Array:
    """Bands (band, y, x) of 100 x 100 pixels with one shape around (30, 30), (30, 70), (70, 30) and (70, 70)."""
    offset = np.arange(100, dtype=np.float64) % 40 - 20
    y, x = np.meshgrid(np.roll(offset, 10), np.roll(offset, 10), indexing="ij")
    water = gaussian_filter(SHAPES[shape](y, x).astype(np.float64), 0.5)
    noise = np.random.default_rng(1).normal(0, 20, (4, 100, 100))
    return np.asarray(500 + 400 * water * np.array([1, 0.9, 0.8, 0.6])[:, None, None] + noise, np.float64)


def similar_chips(
    path: Path, image: Float64Array, train: list[list[int]], test: list[list[int]]
) -> list[tuple[str, int]]:
    """Kind and number of the chips of 16 pixels, given as (row, column) of their centres, that look alike."""
    store = store_of(path, image)
    samples = {
        name: np.array([[0, y - 8, x - 8] for y, x in rows]) for name, rows in (("train", train), ("test", test))
    }
    spread = {name: band.std for name, band in measure_bands([store], samples["train"], 16).bands.items()}
    results = find_similar_chips(fingerprint_chips([store], *table_of(samples, 16), spread), "train", "test")
    return [(kind, count) for kind, count, _, _ in results]


@pytest.mark.parametrize("shape", SHAPES)
def test_two_places_with_one_simple_shape_are_not_copies(tmp_path: Path, shape: str) -> None:
    image = places_of_one_shape(shape)
    assert similar_chips(tmp_path / "s.zarr", image, [[30, 30], [30, 70]], [[70, 30], [70, 70]]) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("change", ["moved by a pixel", "turned", "flipped and moved", "brighter"])
def test_a_changed_copy_of_a_simple_shape_is_found(tmp_path: Path, shape: str, change: str) -> None:
    image = places_of_one_shape(shape)
    image[:, 58:82, 58:82] = CHANGES[change](image[:, 18:42, 18:42])
    results = similar_chips(tmp_path / "s.zarr", image, [[30, 30], [30, 70]], [[70, 30], [70, 70]])
    assert results == [("near-duplicate", 1)]


def test_the_pairs_that_are_aligned_are_the_first_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eopipe.chips.near_duplicates.BLOCK", 64)
    random = np.random.default_rng(3)
    shapes = random.normal(size=(3, 32))
    vectors = {name: random.normal(size=(200, 3)) @ shapes for name in ("train", "test")}
    vectors = {name: rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in vectors.items()}
    # Apart, so that no pair shows one place.
    columns = np.arange(0, 20_000, 100)
    samples = {name: np.column_stack([0 * columns, 0 * columns + 1000 * n, columns]) for n, name in enumerate(vectors)}
    table, rows = table_of(samples, 32)
    digests = {name: np.zeros(200, np.uint64) for name in vectors}
    aligner = ChipAligner([], 32, {})
    fingerprints = ChipFingerprints(table, rows, digests, vectors, aligner)
    expected = []
    for symmetry in range(8):
        turned = apply_symmetry(vectors["test"].reshape(200, -1, 4, 4), symmetry).reshape(200, -1)
        for second, row in enumerate(turned @ vectors["train"].T):
            best = [number for number in np.lexsort((np.arange(200), -row))[:4] if row[number] >= 0.7]
            expected += [(rank, -row[first], second, symmetry, first) for rank, first in enumerate(best)]
    pairs = find_pairs(fingerprints, "train", "test", np.ones(200, bool))
    assert len(expected) > 300
    for pair, (rank, correlation, *numbers) in zip(pairs, sorted(expected)[:300], strict=True):
        assert [pair.rank, pair.second, pair.symmetry, pair.first] == [rank, *numbers]
        assert pair.correlation == pytest.approx(-correlation)


@pytest.mark.parametrize("least", [0.3, 0.7, 0.95])
@pytest.mark.parametrize("features", [16, 64])
def test_pairs_left_out_by_their_bound_are_exactly_those_below_the_correlation(features: int, least: float) -> None:
    random = np.random.default_rng(features)
    vectors = random.normal(size=(1500, features)) * 0.9 ** np.arange(features)
    vectors[700:900] = vectors[:200] + 0.1 * random.normal(size=(200, features))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[[5, 800]] = 0
    partners, others = vectors[:800].astype(np.float32), vectors[800:].astype(np.float32)
    index, partner, correlation = PartnerSearch.of(partners).partners(others, least)
    expected = others.astype(np.float64) @ partners.astype(np.float64).T
    clear = np.abs(expected - least) > 1e-6
    is_pair = np.zeros(expected.shape, bool)
    is_pair[index, partner] = True
    np.testing.assert_array_equal(is_pair[clear], (expected >= least)[clear])
    np.testing.assert_allclose(correlation, expected[index, partner], atol=1e-6)
    assert len(index) == is_pair.sum() > 0


def test_chips_of_all_splits_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path / "a.zarr", np.random.default_rng(1).uniform(1, 4000, (len(BANDS), 128, 128)))
    corners = np.array([[0, row, column] for row in range(0, 128, 16) for column in range(0, 128, 16)])
    samples = {name: corners[number::3] for number, name in enumerate(("train", "val", "test"))}
    pixels, read = [0], Tiles.read

    def counted(tiles: Tiles, name: str, y: slice, x: slice) -> AnyArray:
        pixels[0] += (y.stop - y.start) * (x.stop - x.start)
        return read(tiles, name, y, x)

    monkeypatch.setattr(Tiles, "read", counted)
    fingerprints = fingerprint_chips([store], *table_of(samples, 16), dict.fromkeys(BANDS, 0.1))
    # Image and mask.
    assert pixels[0] == 2 * 128**2
    for name, rows in samples.items():
        alone = fingerprint_chips([store], *table_of({name: rows}, 16), dict.fromkeys(BANDS, 0.1))
        np.testing.assert_array_equal(alone.digests[name], fingerprints.digests[name])
        np.testing.assert_array_equal(alone.vectors[name], fingerprints.vectors[name])
