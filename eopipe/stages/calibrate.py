"""Temperature of the probabilities of maps, from the validation places."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output
from eopipe.ports import AllowCode, AnyModel

# 2: where data end the nearest pixel is repeated, as in predict. 3: what independent pieces prove is applied.
# 4: groups are pieces where they are split. 5: also regions, and where there are few.
REVISION = 5
NEEDS = ("places_of_calibration",)


def calibrate(
    model: AnyModel,
    tiles: Annotated[tuple[Path, ...], Input("tile stores of all scenes", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store for all scenes, or one per scene", folder=True)],
    chips: Annotated[Path, Input("split file: chips of the train, val and test splits", format="application/json")],
    calibration: Annotated[
        Path,
        Output(
            "calibration.json",
            "temperature, and calibration in the validation places before and after it",
            format="application/json",
        ),
    ],
    *,
    halo: Annotated[
        int | None, Option("pixels read around each window, as in predict", section="predict", ge=0, advanced=True)
    ] = None,
    window: Annotated[
        int, Option("edge of a window in pixels, as in predict", section="predict", ge=64, advanced=True)
    ] = 512,
    symmetries: Annotated[
        int,
        Option(
            "predictions of each window whose mean is the map: 1, 2, 4 or 8, as in predict",
            section="predict",
            ge=1,
            le=8,
            advanced=True,
        ),
    ] = 1,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], Knob("device to compute on, as in predict", section="predict")
    ] = "auto",
    allow_code: AllowCode = None,
    threads: Annotated[int, Knob("windows that are predicted at a time, as in predict", section="predict", ge=0)] = 0,
) -> None:
    """Fit one temperature for the probabilities of a map on its validation places (temperature scaling).

    The map is a mosaic of all scenes; where scenes are split, labels differ from scene to scene, or of a chip set, each
    image has a map, and the temperature is fitted for all of them. `predict --calibration` applies it: confidences then
    agree with accuracies, and no class changes. With several labels for each chip it divides the logit of each class,
    so no label changes. Applied is the value nearest to 1 in the 95 % interval of the fitted temperature, over the
    pieces of the confidence intervals. It is 1, with the reason, for a regression, below six independent pieces, and
    where fewer than 50 pixels or chips of the validation places are labelled and valid.
    """
    from dataclasses import replace

    from eopipe.chips.chips import pair_stores
    from eopipe.chips.make_split import check_scenes
    from eopipe.chips.map_places import SplitArea
    from eopipe.chips.splits import read_split
    from eopipe.errors import BadInputError
    from eopipe.evaluation.correlation import choose_units
    from eopipe.evaluation.fit_calibration import calibration_document, validation_samples
    from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
    from eopipe.inference.predictor import PredictorSettings, WindowPredictor, open_predictor
    from eopipe.models.model_folder import model_id, read_trained_model
    from eopipe.publish import publish
    from eopipe.tasks import TASKS
    from eopipe.text_files import write_json

    trained, pairs, split = read_trained_model(model, allow_code), pair_stores(tiles, labels), read_split(chips)
    check_scenes(split, pairs)
    stores, labels_of_images = [image for image, _ in pairs], [label for _, label in pairs]
    label_store, task = labels_of_images[0], TASKS[trained.task]
    is_mosaic = split.is_mosaic and len({label.path for label in labels_of_images}) == 1
    groups = [
        EvaluatedMap(number, {}, [image for image, _ in group], group[0][1])
        for number, group in enumerate([pairs] if is_mosaic else [[pair] for pair in pairs])
    ]
    units = choose_units(EvaluationData(groups, label_store.names, split, task), "val")
    maps: list[tuple[WindowPredictor, SplitArea]] = []
    if not task.not_calibrated:
        if label_store.names != trained.classes or split.chip != trained.chip:
            raise BadInputError(
                f"labels of {', '.join(label_store.names)} in chips of {split.chip} pixels do not fit the model, "
                f"which has {', '.join(trained.classes)} in chips of {trained.chip}; use the training labels and chips"
            )
        settings = PredictorSettings(window, halo, device, threads, symmetries)
        predictor = open_predictor(trained, model, stores, settings)
        maps = [
            (replace(predictor, stores=of_map.stores), SplitArea.of("val", split, of_map.label, number))
            for of_map, number in zip(groups, [None] if is_mosaic else range(len(groups)), strict=True)
        ]
    samples = validation_samples(maps, trained, units)
    with publish(calibration) as draft:
        scenes = [store.scene for store in stores]
        content = calibration_document(
            samples, trained, model_id(model), scenes, is_mosaic=is_mosaic, symmetries=symmetries
        )
        write_json(draft, content)
