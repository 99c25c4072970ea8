"""Boosted trees that learn each pixel by itself: what a model must be better than."""

from typing import Any

import numpy as np

from eopipe.evaluation.maps import Data


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


def method(data: Data) -> str:
    """What the baseline is, in words."""
    many = len(data.groups[0].stores) > 1
    return "boosted trees on " + ("seasonal medians of each band" if many else "the bands of each pixel")
