"""Scores of the map in the places it never saw, against two baselines."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output

# Scores with intervals and of each part of the test places.
REVISION = 2


def evaluate(
    classes: Annotated[
        tuple[Path, ...],
        Input("maps of classes or values: one mosaic, or one for each scene in order", format="image/tiff"),
    ],
    tiles: Annotated[tuple[Path, ...], Input("tile stores that the baseline learns from", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store of all scenes, or one for each", folder=True)],
    chips: Annotated[Path, Input("samples of each split", format="application/json")],
    metrics: Annotated[
        Path, Output("metrics.json", "scores of the map and of the baselines", format="application/json")
    ],
    *,
    baseline_pixels: Annotated[int, Option("most training pixels of the per-pixel baseline", ge=100)] = 100_000,
    seed: Annotated[int, Option("seed of the baseline's sample", ge=0)] = 0,
) -> None:
    """Compare the map with the labels in the test places, beside the commonest answer and a pixel baseline.

    The baseline is boosted trees (scikit-learn) that learn each pixel by itself in the training places: on the
    bands of a scene, or on seasonal medians when one map stands for many scenes. Of chips the cells of the map
    count that lie whole in the test places, and the baseline's class is that of most pixels of a cell. Values
    are compared with the mean of the training labels and with trees for regression. Intervals come from a bootstrap
    over squares of the test places, or over whole maps where scenes are split.
    """
    from eopipe.evaluation.evaluate import evaluate_maps
    from eopipe.evaluation.maps import EvaluationData
    from eopipe.publish import publish, write_json

    data = EvaluationData.read(classes, tiles, labels, chips)
    with publish(metrics) as draft:
        write_json(draft, evaluate_maps(data, baseline_pixels, seed))
