"""Combinations of settings that are wrong whatever the data are, by the checks of the stages themselves."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from eopipe.chips.audit import parse_allowed
from eopipe.chips.import_set import refuse_contradictions
from eopipe.chips.splits import SplitPlan
from eopipe.composites.periods import RANKING_BANDS, stack_conflict
from eopipe.contract import stage
from eopipe.errors import EopipeError
from eopipe.inference.images import check_symmetries
from eopipe.labels.kinds import legend_conflicts, option_conflicts, raster_conflicts
from eopipe.labels.vector_files import VECTORS, source_conflicts
from eopipe.labels.write import before_conflicts
from eopipe.models import MODELS_WITH_HEAD
from eopipe.models.model_files import module_of
from eopipe.scenes.item import asset_key
from eopipe.stac.choose_grid import UTM, check_crs
from eopipe.stac.query import area_geometry, parse_interval
from eopipe.tasks import TASKS
from eopipe.tiles.layout import Layout
from eopipe.train_options import PIXEL_MODELS
from eopipe.trial_settings import Settings, Trials, as_options, format_settings, member_settings, trial_settings

# Sentences about trials, of which hundreds may have the same mistake.
MAX_SENTENCES = 3


def conflicts(config: dict[str, Any], wrong_sections: Collection[str] = ()) -> list[str]:
    """A sentence for each combination of settings that is wrong whatever the data are."""
    return [
        sentence
        for function, sections in CONFLICTS.items()
        if not {*sections} & {*wrong_sections}
        and not (config["chip_set"] and function in OF_SCENES)
        and not (config["model"] and function in OF_TRAINING)
        and not (config["model"] and function is _label_conflicts and not has_settings("label", config["label"]))
        for sentence in function(*(config[name] for name in sections))
    ]


def has_settings(name: str, section: dict[str, Any]) -> bool:
    """Whether a section has any setting: of `label` beside a finished model, whether the map is tested."""
    return any(section[port.name] != port.default for port in stage(name).settings)


def refusal(call: Callable[[], object], setting: str = "") -> list[str]:
    """The sentence with which a stage's own check refuses a value, if it does; `setting` is the key it names."""
    try:
        call()
    except EopipeError as error:
        return [f"{setting}: {error}" if setting and setting not in str(error) else str(error)]
    return []


def _import_conflicts(section: dict[str, Any]) -> list[str]:
    return refusal_of_import(lambda: refuse_contradictions(section)) if has_settings("import", section) else []


def refusal_of_import(call: Callable[[], object]) -> list[str]:
    """The sentence with which the stage `import` refuses its options, by the settings of a config."""
    return [re.sub(r"--(?=[a-z])", "import.", sentence) for sentence in refusal(call)]


def _search_conflicts(search: dict[str, Any]) -> list[str]:
    errors = []
    if (search["catalog"] is None) == (search["url"] is None):
        errors.append("search needs exactly one of `catalog` (on disk) and `url`")
    if search["area"] is not None and search["bbox"]:
        errors.append("search has both `area` and `bbox`; remove one")
    errors += refusal(lambda: parse_interval(search["datetime"] or ""), "search.datetime")
    if search["bbox"]:
        errors += refusal(lambda: area_geometry(None, search["bbox"]), "search.bbox")
    if search["crs"] not in ("auto", UTM):
        errors += refusal(lambda: check_crs(search["crs"]), "search.crs")
    return errors


def _asset_conflicts(search: dict[str, Any], tiles: dict[str, Any], label: dict[str, Any]) -> list[str]:
    errors = []
    required = [*tiles["bands"], *([] if tiles["mask"] == "none" else [tiles["mask"]])]
    fetched = set(map(asset_key, search["assets"]))
    missing = [band for band in required if asset_key(band) not in fetched]
    if missing:
        errors.append(
            f"preprocess needs {', '.join(missing)}, which search.assets does not have; "
            f"it has {', '.join(search['assets'])}"
        )
    twice = sorted({band for band in tiles["bands"] if tiles["bands"].count(band) > 1})
    if twice:
        errors.append(f"preprocess.bands has {', '.join(twice)} twice; a band is one channel of the model")
    if label["asset"] and asset_key(label["asset"]) not in fetched:
        errors.append(f"label.asset {label['asset']} is not in search.assets; it has {', '.join(search['assets'])}")
    if label["asset"] and label["asset"] in tiles["bands"]:
        errors.append(
            f"label.asset {label['asset']} is also in preprocess.bands, so the labels would be an input of the model; "
            "remove it from preprocess.bands"
        )
    return errors


def _tile_conflicts(tiles: dict[str, Any]) -> list[str]:
    return refusal(lambda: Layout(tiles["chunk"], tiles["shard"]), "preprocess.shard")


