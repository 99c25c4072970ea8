"""What a finished model asks of the run that maps with it, as far as the settings say, before anything is fetched."""

from pathlib import Path
from typing import Any

from eopipe.config_conflicts import has_settings
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.temperature import read_calibration
from eopipe.models.input_check import TOLERANCE, TileProperties
from eopipe.models.model_files import is_permitted
from eopipe.models.model_folder import CARD, TrainedModel, model_id, read_trained_model
from eopipe.publish import MANIFEST
from eopipe.reporting.figures import class_colors
from eopipe.tasks import SEGMENTATION
from eopipe.tiles.cells import Frame
from eopipe.tiles.ground import pixel_metres

# The resolution of a grid in degrees is below it, in metres above it.
SMALLEST_METRES = 0.1
DECIBEL = "dB"


def finished_model_mistakes(config: dict[str, Any]) -> list[str]:
    """Why the images of a run would not be those that its finished model takes, as far as the settings say.

    The model and its files are among them: a folder without a model, a calibration of another.
    """
    folder, calibration = Path(config["model"]), config["calibration"]
    if not (folder / CARD).is_file() or not (folder / MANIFEST).is_file():
        return [f"model: {folder} is not the folder of a model; give one that train, or `eopipe init --from`, wrote"]
    try:
        trained = read_trained_model(folder, config["allow_code"])
        if not is_permitted(trained.architecture.name, [config["allow_code"]]):
            name = trained.architecture.name
            return [f"the model names code to run, {name}; read it, and if you trust it set allow_code: {name}"]
        class_colors(trained.classes, config["report"]["colors"])
        fitted = read_calibration(Path(calibration)) if calibration else None
    except (BadInputError, UsageError) as error:
        return [f"model: {error}"]
    sentences = [*_band_mistakes(trained.bands, config), *_pixel_mistakes(trained.trained_on, config)]
    sentences += _label_mistakes(trained, config["label"])
    if fitted and fitted.model != model_id(folder):
        sentences.append(f"calibration {calibration} is of model {fitted.model}, not of {model_id(folder)}")
    if fitted and fitted.symmetries != (symmetries := config["predict"]["symmetries"]):
        sentences.append(
            f"calibration {calibration} is for predict.symmetries {fitted.symmetries}, but the config has {symmetries}"
        )
    return sentences


def _band_mistakes(needed: tuple[str, ...], config: dict[str, Any]) -> list[str]:
    """The bands of a model that the images will not have; which parts a stack has may depend on the scenes."""
    names, composite = config["preprocess"]["bands"], config["composite"]
    if composite["method"] == "none" or composite["stack"] == "none":
        missing = [band for band in needed if band not in names]
    else:
        pairs = [(band, *band.rpartition("_")[::2]) for band in needed]
        parts = composite["parts"]
        missing = [band for band, name, part in pairs if name not in names or (parts and part not in parts)]
    if not missing:
        return []
    stacked = f", stacked by {composite['stack']} {' '.join(composite['parts'])}".rstrip()
    return [
        f"the model needs the bands {', '.join(missing)}, which the images will not have: preprocess.bands is "
        f"{', '.join(names)}{stacked if composite['stack'] != 'none' else ''}"
    ]


def needed_parts(config: dict[str, Any]) -> tuple[str, ...]:
    """The parts that a composite must have, from the config, or else from the bands of its finished model."""
    composite = config["composite"]
    if "none" in (composite["method"], composite["stack"]):
        return ()
    if composite["parts"]:
        return tuple(composite["parts"])
    bands = read_trained_model(Path(config["model"]), config["allow_code"]).bands
    return tuple(dict.fromkeys(band.rpartition("_")[2] for band in bands))


def _label_mistakes(trained: TrainedModel, label: dict[str, Any]) -> list[str]:
    """Why labels cannot test the map of a model; nothing without labels."""
    if not has_settings("label", label):
        return []
    names, classes = ", ".join(label["classes"]), ", ".join(trained.classes)
    is_other = trained.task != SEGMENTATION.name
    if is_other or label["before"]:
        kind = f"the model is of task {trained.task}" if is_other else "label.before is set"
        return [
            f"labels test only maps of the task {SEGMENTATION.name}, without label.before, and {kind}; remove label"
        ]
    if label["measure"]:
        return [f"label.measure gives values of {label['measure']}, but the model maps {classes}"]
    if tuple(label["classes"]) != trained.classes:
        return [
            f"label.classes has {names or 'no class'}, but the model maps {classes}; "
            "give the labels the classes of the model, in its order"
        ]
    return []


def check_grid(config: dict[str, Any], frame: Frame) -> None:
    """Raise BadInputError for a grid whose pixels have another size than in a finished model's training."""
    trained_on = read_trained_model(Path(config["model"]), config["allow_code"]).trained_on
    width, height = pixel_metres(frame.cells[0].grid)
    if sentence := _size_mistake(trained_on, (width * height) ** 0.5, config, "the pixels of the grid are"):
        raise BadInputError(f"{sentence}; set search.resolution")


def _size_mistake(trained_on: TileProperties | None, metres: float, config: dict[str, Any], subject: str) -> str | None:
    """A sentence about pixels of another size than in the training, unless the config allows that."""
    is_allowed = any(entry.startswith("pixel-size:") for entry in config["predict"]["allow"])
    if not trained_on or is_allowed or 1 / TOLERANCE <= metres / trained_on.pixel_size <= TOLERANCE:
        return None
    return f"{subject} {metres:.4g} m, but the model was trained on pixels of {trained_on.pixel_size:g} m"


def _pixel_mistakes(trained_on: TileProperties | None, config: dict[str, Any]) -> list[str]:
    """Settings that give pixels of another size or unit than in the training, which nothing allows."""
    resolution, is_decibel = config["search"]["resolution"], config["preprocess"]["decibel"]
    allowed = {entry.partition(":")[0] for entry in config["predict"]["allow"]}
    if trained_on is None:
        return []
    sentences = list[str]()
    # For a resolution in degrees the grid says the metres.
    if resolution is not None and resolution > SMALLEST_METRES:
        sentences += filter(None, [_size_mistake(trained_on, resolution, config, "search.resolution is")])
    if is_decibel and "unit" not in allowed and DECIBEL not in trained_on.units:
        units = " or ".join(trained_on.units)
        sentences.append(f"preprocess.decibel gives dB, but the model was trained on {units}; remove it")
    return sentences
