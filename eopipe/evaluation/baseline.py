"""The per-pixel baseline: boosted trees on the features of single pixels."""

from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, FloatArray
from eopipe.evaluation.maps import EvaluationData
from eopipe.tiles.store import Tiles

SEASONS = ((12, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))


def fit_baseline(data: EvaluationData, max_pixels: int, seed: int) -> Any:
    """Train per-pixel boosted trees (histogram gradient boosting) on pixels of the training areas."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    pixels_per_map, features, truth = max_pixels // len(data.groups), [], []
    for number, (group, rows, cols) in enumerate(data.pixels("train")):
        generator = np.random.Generator(np.random.Philox(counter=[0, 0, 0, number], key=seed))
        chosen = np.sort(generator.permutation(len(rows))[:pixels_per_map])
        if len(chosen):
            features.append(features_of(group.stores, rows[chosen], cols[chosen]))
            truth.append(group.truth[rows[chosen], cols[chosen]])
    estimator = HistGradientBoostingRegressor if data.task == "regression" else HistGradientBoostingClassifier
    return estimator(random_state=seed).fit(np.vstack(features), np.concatenate(truth))


def baseline_method(data: EvaluationData) -> str:
    """Description of the baseline for the metrics."""
    has_several_scenes = len(data.groups[0].stores) > 1
    return "boosted trees on " + ("seasonal medians of each band" if has_several_scenes else "the bands of each pixel")


def features_of(stores: list[Tiles], rows: AnyArray, cols: AnyArray) -> FloatArray:
    """Features (pixel, feature): bands, or seasonal medians of many scenes; NaN where no scene is valid."""
    if len(stores) == 1:
        return _bands(stores[0], rows, cols)
    seasons = [[s for s in stores if _month(s) in months] for months in SEASONS]
    return np.hstack([_median(some, rows, cols) for some in seasons if some])


def _month(store: Tiles) -> int:
    return int(str(store.attributes["datetime"])[5:7])


def _bands(store: Tiles, rows: AnyArray, cols: AnyArray) -> FloatArray:
    valid = store.read("valid")[rows, cols] > 0
    values = store.physical(store.names)[:, rows, cols].T
    return np.where(valid[:, None], values, np.float32(np.nan))


def _median(stores: list[Tiles], rows: AnyArray, cols: AnyArray) -> FloatArray:
    stack = np.sort([_bands(store, rows, cols) for store in stores], axis=0)
    # NaN sorts last: the median of the valid values is at the middle of their count.
    count = np.isfinite(stack).sum(0)
    low, high = (np.take_along_axis(stack, np.maximum(i, 0)[None], 0)[0] for i in ((count - 1) // 2, count // 2))
    return np.where(count > 0, (low + high) / 2, np.nan).astype(np.float32)
