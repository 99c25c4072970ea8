"""The per-pixel baseline: boosted trees on the features of single pixels."""

from typing import Any

import numpy as np

from eopipe.evaluation.maps import EvaluationData


def fit_baseline(data: EvaluationData, max_pixels: int, seed: int) -> Any:
    """Train per-pixel boosted trees (histogram gradient boosting) on pixels of the training areas."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    pixels_per_map, features, truth = max_pixels // len(data.groups), [], []
    for number, (group, rows, cols) in enumerate(data.pixels("train")):
        generator = np.random.Generator(np.random.Philox(counter=[0, 0, 0, number], key=seed))
        chosen = np.sort(generator.permutation(len(rows))[:pixels_per_map])
        if len(chosen):
            features.append(group.features(rows[chosen], cols[chosen]))
            truth.append(group.truth[rows[chosen], cols[chosen]])
    estimator = HistGradientBoostingRegressor if data.task == "regression" else HistGradientBoostingClassifier
    return estimator(random_state=seed).fit(np.vstack(features), np.concatenate(truth))


def baseline_method(data: EvaluationData) -> str:
    """Description of the baseline for the metrics."""
    has_several_scenes = len(data.groups[0].stores) > 1
    return "boosted trees on " + ("seasonal medians of each band" if has_several_scenes else "the bands of each pixel")
