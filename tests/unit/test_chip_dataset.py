"""Chips of a run in Python: those of the split file, whatever else the run has."""

from pathlib import Path

import numpy as np
import pytest
from scenery import Run
from test_split import SHAPE, SHARES, make_stores, split

import eopipe
from eopipe.chips.splits import SPLITS, read_split
from eopipe.text_files import read_json
from eopipe.tiles.store import NO_LABEL, Tiles


def test_each_chip_is_the_normalised_pixels_and_the_labels_at_its_corner(tmp_path: Path, run: Run) -> None:
    valid, stores = np.ones(SHAPE, np.uint8), []
    valid[40:44] = 0
    for scene in ("s", "t"):
        tiles, labels = make_stores(tmp_path, scene, valid=valid)
        for path, kind in ((tiles, "tiles"), (labels, "labels")):
            (tmp_path / kind).mkdir(exist_ok=True)
            path.rename(tmp_path / kind / f"{scene}.zarr")
        stores.append((tmp_path / f"tiles/{scene}.zarr", tmp_path / f"labels/{scene}.zarr"))
    assert split(run, tmp_path, stores, *SHARES, "--min-valid", 0.5).code == 0
    document, (band,) = read_split(tmp_path / "split.json"), read_json(tmp_path / "statistics.json")["bands"].values()
    for name in SPLITS:
        chips = eopipe.open_chips(tmp_path, name)
        assert chips.corners.tolist() == document.samples[name].tolist()
        assert len(chips) > 1
        for number in (0, len(chips) // 2, -1):
            scene, row, column = chips.corners[number]
            image, numbers = chips[number]
            window = slice(row, row + 16), slice(column, column + 16)
            pixels, usable = Tiles(stores[scene][0]).read("image", *window), valid[window] > 0
            expected = np.where(usable, (pixels - band["mean"]) / band["std"], 0)
            np.testing.assert_allclose(image.numpy(), expected, atol=1e-4)
            label = Tiles(stores[scene][1]).read("label", *window)
            assert np.array_equal(numbers.numpy(), np.where(usable, label, NO_LABEL))
    with pytest.raises(IndexError, match=rf"chip {len(chips)} of {len(chips)} of test"):
        chips[len(chips)]


def test_an_epoch_has_each_training_chip_once_in_another_order(tmp_path: Path, run: Run) -> None:
    (tmp_path / "tiles").mkdir()
    (tmp_path / "labels").mkdir()
    tiles, labels = make_stores(tmp_path, "s")
    stores = tiles.rename(tmp_path / "tiles/s.zarr"), labels.rename(tmp_path / "labels/s.zarr")
    assert split(run, tmp_path, [stores], *SHARES).code == 0
    chips = eopipe.open_chips(tmp_path, "train")

    def values(number: int) -> bytes:
        # Whatever the symmetry.
        return np.sort(chips[number][0].numpy(), None).tobytes()

    plain, orders = [*map(values, range(len(chips)))], []
    for epoch in (0, 1):
        chips.set_epoch(epoch)
        orders.append([plain.index(values(number)) for number in range(len(chips))])
    assert [sorted(order) for order in orders] == [[*range(len(chips))]] * 2
    assert orders[0] != orders[1] != [*range(len(chips))]
