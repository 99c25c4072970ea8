"""Compare maps with labels in the test places, and with what simple methods reach there."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eopipe.errors import BadInputError
from eopipe.samples.chips import pair
from eopipe.samples.sampling import scenes_of
from eopipe.samples.splits import covered, read_split
from eopipe.store import NO_LABEL, Tiles
from eopipe.training.metrics import confusion, scores

SEASONS = ((12, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
Pixels = npt.NDArray[Any]


@dataclass(frozen=True)
class Group:
    """One map, the scenes that it was made from, and the truth (255 where there is none)."""

    found: Pixels
    stores: list[Tiles]
    truth: npt.NDArray[np.uint8]

    def features(self, rows: Pixels, cols: Pixels) -> npt.NDArray[np.float32]:
        """What is known of each pixel (pixel, feature): bands, or seasonal medians of many scenes; NaN unseen."""
        if len(self.stores) == 1:
            return _bands(self.stores[0], rows, cols)
        seasons = [[s for s in self.stores if _month(s) in months] for months in SEASONS]
        return np.hstack([_median(stores, rows, cols) for stores in seasons if stores])


def _month(store: Tiles) -> int:
    return int(str(store.attributes["datetime"])[5:7])


def _bands(store: Tiles, rows: Pixels, cols: Pixels) -> npt.NDArray[np.float32]:
    valid = store.read("valid")[rows, cols] > 0
    values = store.physical(store.names)[:, rows, cols].T
    return np.where(valid[:, None], values, np.float32(np.nan))


def _median(stores: list[Tiles], rows: Pixels, cols: Pixels) -> npt.NDArray[np.float32]:
    stack = np.sort([_bands(store, rows, cols) for store in stores], axis=0)
    # NaN sorts last: the median of what was seen lies around the middle of the count.
    count = np.isfinite(stack).sum(0)
    low, high = (np.take_along_axis(stack, np.maximum(i, 0)[None], 0)[0] for i in ((count - 1) // 2, count // 2))
    return np.where(count > 0, (low + high) / 2, np.nan).astype(np.float32)


@dataclass(frozen=True)
class Data:
    """All maps of a run with their truth, and the split that tells which pixels train and test."""

    groups: list[Group]
    names: tuple[str, ...]
    split: dict[str, Any]

    @classmethod
    def read(cls, maps: tuple[Path, ...], tiles: tuple[Path, ...], labels: tuple[Path, ...], chips: Path) -> "Data":
        """Read maps and stores; raises BadInputError when they do not belong together."""
        pairs, split = pair(tiles, labels), read_split(chips)
        scenes_of(split, pairs)
        if len(maps) not in (1, len(pairs)):
            raise BadInputError(f"{len(maps)} maps for {len(pairs)} scenes: give one mosaic, or one map for each scene")
        if len(maps) == 1 and len({label.scene for _, label in pairs}) > 1:
            raise BadInputError("one mosaic cannot be compared with labels that differ from scene to scene")
        if len(maps) < len(pairs) and split.get("by_scene"):
            raise BadInputError("one mosaic mixes the scenes that train and test; give a map for each scene")
        members = [pairs] if len(maps) == 1 else [[one] for one in pairs]
        groups = [
            Group(_read_map(path, [image for image, _ in some]), [image for image, _ in some], some[0][1].read("label"))
            for path, some in zip(maps, members, strict=True)
        ]
        return cls(groups, pairs[0][1].names, split)

    def pixels(self, name: str) -> Iterator[tuple[Group, Pixels, Pixels]]:
        """For each map: rows and columns of the mapped, labelled pixels in the places of a split.

        Where scenes are split, those are the places of the map's own chips.
        """
        samples, chip = self.split["samples"][name], self.split["chip"]
        area = covered(self.groups[0].truth.shape, samples, chip)
        for number, group in enumerate(self.groups):
            if self.split.get("by_scene"):
                area = covered(group.truth.shape, samples[samples[:, 0] == number], chip)
            rows, cols = np.nonzero(area & (group.truth != NO_LABEL) & (group.found != NO_LABEL))
            yield group, rows, cols


def _read_map(path: Path, stores: list[Tiles]) -> Pixels:
    import rasterio

    with rasterio.open(path) as file:
        if file.shape != stores[0].shape or not file.transform.almost_equals(stores[0].grid.affine):
            raise BadInputError(f"map {path.name} does not lie on the grid of scene {stores[0].scene}")
        made_from, given = str(file.tags().get("scenes", "")).split(), [store.scene for store in stores]
        if made_from != given:
            gone = " ".join(sorted(set(made_from) ^ set(given)))
            raise BadInputError(f"map {path} was made from other scenes than it is compared with: {gone}")
        return np.asarray(file.read(1))


def evaluate_maps(data: Data, most: int, seed: int) -> dict[str, Any]:
    """The content of a metrics file."""
    classes = len(data.names)
    train = _truth_counts(data, "train")
    majority = int(train.argmax())
    counts = {name: np.zeros((classes, classes), np.int64) for name in ("model", "majority", "pixel_baseline")}
    baseline = fit_baseline(data, most, seed)
    for group, rows, cols in data.pixels("test"):
        truth = group.truth[rows, cols]
        counts["model"] += confusion(truth, group.found[rows, cols], classes)
        counts["majority"] += confusion(truth, np.full(truth.shape, majority), classes)
        if len(truth):
            counts["pixel_baseline"] += confusion(truth, baseline.predict(group.features(rows, cols)), classes)
    told = {name: scores(table, data.names) for name, table in counts.items()}
    told["majority"]["class"] = data.names[majority]
    told["pixel_baseline"]["method"] = _method(data)
    return {"classes": list(data.names), "maps": len(data.groups), "test_pixels": int(counts["model"].sum())} | told


def _method(data: Data) -> str:
    many = len(data.groups[0].stores) > 1
    return "boosted trees on " + ("seasonal medians of each band" if many else "the bands of each pixel")


def _truth_counts(data: Data, name: str) -> npt.NDArray[np.int64]:
    found = [np.bincount(g.truth[r, c], minlength=len(data.names)) for g, r, c in data.pixels(name)]
    return np.asarray(np.sum(found, axis=0), np.int64)


def fit_baseline(data: Data, most: int, seed: int) -> Any:
    """Train the per-pixel classifier (histogram gradient boosting) on pixels of the training places."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    share, features, truth = most // len(data.groups), [], []
    for number, (group, rows, cols) in enumerate(data.pixels("train")):
        stream = np.random.Generator(np.random.Philox(counter=[0, 0, 0, number], key=seed))
        some = np.sort(stream.permutation(len(rows))[:share])
        if len(some):
            features.append(group.features(rows[some], cols[some]))
            truth.append(group.truth[rows[some], cols[some]])
    return HistGradientBoostingClassifier(random_state=seed).fit(np.vstack(features), np.concatenate(truth))
