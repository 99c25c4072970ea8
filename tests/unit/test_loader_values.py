"""Labels that are values reach the model whole: through cached windows, shared memory, masks and symmetries."""

from pathlib import Path

import numpy as np
import torch
from builders import write_labels
from stores import GRID, SMALL, make_scene, number, usable

from eopipe.chips.chips import Normaliser, is_continuous, pair_stores
from eopipe.loader.chip_reader import (
    VALUE_DTYPE,
    ChipReader,
    ChipRequest,
    SharedMemorySlots,
    SlotLayout,
    chip_sources,
    pixel_bytes,
    window_bytes,
)
from eopipe.loader.loader import DeviceFinisher
from eopipe.training.monitor import preview_png

U2 = np.dtype("uint16")


def values() -> np.ndarray:
    """Numbers that class numbers could not hold, with a row that has none."""
    stored = number("a", "red").astype(np.float32) / 7 - 100
    stored[9] = np.nan
    return stored


def chip_reader(folder: Path, budget: int, normaliser: Normaliser | None = None) -> ChipReader:
    tiles, _ = make_scene(folder, "a", ("red", "nir"))
    write_labels(folder / "values.zarr", values().astype(np.float32), ("height",), grid=GRID, layout=SMALL)
    pairs = pair_stores((tiles,), (folder / "values.zarr",))
    assert is_continuous(pairs[0][1])
    return ChipReader(chip_sources(pairs, ("red",)), 16, U2, budget, VALUE_DTYPE, normaliser)


def test_chips_hold_the_values_whether_read_alone_or_from_a_window_that_is_kept(tmp_path: Path) -> None:
    window = (0, 0, 40, 40)
    reader = chip_reader(tmp_path, window_bytes(window, 1, U2, VALUE_DTYPE))
    for cached_window in (None, window):
        out = SharedMemorySlots(SlotLayout(1, 2, 1, 16, "<u2", "<f4")).slots[0]
        reader.read(ChipRequest(0, cached_window, (0, 1), ((3, 5), (20, 24)), (0, 0)), out)
        np.testing.assert_array_equal(out.label[0], values()[3:19, 5:21])
        np.testing.assert_array_equal(out.label[1], values()[20:36, 24:40])


def test_slots_of_a_ring_do_not_touch_each_other() -> None:
    ring = SharedMemorySlots(SlotLayout(3, 2, 1, 8, "<u2", "<f4"))
    for mark, slot in enumerate(ring.slots):
        slot.image[:], slot.valid[:], slot.label[:] = 100 + mark, mark, mark + 0.5
    for mark, slot in enumerate(ring.slots):
        assert slot.label.dtype == np.float32
        assert (slot.image == 100 + mark).all()
        assert (slot.valid == mark).all()
        assert (slot.label == mark + 0.5).all()
    assert pixel_bytes(4, U2, VALUE_DTYPE) == 13


def test_labels_turn_with_their_images_and_are_nothing_where_the_scene_is_invalid(tmp_path: Path) -> None:
    # On a CPU by the reader, on a GPU after the copy.
    corners, normaliser, symmetries = ((3, 12), (3, 12)), Normaliser((0.0,), (1.0,)), np.array([0, 5])
    finished = SharedMemorySlots(SlotLayout(1, 2, 1, 16, "<f4", "<f4")).slots[0]
    (tmp_path / "cut").mkdir()
    request = ChipRequest(0, None, (0, 1), corners, symmetries.tolist())
    chip_reader(tmp_path / "cut", 0, normaliser).read(request, finished)
    stored = SharedMemorySlots(SlotLayout(1, 2, 1, 16, "<u2", "<f4")).slots[0]
    (tmp_path / "stored").mkdir()
    chip_reader(tmp_path / "stored", 0).read(ChipRequest(0, None, (0, 1), corners, (0, 0)), stored)
    moved = [torch.from_numpy(array.copy()) for array in (stored.image, stored.valid, stored.label)]
    images, labels = DeviceFinisher(normaliser, [(1.0, 0.0)], torch.device("cpu"))(
        *moved, np.zeros(2, np.int64), symmetries
    )
    assert labels.dtype == torch.float32
    expected = np.where(usable()[3:19, 12:28] > 0, values()[3:19, 12:28], np.nan)
    np.testing.assert_array_equal(labels[0].numpy(), expected)
    np.testing.assert_array_equal(labels[1].numpy(), np.flip(expected.T, 1))
    np.testing.assert_array_equal(images[1, 0].numpy(), np.flip(images[0, 0].numpy().T, 1))
    np.testing.assert_array_equal(finished.label, labels.numpy())


def test_a_picture_of_values_is_drawn_in_greys() -> None:
    truth = np.linspace(0, 9, 64, dtype=np.float32).reshape(1, 8, 8)
    truth[0, 0, 0] = np.nan
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    assert preview_png(image, truth, truth, ("red",), 255)[:4] == b"\x89PNG"
