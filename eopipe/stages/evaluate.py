"""Scores of the map in the test areas, and scores of baselines."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Output

# 2: scores with confidence intervals, and of each quarter of the test areas. 3: calibration of the probabilities.
# 4: intervals by independent pieces instead of a bootstrap, gains over both baselines, scores of each test scene.
# 5: trees with texture and season as one more baseline; trees are the mean of three fits with seeds of their own.
# 6: classes that the map never has. 9: a chip at the border of a zone has the class of its mapped pixels.
# 10: hectares on the ground; pixels of each class on the map; extra trees and linear models as baselines, one chosen
# without the test places. 11: baselines are models of pixels as `train` fits them, also where pixels have no data.
# 12: groups are the pieces of intervals where they are split. 13: also regions, and where there are few.
REVISION = 13


def evaluate(
    classes: Annotated[
        tuple[Path, ...],
        Input(
            "maps of classes or values: one mosaic, or one per scene in the order of the tiles; where tiles have "
            "several cells, one of each cell in any order",
            format="image/tiff",
        ),
    ],
    tiles: Annotated[tuple[Path, ...], Input("tile stores that the baselines are trained on", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store for all scenes, or one per scene", folder=True)],
    metrics: Annotated[
        Path, Output("metrics.json", "scores of the map and of the baselines", format="application/json")
    ],
    *,
    chips: Annotated[
        Path | None, Input("split file: chips of the train, val and test splits", format="application/json")
    ] = None,
    tested_model: Annotated[
        Path | None, Input("finished model, in the place of a split file: all labels test its maps", folder=True)
    ] = None,
    probabilities: Annotated[
        tuple[Path, ...],
        Input("maps of probabilities in the order of the maps, for their calibration", format="image/tiff"),
    ] = (),
    member_maps: Annotated[
        tuple[Path, ...],
        Input("maps of an ensemble's members: all maps of the first member first", format="image/tiff", nested=True),
    ] = (),
) -> None:
    """Score the map against the labels in the test areas, beside the majority class and other baselines.

    The baselines are extra trees, boosted trees and logistic regression (scikit-learn), trained on the pixels of the
    training areas: each on the bands of a scene, or on seasonal medians for a mosaic, and once more also on their means
    and standard deviations over the valid pixels of 5 x 5. Boosted trees are the mean of three fits (probabilities of
    the classes, or values) with seeds of their own, on at most 100 features. The baseline of headline and gain is the
    one with the best mIoU in the validation places where these hold every class and at least 500 labelled pixels, else
    in folds of the training places that cut no block, shape, group or scene; no test place has a part in it. For a chip
    classifier, the cells of the map that are completely inside the test areas count, and a baseline's class is its
    majority in the cell. With several labels for each chip these cells have all classes with the model's `min_share`
    of their labelled pixels; scores are F1 (micro, macro and of each class), subset accuracy, Hamming loss and, with
    maps of probabilities, average precision; the baselines are the same shares of the classes of their pixels, and
    the classes that most training chips have. For regression the baselines are the mean of the training labels,
    regression trees and ridge regression, chosen by RMSE. Confidence intervals allow for the measured correlation of
    the errors; where fewer than six pieces of the test areas are independent, no interval is given.
    In the place of a split file a finished model may be given, whose maps have new labels: all mapped, labelled pixels
    test, no label trains anything, and there are no baselines (task segmentation only).
    Each fit of a baseline has at most 20,000 training pixels.
    Where scenes are split, the model is also scored on each test scene.
    With maps of probabilities, their calibration is measured: ECE, Brier score, log loss and a reliability curve.
    With the maps of an ensemble's members, each member has its scores in the test places (`members`), without
    baselines; average precision is not among them. Their maps may be of the test places alone.
    Raises BadInputError for another map of the places of one split, of predict --places, and for maps of members that
    do not belong to the map; UsageError where the members have other numbers of maps, or there is one member only.
    """
    from eopipe.evaluation.calibration import calibration_metrics
    from eopipe.evaluation.evaluate import evaluate_maps, maps_of_members, member_metrics
    from eopipe.evaluation.maps import EvaluationData
    from eopipe.inference.finished_maps import check_whole
    from eopipe.publish import publish
    from eopipe.text_files import write_json

    check_whole(classes)
    of_members = maps_of_members(member_maps, len(classes))
    # The map of the run, then the maps of each member.
    data, *runs = (EvaluationData.read(maps, tiles, labels, chips, tested_model) for maps in (classes, *of_members))
    members = member_metrics(data, runs)
    calibration = calibration_metrics(data, probabilities)
    with publish(metrics) as draft:
        write_json(draft, evaluate_maps(data, probabilities=probabilities) | calibration | members)
