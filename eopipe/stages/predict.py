"""Map of a scene, or of a mosaic of scenes."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output
from eopipe.ports import AllowCode, AnyModel, Device, Halo, Threads, Window

# 2: colour table of classes. 3: a digest of the scenes instead of their names where they are more than 256.
# 4: the last bits of normalised features. 5: where data end the nearest pixel is repeated, for models that learned so.
REVISION = 5

COG = "image/tiff; application=geotiff; profile=cloud-optimized"
PART = r"^[1-9]\d*-of-[1-9]\d*$"


def predict(
    model: AnyModel,
    tiles: Annotated[tuple[Path, ...], Input("tile stores; predictions are averaged over valid scenes", folder=True)],
    classes: Annotated[
        Path,
        Output(
            "classes.tif",
            "COG of class numbers, 255 where no scene is valid; for multilabel, one band per class (1 present, 0 "
            "absent); for regression, of values",
            format=COG,
        ),
    ],
    probabilities: Annotated[
        Path,
        Output(
            "probabilities.tif",
            "COG of class probabilities, one band per class, scale 1/10000; for regression, standard deviation among "
            "the scenes and their number; for an ensemble, also the spread of its members",
            format=COG,
        ),
    ],
    *,
    calibration: Annotated[
        Path | None,
        Input("calibration of the probabilities, as calibrate writes it for the same model", format="application/json"),
    ] = None,
    chips: Annotated[
        Path | None,
        Input("split file, of which the places of one split are mapped, with --places", format="application/json"),
    ] = None,
    finished_parts: Annotated[
        tuple[Path, ...],
        Input(
            "both files of parts of maps, from predict --part: what they have is not predicted again",
            format="image/tiff",
        ),
    ] = (),
    colors: Annotated[
        tuple[str, ...],
        Option(
            "colour of each class as #rrggbb, for the colour table of the class map; as in the report if not given",
            section="report",
            pattern=r"^#[0-9A-Fa-f]{6}$",
        ),
    ] = (),
    allow: Annotated[
        tuple[str, ...],
        Option(
            "accepted differences of the tiles from the training tiles, each as 'kind: reason', with a kind of "
            "pixel-size, unit, level",
            pattern=r"^(pixel-size|unit|level): *\S",
            advanced=True,
        ),
    ] = (),
    cell: Annotated[
        str | None,
        Option("cell to map, such as utm33n, where tiles have several; a workflow maps each one", of_job=True),
    ] = None,
    part: Annotated[
        str | None,
        Option("part of the map to make, such as 3-of-16: a run of its windows", pattern=PART, of_job=True),
    ] = None,
    places: Annotated[
        Literal["train", "val", "test"] | None,
        Option("places of the split file to map, in the place of everything", of_job=True),
    ] = None,
    halo: Halo = None,
    window: Window = 512,
    symmetries: Annotated[
        int,
        Option(
            "predictions of each window whose mean is the map: 1 (as it is), 2 (also flipped left to right), 4 (the "
            "rotations) or 8 (rotations and flips); costs as many times more",
            ge=1,
            le=8,
            advanced=True,
        ),
    ] = 1,
    device: Device = "auto",
    allow_code: AllowCode = None,
    threads: Threads = 0,
) -> None:
    """Predict a seamless map of classes and their probabilities, or of values, window by window.

    A chip classifier predicts one class, or with several labels all classes with a probability of at least 0.5, for
    each cell of its chip size. Windows of a model that takes images of one size, or has an infinite reach, overlap by
    half and are blended. Bands are selected by name. A calibration changes probabilities, not classes. Where the model
    is an ensemble, the last band of the second file is the spread of its members: the standard deviation among their
    probabilities of the mapped class (for multilabel the largest over the classes) or among their values, as each
    member alone maps them, uncalibrated. Each chip of a chip set is predicted by itself, and the map has its slots.
    With a part only its windows are predicted, and written to sparse GeoTIFFs, from which another job makes the map.
    With `chips` and `places`, only windows with chips of that split are predicted, with the values of the map of
    everything; the others are without data. Raises BadInputError when a scene lacks a band of the model, is on another
    grid, differs in pixel size, unit or processing level from the tiles of the training, or is not of the split file,
    or when the calibration is for another model or other symmetries, UsageError for colors that do not match the
    classes, another number of symmetries, and one of chips and places without the other or with parts, and
    DivergedError when the model's output is not finite.
    """
    from eopipe.chips.map_places import read_places
    from eopipe.errors import UsageError
    from eopipe.inference.map_files import read_parts, write_prediction
    from eopipe.inference.predictor import PredictorSettings, open_predictor
    from eopipe.inference.temperature import read_calibration
    from eopipe.models.input_check import check_tiles
    from eopipe.models.model_folder import model_id, read_trained_model
    from eopipe.reporting.figures import class_colors, rgb
    from eopipe.tiles.store import CHIP_SET, Tiles

    trained = read_trained_model(model, allow_code)
    stores = sorted((Tiles(path) for path in tiles), key=lambda store: store.scene)
    if len(stores) > 1 and CHIP_SET in stores[0].attributes:
        raise UsageError("stores of a chip set have other chips at the same positions: predict one at a time")
    places_of_map = read_places(chips, places, stores, in_parts=bool(part or finished_parts))
    check_tiles(trained.trained_on, stores, allow)
    fitted = read_calibration(calibration) if calibration else None
    if fitted:
        fitted.check(model_id(model), [store.scene for store in stores], symmetries)
    settings = PredictorSettings(window, halo, device, threads, symmetries, with_members=True)
    predictor = open_predictor(trained, model, stores, settings)
    frame = stores[0].frame
    if len(frame.cells) > 1 and not cell:
        raise UsageError(f"the tiles have several cells, so --cell is needed: {', '.join(c.id for c in frame.cells)}")
    table = {number: rgb(color) for number, color in enumerate(class_colors(trained.classes, colors))}
    write_prediction(
        predictor,
        trained,
        frame.cell(cell or ""),
        (classes, probabilities),
        fitted,
        table,
        model=model_id(model),
        part=part,
        parts=read_parts(finished_parts),
        places=places_of_map,
    )
