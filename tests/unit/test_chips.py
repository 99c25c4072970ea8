"""Chips are cut where they are said to be, by band name, with image and label turned alike."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eopipe.errors import BadInputError
from eopipe.grid import make_grid
from eopipe.samples.chips import Normaliser, Reader, pair, sample, turn
from eopipe.store import NO_LABEL, Layout, Tiles, add_array, new_store

SHAPE = (64, 48)
SCALE, OFFSET = 0.5, -3.0


@pytest.fixture
def pairs(tmp_path: Path) -> list[tuple[Tiles, Tiles]]:
    """Two scenes with their labels; band order differs, pixels tell scene, band and place."""
    return pair(
        *zip(*(make_scene(tmp_path, *told) for told in (("a", ("red", "nir")), ("b", ("nir", "red")))), strict=True)
    )


def number(scene: str, band: str) -> npt.NDArray[np.uint16]:
    """Give pixels that tell scene, band and place."""
    first = {"a": 0, "b": 20_000}[scene] + {"red": 0, "nir": 10_000}[band]
    return (first + np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE)).astype(np.uint16)


def labels(scene: str) -> npt.NDArray[np.uint8]:
    return (number(scene, "red") % 3).astype(np.uint8)


def make_scene(place: Path, scene: str, bands: tuple[str, ...]) -> tuple[Path, Path]:
    grid = make_grid((0.0, 0.0, 480.0, 640.0), "EPSG:32633", 10.0, (0, 0))
    layout = Layout(16, 32)
    with new_store(place / f"{scene}.zarr", grid, bands, scene, {}) as group:
        shape = (len(bands), *SHAPE)
        image = add_array(group, "image", shape, "uint16", layout, scale_factor=SCALE, add_offset=OFFSET)
        image[:] = np.stack([number(scene, band) for band in bands])
        valid = np.ones(SHAPE, np.uint8)
        valid[:, 20] = 0
        add_array(group, "valid", SHAPE, "uint8", layout)[:] = valid
    with new_store(place / f"{scene}-label.zarr", grid, ("x", "y", "z"), scene, {}) as group:
        add_array(group, "label", SHAPE, "uint8", layout)[:] = labels(scene)
        add_array(group, "valid", SHAPE, "uint8", layout)[:] = 1
    return place / f"{scene}.zarr", place / f"{scene}-label.zarr"


def test_the_eight_ways_to_turn_a_chip_are_all_different_and_symmetries() -> None:
    chip = np.arange(16).reshape(4, 4)
    turned = [turn(chip, way) for way in range(8)]
    assert len({array.tobytes() for array in turned}) == 8
    known = [np.rot90(array, k) for array in (chip, chip.T) for k in range(4)]
    assert {array.tobytes() for array in turned} == {np.ascontiguousarray(array).tobytes() for array in known}


@given(way=st.integers(0, 7), row=st.integers(0, 48), col=st.integers(0, 32))
def test_image_and_label_turn_together(way: int, row: int, col: int) -> None:
    chip = number("a", "red")[row : row + 16, col : col + 16]
    image = np.stack([chip, chip + 10_000])
    np.testing.assert_array_equal(turn(image, way)[0], turn(chip, way))
    np.testing.assert_array_equal(turn(image, way)[1] - 10_000, turn(chip, way))


def test_a_turned_sample_holds_the_same_pixels_under_the_same_labels(pairs: list[tuple[Tiles, Tiles]]) -> None:
    reader = Reader(pairs, ("red",), 16)
    plain = Normaliser((0.0,), (1.0,))
    for way in range(8):
        image, label = sample(reader, plain, np.array([0, 8, 4]), way)
        red = np.rint((image[0] - OFFSET) / SCALE).astype(int)
        known = label != NO_LABEL
        np.testing.assert_array_equal(red[known] % 3, label[known])
        np.testing.assert_array_equal(image[0][~known], 0)


def test_bands_are_chosen_by_name_and_not_by_order(pairs: list[tuple[Tiles, Tiles]]) -> None:
    reader = Reader(pairs, ("nir", "red"), 16)
    for scene, name in enumerate(("a", "b")):
        image, _ = reader.image(scene, 5, 7)
        np.testing.assert_array_equal(image[0], number(name, "nir")[5:21, 7:23])
        np.testing.assert_array_equal(image[1], number(name, "red")[5:21, 7:23])
    only, _ = Reader(pairs, ("red",), 16).image(1, 0, 0)
    np.testing.assert_array_equal(only, [number("b", "red")[:16, :16]])


def test_a_band_that_a_scene_lacks_is_told(pairs: list[tuple[Tiles, Tiles]]) -> None:
    with pytest.raises(BadInputError, match=r"a\.zarr has no band swir; it has red, nir"):
        Reader(pairs, ("red", "swir"), 16)


@pytest.mark.parametrize("budget", [0, 4 * 64 * 48, 5 * 4 * 64 * 48, 1 << 30])
def test_the_memory_that_a_reader_may_use_changes_nothing(pairs: list[tuple[Tiles, Tiles]], budget: int) -> None:
    reader = Reader(pairs, ("red", "nir"), 16, budget)
    random = np.random.default_rng(0)
    for _ in range(40):
        scene, row, col = int(random.integers(2)), int(random.integers(49)), int(random.integers(33))
        image, valid = reader.image(scene, row, col)
        window = (slice(row, row + 16), slice(col, col + 16))
        np.testing.assert_array_equal(image[0], number("ab"[scene], "red")[window])
        np.testing.assert_array_equal(reader.label(scene, row, col), labels("ab"[scene])[window])
        np.testing.assert_array_equal(valid, (np.arange(48) != 20)[None, window[1]].repeat(16, 0))
        assert sum(array.nbytes for array in reader._kept.values()) <= budget


def test_pixels_that_are_not_usable_have_no_label(pairs: list[tuple[Tiles, Tiles]]) -> None:
    image, label = sample(Reader(pairs, ("red",), 16), Normaliser((0.0,), (1.0,)), np.array([0, 0, 10]))
    assert (label[:, 10] == NO_LABEL).all()
    assert (image[:, :, 10] == 0).all()
    np.testing.assert_array_equal(np.delete(label, 10, 1), np.delete(labels("a")[:16, 10:26], 10, 1))


def test_labels_for_all_scenes_serve_every_scene(tmp_path: Path) -> None:
    tiles = [make_scene(tmp_path, scene, ("red",))[0] for scene in ("b", "a")]
    grid = make_grid((0.0, 0.0, 480.0, 640.0), "EPSG:32633", 10.0, (0, 0))
    with new_store(tmp_path / "all.zarr", grid, ("x", "y", "z"), "", {}) as group:
        add_array(group, "label", SHAPE, "uint8", Layout(16, 32))[:] = 2
        add_array(group, "valid", SHAPE, "uint8", Layout(16, 32))[:] = 1
    found = pair(tuple(tiles), (tmp_path / "all.zarr", tmp_path / "a-label.zarr"))
    assert [image.scene for image, _ in found] == ["a", "b"]
    assert [label.scene for _, label in found] == ["a", ""], "labels of the scene itself come first"