def _composite_conflicts(composite: dict[str, Any], tiles: dict[str, Any], label: dict[str, Any]) -> list[str]:
    method = composite["method"]
    if method == "none":
        return []
    errors = [stack_conflict(composite["period"], composite["stack"], composite["parts"])]
    if label["asset"]:
        errors.append(
            f"composite.method {method} combines scenes, so label.asset {label['asset']} of each scene cannot be used; "
            "set label.source, or composite.method to none"
        )
    missing = [band for band in RANKING_BANDS.get(method, ()) if band not in tiles["bands"]]
    if missing:
        errors.append(f"composite.method {method} needs {', '.join(missing)} in preprocess.bands")
    return [sentence for sentence in errors if sentence]


def _label_conflicts(label: dict[str, Any]) -> list[str]:
    class_options = {key: label[key] for key in ("bins", "codes", "values")}
    source = Path(label["source"]) if label["source"] else None
    errors = option_conflicts(label["measure"], label["resampling"], class_options)
    errors += source_conflicts(source, label["dates"], label["before"])
    errors += before_conflicts(label["before"], source, label["measure"], tuple(label["classes"]))
    if (label["asset"] is None) == (label["source"] is None):
        errors.append("label needs exactly one of `source` (a file) and `asset` (of each scene)")
    if label["measure"]:
        return errors
    classes = label["classes"]
    if len(classes) < 2:
        names = f"one class, {classes[0]}" if classes else "no class"
        example = f"[other, {classes[0] if classes else 'forest'}]"
        errors.append(f"label.classes has {names}; at least two are needed, such as {example}")
    errors += legend_conflicts(classes, label["bins"], label["codes"], label["ignore"], label["values"])
    if source is None or source.suffix.lower() not in VECTORS:
        errors += raster_conflicts(classes, label["ignore"], is_explicit=any(class_options.values()))
    return errors


def _split_conflicts(split: dict[str, Any]) -> list[str]:
    if mistakes := refusal(lambda: plan_of(split), "split"):
        return mistakes
    if not split["fractions"][0] > 0:
        return ["split.fractions gives no chips to train; its first number must be more than 0"]
    if split["method"] == "group" and split["by"] == "region" and not split["regions"]:
        return ["split.by region needs split.regions: a file of named polygons"]
    errors = refusal(lambda: parse_allowed(split["allow"]), "split.allow")
    return errors + [text for day in split["dates"] for text in refusal(partial(parse_interval, day), "split.dates")]


def _fold_conflicts(folds: int, split: dict[str, Any]) -> list[str]:
    """What is wrong with a cross-validation beside the model, where the model's own split is right."""
    if not folds or _split_conflicts(split):
        return []
    return refusal(lambda: plan_of(split | {"folds": folds, "fold": 0}), "folds")


def _trial_conflicts(
    trials: dict[str, Any], folds: int, train: dict[str, Any], split: dict[str, Any], label: dict[str, Any]
) -> list[str]:
    """What is wrong with the trials, and with the training of each, where the training of the run is right."""
    if not trials["space"]:
        return [] if Trials(**trials) == Trials() else ["trials has settings without a space; add trials.space"]
    if mistakes := refusal(lambda: trial_settings({"trials": trials, "train": train})):
        return mistakes
    errors = [
        "trials choose a training, and folds measure one: remove folds, and set the chosen one in a run of its own"
    ]
    settings = trial_settings({"trials": trials, "train": train}).values()
    return (errors if folds else []) + _conflicts_of_each("trial", settings, train, split, label)


def _conflicts_of_each(
    kind: str, trainings: Iterable[Settings], train: dict[str, Any], split: dict[str, Any], label: dict[str, Any]
) -> list[str]:
    """What is wrong with each of several trainings, where the training of the run is right."""
    errors, of_run = list[str](), _training_conflicts(train, split, label)
    for settings in trainings:
        training = train | {"model_files": ()} | as_options(settings)
        if module_of(training["architecture"]) and training["architecture"] != train["architecture"]:
            errors.append(
                f"a {kind} has the architecture {training['architecture']}, whose code may run only where "
                "train.architecture is that class; set it there"
            )
        sentences = [sentence for sentence in _training_conflicts(training, split, label) if sentence not in of_run]
        errors += [f"the {kind} with {format_settings(settings)}: {sentence}" for sentence in sentences]
    errors = list(dict.fromkeys(errors))
    more = [f"and {len(errors) - MAX_SENTENCES} more mistakes of {kind}s"] if len(errors) > MAX_SENTENCES else []
    return errors[:MAX_SENTENCES] + more


def _member_conflicts(
    members: int | list[Settings],
    trials: dict[str, Any],
    folds: int,
    train: dict[str, Any],
    split: dict[str, Any],
    label: dict[str, Any],
) -> list[str]:
    if mistakes := refusal(lambda: member_settings(members, train["seed"])):
        return mistakes
    settings = member_settings(members, train["seed"]).values()
    others = [name for name, is_set in (("trials", trials["space"]), ("folds", folds)) if is_set]
    if not settings or not others:
        return _conflicts_of_each("member", settings, train, split, label)
    return [
        f"members and {' and '.join(others)} exclude each other; remove one, and have the other in a run of its own"
    ]


