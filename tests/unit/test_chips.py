"""Tiles are paired with their labels, and chips are read at their position, by band name, within a memory budget."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import write_labels
from stores import GRID, SHAPE, SMALL, classes, make_scene, number, usable

from eopipe.chips.chips import pair_stores
from eopipe.errors import BadInputError
from eopipe.loader.chip_reader import (
    Bounds,
    ChipArrays,
    ChipReader,
    ChipRequest,
    SharedMemorySlots,
    SlotLayout,
    chip_sources,
    window_bytes,
)
from eopipe.tiles.store import Tiles

U2 = np.dtype("uint16")
Pairs = list[tuple[Tiles, Tiles]]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Two scenes with their labels; band order differs, pixels encode scene, band and position."""
    folder = tmp_path_factory.mktemp("stores")
    return pair_stores(
        *zip(
            *(make_scene(folder, *arguments) for arguments in (("a", ("red", "nir")), ("b", ("nir", "red")))),
            strict=True,
        )
    )


def read_chip(reader: ChipReader, scene: int, row: int, col: int, window: Bounds | None = None) -> ChipArrays:
    out = SharedMemorySlots(SlotLayout(1, 1, len(reader.sources[scene].bands), reader.chip, U2.str)).slots[0]
    reader.read(ChipRequest(scene, window, (0,), ((row, col),), (0,)), out)
    return out[0]


def test_bands_are_chosen_by_name_and_not_by_order(pairs: Pairs) -> None:
    both = ChipReader(chip_sources(pairs, ("nir", "red")), 16, U2, 0)
    reader = ChipReader(chip_sources(pairs, ("red",)), 16, U2, 0)
    # Pixels without data have the values of others.
    valid = usable()[5:21, 7:23] > 0
    for scene, name in enumerate("ab"):
        chip = read_chip(both, scene, 5, 7).image
        np.testing.assert_array_equal(chip[0][valid], number(name, "nir")[5:21, 7:23][valid])
        np.testing.assert_array_equal(chip[1][valid], number(name, "red")[5:21, 7:23][valid])
        np.testing.assert_array_equal(read_chip(reader, scene, 0, 0).image, [number(name, "red")[:16, :16]])


def test_a_band_that_a_scene_lacks_is_reported(pairs: Pairs) -> None:
    with pytest.raises(BadInputError, match=r"a\.zarr has no band swir; it has red, nir"):
        chip_sources(pairs, ("red", "swir"))


WINDOW = 32 * 32 * (2 * 2 + 2)


@pytest.mark.parametrize("budget", [WINDOW, 2 * WINDOW, 5 * WINDOW, 1 << 30])
def test_the_memory_budget_of_chips_changes_no_pixel_and_is_never_exceeded(pairs: Pairs, budget: int) -> None:
    reader, random = ChipReader(chip_sources(pairs, ("red", "nir")), 16, U2, budget), np.random.default_rng(0)
    for number_ in range(60):
        scene, row, col = int(random.integers(2)), int(random.integers(49)), int(random.integers(33))
        top, left = min(row // 16 * 16, 32), min(col // 16 * 16, 16)
        window = (top, left, top + 32, left + 32) if number_ % 4 else None
        chip = read_chip(reader, scene, row, col, window)
        pixels = slice(row, row + 16), slice(col, col + 16)
        valid = usable()[pixels] > 0
        np.testing.assert_array_equal(chip.image[0][valid], number("ab"[scene], "red")[pixels][valid])
        np.testing.assert_array_equal(chip.image[1][valid], number("ab"[scene], "nir")[pixels][valid])
        np.testing.assert_array_equal(chip.label, classes("ab"[scene])[pixels])
        np.testing.assert_array_equal(chip.valid, usable()[pixels])
        assert reader.cached_bytes <= budget
    assert window_bytes((0, 0, 32, 32), 2, U2) == WINDOW


def test_a_cached_window_is_read_once(pairs: Pairs) -> None:
    reader = ChipReader(chip_sources(pairs, ("red",)), 16, U2, 1 << 20)
    window = (0, 0, 48, 48)
    first = read_chip(reader, 0, 3, 4, window)
    reader._arrays.clear()
    reader.sources = [replace(source, tiles="gone", labels="gone") for source in reader.sources]
    again = read_chip(reader, 0, 3, 4, window)
    np.testing.assert_array_equal(again.image, first.image)


def test_labels_for_all_scenes_serve_every_scene(tmp_path: Path) -> None:
    tiles = [make_scene(tmp_path, scene, ("red",))[0] for scene in ("b", "a")]
    write_labels(tmp_path / "all.zarr", np.full(SHAPE, 2, np.uint8), ("x", "y", "z"), grid=GRID, layout=SMALL)
    pairs = pair_stores(tuple(tiles), (tmp_path / "all.zarr", tmp_path / "a-label.zarr"))
    assert [image.scene for image, _ in pairs] == ["a", "b"]
    assert [label.scene for _, label in pairs] == ["a", ""], "labels of the scene itself come first"
