"""Which chips of which scenes are samples, and how many pixels of each class they hold."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eopipe.chips import pair
from eopipe.errors import BadInputError
from eopipe.grid import grid_json
from eopipe.splits import SPLITS, Plan, Positions, audit, chip_counts, place_chips
from eopipe.store import Tiles


def split_samples(tiles: tuple[Path, ...], labels: tuple[Path, ...], plan: Plan, min_valid: float) -> dict[str, Any]:
    """The content of a split file."""
    pairs = pair(tiles, labels)
    grid, classes = pairs[0][0].grid, pairs[0][1].names
    chips = place_chips(pairs[0][0].shape, plan)
    samples: dict[str, list[list[int]]] = {name: [] for name in SPLITS}
    counts = {name: np.zeros(len(classes), np.int64) for name in SPLITS}
    for number, (image, label) in enumerate(pairs):
        usable = (image.read("valid") > 0) & (label.read("valid") > 0)
        numbers = label.read("label")
        for name in SPLITS:
            corners = _enough(usable, chips[name], plan.chip, min_valid)
            samples[name] += [[number, int(r), int(c)] for r, c in corners]
            counts[name] += _classes(numbers, usable, corners, plan.chip, len(classes))
    used = {name: np.unique(np.array(rows, np.int64).reshape(-1, 3)[:, 1:], axis=0) for name, rows in samples.items()}
    _complete(samples, counts, classes)
    return {
        "grid": grid_json(grid),
        "scenes": [image.scene for image, _ in pairs],
        "classes": list(classes),
        "chip": plan.chip,
        "plan": asdict(plan) | {"min_valid": min_valid},
        "audit": {"gap_pixels": audit(used, plan.chip, plan.buffer), "buffer": plan.buffer},
        "pixels": {k: dict(zip(classes, v.tolist(), strict=True)) for k, v in counts.items()},
        "samples": samples,
    }


def _enough(usable: npt.NDArray[np.bool_], corners: Positions, chip: int, least: float) -> Positions:
    return corners[chip_counts(usable, corners, chip) >= max(1.0, least * chip * chip)]


def _classes(
    numbers: npt.NDArray[np.uint8], usable: npt.NDArray[np.bool_], corners: Positions, chip: int, classes: int
) -> npt.NDArray[np.int64]:
    found = [chip_counts(usable & (numbers == n), corners, chip).sum() for n in range(classes)]
    return np.array(found, np.int64)


def _complete(samples: dict[str, list[list[int]]], counts: dict[str, Any], classes: tuple[str, ...]) -> None:
    """Training and test need samples of every class."""
    for name in ("train", "test"):
        if not samples[name]:
            raise BadInputError(
                f"the {name} split has no chip; choose smaller chips, a smaller buffer or min_valid, or more scenes"
            )
        gone = [c for c, n in zip(classes, counts[name], strict=True) if not n]
        if gone:
            raise BadInputError(
                f"the labels of the {name} split have no pixel of class {', '.join(gone)}; "
                "split another way, leave the class out of label.classes, or look at what preprocess masks"
            )


def covered(shape: tuple[int, int], samples: npt.NDArray[np.int64], chip: int) -> npt.NDArray[np.bool_]:
    """The pixels (y, x) that the chips of some samples cover."""
    mask = np.zeros(shape, bool)
    for row, col in np.unique(samples[:, 1:], axis=0):
        mask[row : row + chip, col : col + chip] = True
    return mask


def scenes_of(split: dict[str, Any], pairs: list[tuple[Tiles, Tiles]]) -> None:
    """Check that a split was made from these tiles, in this order."""
    have = [image.scene for image, _ in pairs]
    if split["scenes"] != have:
        gone = sorted(set(split["scenes"]) ^ set(have))
        raise BadInputError(f"the split was made from other scenes; these differ: {', '.join(gone)}")
