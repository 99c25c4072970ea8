"""Compare maps with labels in the test places, and with what simple methods reach there."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eopipe.errors import BadInputError
from eopipe.samples.chips import measured, pair, unit_of
from eopipe.samples.chipwise import majority_of
from eopipe.samples.sampling import scenes_of
from eopipe.samples.splits import covered, read_split
from eopipe.store import NO_LABEL, Tiles
from eopipe.training.metrics import confusion, scores, value_scores, value_sums

SEASONS = ((12, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
METHODS = ("model", "majority", "pixel_baseline")
Pixels = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """One map, the scenes that it was made from, and the truth (255 or NaN where there is none)."""

    found: Pixels
    stores: list[Tiles]
    truth: Pixels

    @property
    def both(self) -> npt.NDArray[np.bool_]:
        """Where there are map and truth (y, x)."""
        return known(self.found) & known(self.truth)

    def features(self, rows: Pixels, cols: Pixels) -> npt.NDArray[np.float32]:
        """What is known of each pixel (pixel, feature): bands, or seasonal medians of many scenes; NaN unseen."""
        if len(self.stores) == 1:
            return _bands(self.stores[0], rows, cols)
        seasons = [[s for s in self.stores if _month(s) in months] for months in SEASONS]
        return np.hstack([_median(stores, rows, cols) for stores in seasons if stores])


def known(numbers: Pixels) -> npt.NDArray[np.bool_]:
    """Where there is a class number, or a value."""
    return np.asarray(np.isfinite(numbers) if numbers.dtype.kind == "f" else numbers != NO_LABEL)


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
    """All maps of a run with their truth, their task, and the split that tells which pixels train and test."""

    groups: list[Group]
    names: tuple[str, ...]
    split: dict[str, Any]
    task: str = "segmentation"
    unit: str = ""

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
        return cls(groups, pairs[0][1].names, split, _task(maps, pairs[0][1], split), unit_of(pairs[0][1]))

    def pixels(self, name: str) -> Iterator[tuple[Group, Pixels, Pixels]]:
        """For each map: rows and columns of the mapped, labelled pixels in the places of a split.

        Where scenes are split, those are the places of the map's own chips.
        """
        for group, area in self.areas(name):
            rows, cols = np.nonzero(area & group.both)
            yield group, rows, cols

    def areas(self, name: str) -> Iterator[tuple[Group, npt.NDArray[np.bool_]]]:
        """For each map the places (y, x) of a split."""
        samples, chip = self.split["samples"][name], self.split["chip"]
        area = covered(self.groups[0].truth.shape, samples, chip)
        for number, group in enumerate(self.groups):
            if self.split.get("by_scene"):
                area = covered(group.truth.shape, samples[samples[:, 0] == number], chip)
            yield group, area

    def chips(self, name: str) -> Iterator[tuple[Group, Numbers, Numbers, Numbers]]:
        """For each map of chips: the cells that lie whole in the places of a split, their true and mapped class.

        A cell's number counts cells row by row. Its truth is the class of most of its pixels; it has one where the
        share of labelled pixels is at least that of a sample.
        """
        edge, count = self.split["chip"], len(self.names)
        least = max(1.0, self.split["plan"]["min_valid"] * edge**2)
        for group, area in self.areas(name):
            high, wide = (length // edge for length in group.truth.shape)
            crop = np.s_[: high * edge, : wide * edge]
            rows, cols = np.nonzero((area & group.both)[crop])
            votes = votes_of(rows // edge * wide + cols // edge, group.truth[rows, cols], (high * wide, count))
            whole = area[crop].reshape(high, edge, wide, edge).all((1, 3)).ravel()
            chosen = np.flatnonzero(whole & (votes.sum(1) >= least))
            mapped = group.found[crop][::edge, ::edge].ravel()[chosen]
            yield group, chosen, majority_of(votes[chosen]), mapped.astype(np.int64)


def votes_of(where: Pixels, classes: Pixels, shape: tuple[int, int]) -> Numbers:
    """Count pixels (n,) of each place and class (place, class)."""
    flat = where.astype(np.int64) * shape[1] + classes.astype(np.int64)
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)


def _task(maps: tuple[Path, ...], labels: Tiles, split: dict[str, Any]) -> str:
    """The task that the maps tell of; raises BadInputError where labels or split are of another one."""
    import rasterio

    with rasterio.open(maps[0]) as file:
        tags = file.tags()
    task, chip = str(tags.get("task", "segmentation")), int(tags.get("chip", split["chip"]))
    if measured(labels) != (task == "regression"):
        kind = f"measure {labels.names[0]}" if measured(labels) else "are classes"
        raise BadInputError(f"map {maps[0]} is of task {task}, but the labels {kind}; give the labels of its training")
    if chip != split["chip"]:
        raise BadInputError(f"map {maps[0]} has cells of {chip} pixels, the split chips of {split['chip']}")
    return task


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
    kinds = {"segmentation": _by_pixel, "classification": _by_chip, "regression": _by_value}
    return kinds[data.task](data, fit_baseline(data, most, seed))


def _by_pixel(data: Data, baseline: Any) -> dict[str, Any]:
    classes = len(data.names)
    majority = int(_truth_counts(data, "train").argmax())
    counts = {name: np.zeros((classes, classes), np.int64) for name in METHODS}
    for group, rows, cols in data.pixels("test"):
        truth = group.truth[rows, cols]
        counts["model"] += confusion(truth, group.found[rows, cols], classes)
        counts["majority"] += confusion(truth, np.full(truth.shape, majority), classes)
        if len(truth):
            counts["pixel_baseline"] += confusion(truth, baseline.predict(group.features(rows, cols)), classes)
    return _told(data, counts, majority) | {"test_pixels": int(counts["model"].sum())}


def _by_chip(data: Data, baseline: Any) -> dict[str, Any]:
    """Scores over whole cells of the map; the baseline's class of a cell is that of most of its labelled pixels."""
    classes, edge = len(data.names), data.split["chip"]
    train = sum(np.bincount(truth, minlength=classes) for _, _, truth, _ in data.chips("train"))
    majority = int(np.argmax(train))
    counts = {name: np.zeros((classes, classes), np.int64) for name in METHODS}
    for group, chosen, truth, found in data.chips("test"):
        counts["model"] += confusion(truth, found, classes)
        counts["majority"] += confusion(truth, np.full(truth.shape, majority), classes)
        wide = group.truth.shape[1] // edge
        rows, cols = np.nonzero(group.both)
        at = np.where(cols < wide * edge, rows // edge * wide + cols // edge, -1)
        here = np.isin(at, chosen)
        if here.any():
            said = baseline.predict(group.features(rows[here], cols[here]))
            votes = votes_of(np.searchsorted(chosen, at[here]), said, (len(chosen), classes))
            counts["pixel_baseline"] += confusion(truth, majority_of(votes), classes)
    if not counts["model"].any():
        raise BadInputError(
            f"no cell of {edge} pixels of the map lies whole in the test places; "
            "choose a split.stride that divides split.chip, or larger test places"
        )
    told = _told(data, counts, majority) | {"task": data.task, "test_chips": int(counts["model"].sum())}
    told["pixel_baseline"]["method"] += ", and their majority in each chip"
    return told


def _told(data: Data, counts: dict[str, Numbers], majority: int) -> dict[str, Any]:
    told = {name: scores(table, data.names) for name, table in counts.items()}
    told["majority"]["class"] = data.names[majority]
    told["pixel_baseline"]["method"] = _method(data)
    return {"classes": list(data.names), "maps": len(data.groups)} | told


def _by_value(data: Data, baseline: Any) -> dict[str, Any]:
    """Scores of values, beside the mean of the training labels and boosted trees on each pixel."""
    train = np.concatenate([group.truth[rows, cols] for group, rows, cols in data.pixels("train")], dtype=np.float64)
    mean = float(f"{train.mean():.9g}")
    sums = {name: np.zeros(6) for name in ("model", "mean", "pixel_baseline")}
    for group, rows, cols in data.pixels("test"):
        truth = group.truth[rows, cols]
        if len(truth):
            sums["model"] += value_sums(truth, group.found[rows, cols], mean)
            sums["mean"] += value_sums(truth, np.full(truth.shape, mean), mean)
            sums["pixel_baseline"] += value_sums(truth, baseline.predict(group.features(rows, cols)), mean)
    told: dict[str, Any] = {name: value_scores(total) for name, total in sums.items()}
    told["mean"]["value"] = round(mean, 6)
    told["pixel_baseline"]["method"] = _method(data)
    low, high = (float(f"{v:.9g}") for v in np.percentile(train, (0, 100)))
    told |= {"task": data.task, "unit": data.unit, "range": [low, high]}
    return {"classes": list(data.names), "maps": len(data.groups), "test_pixels": int(sums["model"][0])} | told


def _method(data: Data) -> str:
    many = len(data.groups[0].stores) > 1
    return "boosted trees on " + ("seasonal medians of each band" if many else "the bands of each pixel")


def _truth_counts(data: Data, name: str) -> npt.NDArray[np.int64]:
    found = [np.bincount(g.truth[r, c], minlength=len(data.names)) for g, r, c in data.pixels(name)]
    return np.asarray(np.sum(found, axis=0), np.int64)


def fit_baseline(data: Data, most: int, seed: int) -> Any:
    """Train per-pixel boosted trees (histogram gradient boosting) on pixels of the training places."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    share, features, truth = most // len(data.groups), [], []
    for number, (group, rows, cols) in enumerate(data.pixels("train")):
        stream = np.random.Generator(np.random.Philox(counter=[0, 0, 0, number], key=seed))
        some = np.sort(stream.permutation(len(rows))[:share])
        if len(some):
            features.append(group.features(rows[some], cols[some]))
            truth.append(group.truth[rows[some], cols[some]])
    kind = HistGradientBoostingRegressor if data.task == "regression" else HistGradientBoostingClassifier
    return kind(random_state=seed).fit(np.vstack(features), np.concatenate(truth))