def _training_conflicts(train: dict[str, Any], split: dict[str, Any], label: dict[str, Any]) -> list[str]:
    return _train_conflicts(train, label) + _chip_conflicts(split, train, label) + _crop_conflicts(split, train)


def plan_of(split: dict[str, Any]) -> SplitPlan:
    """The plan of a split with these settings. Raises UsageError where they do not fit together."""
    values = split | {"stride": split["stride"] or split["chip"]}
    return SplitPlan(**{field.name: values[field.name] for field in fields(SplitPlan)})


def _chip_conflicts(split: dict[str, Any], train: dict[str, Any], label: dict[str, Any]) -> list[str]:
    if split["chip"] % 2 ** train["depth"]:
        return [f"split.chip {split['chip']} cannot be halved {train['depth']} times (train.depth)"]
    if TASKS[train["task"]].is_of_chips and split["by"] == "polygon":
        return [f"split.by polygon masks pixels of chips, so it cannot be used with train.task {train['task']}"]
    has_shapes = str(label["source"]).lower().endswith(VECTORS) and not label["measure"]
    if split["by"] == "polygon" and (label["source"] or label["asset"]) and not has_shapes:
        return ["split.by polygon needs shapes: set label.source to a vector file with several shapes of each class"]
    return []


def _crop_conflicts(split: dict[str, Any], train: dict[str, Any]) -> list[str]:
    """Conflicts of chips cut from scenes; the chips of a chip set have their own size."""
    step = 2 ** train["depth"] if train["architecture"] in MODELS_WITH_HEAD else 1
    if train["crop"] and (train["crop"] > split["chip"] or train["crop"] % step):
        return [f"train.crop is {train['crop']}; choose a multiple of {step} up to {split['chip']}, the split.chip"]
    return []


def _train_conflicts(train: dict[str, Any], label: dict[str, Any]) -> list[str]:
    from eopipe.training_job import Settings

    errors = Settings.of(train).conflicts()
    if train["head_learning_rate"] and not train["init"]:
        errors.append(
            "train.head_learning_rate is for the new head of a training from train.init with other classes, and "
            "train.init is not set; remove it"
        )
    if train["init"] and train["architecture"] in PIXEL_MODELS:
        errors.append(f"train.init has weights to start from, and {train['architecture']} is fitted; remove it")
    if train["model_files"] and not module_of(train["architecture"]):
        errors.append(
            f"train.model_files is for the code of a custom model, and {train['architecture']} is built in; remove it"
        )
    conflict = TASKS[train["task"]].label_conflict("label", label["measure"] or "")
    return [*errors, conflict] if conflict else errors


def _color_conflicts(report: dict[str, Any], label: dict[str, Any]) -> list[str]:
    colors, classes, measure = report["colors"], label["classes"], label["measure"]
    if measure and colors:
        return ["report.colors are for classes, but label.measure gives continuous labels; remove report.colors"]
    count = len(classes) ** 2 if label["before"] else len(classes)
    if colors and len(colors) != count:
        return [f"report.colors has {len(colors)} colours for {count} classes"]
    return []


# Each function with the sections that it compares.
CONFLICTS: dict[Callable[..., list[str]], tuple[str, ...]] = {
    _import_conflicts: ("import",),
    _search_conflicts: ("search",),
    _asset_conflicts: ("search", "preprocess", "label"),
    _tile_conflicts: ("preprocess",),
    _composite_conflicts: ("composite", "preprocess", "label"),
    _label_conflicts: ("label",),
    _split_conflicts: ("split",),
    _fold_conflicts: ("folds", "split"),
    _member_conflicts: ("members", "trials", "folds", "train", "split", "label"),
    _trial_conflicts: ("trials", "folds", "train", "split", "label"),
    _chip_conflicts: ("split", "train", "label"),
    _crop_conflicts: ("split", "train"),
    _train_conflicts: ("train", "label"),
    _color_conflicts: ("report", "label"),
    lambda predict: refusal(lambda: check_symmetries(predict["symmetries"]), "predict.symmetries"): ("predict",),
}
# A chip set has images, labels and classes of its own.
OF_SCENES = {
    *(_search_conflicts, _asset_conflicts, _tile_conflicts, _composite_conflicts, _label_conflicts),
    _color_conflicts,
    _crop_conflicts,
}
# A finished model has classes and chips of its own.
OF_TRAINING = {
    *(_split_conflicts, _fold_conflicts, _trial_conflicts, _member_conflicts, _chip_conflicts, _crop_conflicts),
    *(_train_conflicts, _color_conflicts),
}
