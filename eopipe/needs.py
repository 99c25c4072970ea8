"""What stages need that is known before they run: `NEEDS`, beside the function of a stage, names the functions here.

Where a config is loaded they ask about settings; `check` and `plan` also about files, chips and scenes, where known.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from importlib import import_module
from typing import Any, NamedTuple

from eopipe.chips.block_choice import describe_missing_validation, wants_validation
from eopipe.config_conflicts import has_settings, plan_of, refusal
from eopipe.contract import STAGES, stage
from eopipe.evaluation.metrics_document import MIN_PIECES
from eopipe.stac.query import parse_interval
from eopipe.tasks import TASKS
from eopipe.tiles.cells import Frame
from eopipe.train_options import PIXEL_MODELS
from eopipe.trial_settings import training_settings

Config = dict[str, Any]
# Of AdamW and of lengths: beyond these limits a digit is likely wrong.
RATE = 1e-6, 0.1
PLAUSIBLE = {"learning_rate": RATE, "head_learning_rate": RATE, "steps": (1, 100_000), "epochs": (1, 1_000)}


class Known(NamedTuple):
    """The number of places of each split, the days of the scenes, and their frame; empty where not known."""

    places: Mapping[str, int]
    days: tuple[date, ...]
    frame: Frame | None


class Stop(str):
    """A sentence about what will certainly stop the run; other sentences are warnings."""


def unmet(config: Config, known: Known | None = None) -> tuple[list[str], list[str]]:
    """What will stop the run, and warnings, by the needs of all stages; by its settings alone without `known`."""
    names = (need for name in STAGES for need in getattr(import_module(stage(name).function.__module__), "NEEDS", ()))
    rows = [*dict.fromkeys(text for need in dict.fromkeys(names) for text in globals()[need](config, known))]
    return [text for text in rows if isinstance(text, Stop)], [text for text in rows if not isinstance(text, Stop)]


def validation_places(config: Config, known: Known | None) -> Iterator[str]:
    """Validation places, where trials are compared or a training may stop early."""
    plan, places = plan_of(config["split"]), known.places if known else {}
    if config["model"] or (wants_validation(plan) and (not places or places["val"])):
        return
    reason = describe_missing_validation(known.frame.shape if known and known.frame else None, plan)
    if config["trials"]["space"]:
        yield Stop(f"trials are compared on validation places, and there are none: {reason}")
    if config["train"]["patience"]:
        yield f"train.patience ends a training by its validation places, and there are none: {reason}"


def score_of_task(config: Config, _: Known | None) -> Iterator[str]:
    """A score of the task, where trials are ranked."""
    task, score = config["train"]["task"], config["choose"]["score"]
    if config["trials"]["space"] and score and score not in (scores := TASKS[task].ranking_scores()):
        yield Stop(f"choose.score is {score}, which task {task} does not have; choose by {', '.join(scores)}")


def places_of_calibration(config: Config, known: Known | None) -> Iterator[str]:
    """Enough validation places to calibrate."""
    places = known.places.get("val", 0) if known else 0
    if 0 < places < MIN_PIECES and TASKS[config["train"]["task"]].has_classes:
        chips = f"the val split has {places} {'chip' if places == 1 else 'chips'}: below {MIN_PIECES} independent"
        yield f"{chips} pieces calibrate applies no temperature; give validation more places"


def plausible_training(config: Config, _: Known | None) -> Iterator[str]:
    """A learning rate and a length at which a model trains."""
    trainings = [config["train"], *(config["train"] | settings for settings in training_settings(config).values())]
    for train in (train for train in trainings if train["architecture"] not in PIXEL_MODELS):
        for name, (low, high) in PLAUSIBLE.items():
            if train[name] and not low <= train[name] <= high:
                yield f"train.{name} is {train[name]:g}, and hardly any model trains beyond {low:g} to {high:g}"


def different_members(config: Config, _: Known | None) -> Iterator[str]:
    """Two members that differ."""
    if config["members"] == 1:
        yield "members: 1 is a single training and no ensemble; write how many, at least 2, or remove the line"
    if len(trainings := [str(config["train"] | of) for of in training_settings(config).values()]) > len({*trainings}):
        yield Stop("members has the same training twice, and choose refuses equal weights; give each another seed")


def dates_of_labels(config: Config, known: Known | None) -> Iterator[str]:
    """Labels of the dates of the scenes, and images of two dates for a change."""
    label, composite = config["label"], config["composite"]
    if label["before"] and "none" in (composite["method"], composite["stack"]):
        yield (
            "label.before gives the change between two dates, and an image has one, unless the bands of an item are of "
            'both; composite: {method: median, period: all, stack: year, parts: ["2017", "2021"]} makes them one image'
        )
    if known and label["dates"]:
        intervals = label["dates"].rpartition("=")[2].strip(), config["search"]["datetime"] or ""
        (first, last), (begin, end) = ([moment.date() for moment in parse_interval(text)] for text in intervals)
        # For unknown scenes, the day that is nearest to the first day of the labels.
        days = known.days or (min(max(begin, first), end),)
        if not any(first <= day <= last for day in days):
            yield f"label.dates {label['dates']} has no day of the scenes ({days[0]} to {days[-1]}); change one of them"


def products_of_maps(config: Config, known: Known | None) -> Iterator[str]:
    """Products switched on, and zones with names in the area of the maps."""
    products, is_on = config["products"], config["with_products"]
    has_values = config["label"]["measure"] or TASKS[config["train"]["task"]].has_label_sets
    if has_settings("products", products) and not is_on:
        yield "the section products has no effect without with_products: true; add that, or remove the section"
    if is_on and has_values and not (products["zones"] or config["model"]):
        yield Stop("products of values or several labels are of zones; set products.zones, a vector file of polygons")
    if known and is_on and products["zones"] and products["zones"].exists():
        from eopipe.reporting.products import ZoneFile, read_zones

        zones = ZoneFile(products["zones"], products["zone_name"], products["zone_layer"])
        for text in refusal(lambda: read_zones(zones, known.frame)):
            yield Stop(f"products.zones, with zone_name {zones.attribute}: {text}")


def labelled_sample(config: Config, known: Known | None) -> Iterator[str]:
    """A probability sample with labels, of a map of scenes."""
    evaluate = config["evaluate"]
    if evaluate["sample"] and config["chip_set"]:
        yield Stop("evaluate.sample is of a map of scenes, and the slots of chip_set are no places; remove it")
    elif known and evaluate["sample"] and all(path.is_file() for path in evaluate["sample"]):
        from eopipe.areas.labelled import LabelledSample

        of_sample = evaluate["sample"], evaluate["sample_design"], evaluate["label_column"]
        for text in refusal(lambda: LabelledSample.read(*of_sample)):
            yield Stop(f"evaluate.sample: {text}")


def known_figures(config: Config, _: Known | None) -> Iterator[str]:
    """Figures that a map has, where some are required of it."""
    from eopipe.evaluation.requirements import OF_AREAS, parse_requirements

    evaluate, requirements = config["evaluate"], list[Any]()
    for text in refusal(lambda: requirements.extend(parse_requirements(evaluate["require"]))):
        yield Stop(text)
    if not evaluate["sample"] and (of_areas := [row.figure for row in requirements if row.figure in OF_AREAS]):
        yield Stop(f"evaluate.require has {of_areas[0]}, which needs evaluate.sample, a labelled sample of the map")
