"""`eopipe check`: every mistake of a config that can be found without the images, all in one list."""

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from eopipe.chips.assign import assign_splits
from eopipe.chips.block_choice import describe_empty_split, empty_splits, plan_warnings
from eopipe.chips.chip_places import ChipPlaces, read_index
from eopipe.chips.chip_set import INDEX
from eopipe.chips.chip_table import ChipTable
from eopipe.chips.import_set import files_of_import
from eopipe.chips.splits import SPLITS, chip_corners
from eopipe.composites.periods import part_of, period_of
from eopipe.config import URL_AS_PATH, validate
from eopipe.config_conflicts import has_settings, plan_of, refusal, refusal_of_import
from eopipe.contract import STAGES, stage
from eopipe.contract import is_path as is_path_port
from eopipe.errors import BadInputError, EopipeError, ModelCodeError, UsageError
from eopipe.labels.sources import label_warnings
from eopipe.labels.write import check_label_file
from eopipe.models import Architecture
from eopipe.models.model_files import module_of
from eopipe.needs import Known, unmet
from eopipe.planning.chip_forecast import split_arguments
from eopipe.planning.frozen_scenes import Config, FrozenScenes, changed_options, find_scenes, is_up_to_date
from eopipe.ports import ConfigFile
from eopipe.provenance.record import record_path
from eopipe.run.finished_model import SMALLEST_METRES, check_grid, finished_model_mistakes
from eopipe.run.images import missing_parts
from eopipe.run.locate import chip_stores, imports_chips, in_project
from eopipe.stac.choose_grid import UTM, choose_grid
from eopipe.stac.query import area_geometry, parse_interval
from eopipe.text_files import read_config, read_json
from eopipe.text_table import shell_word
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.store import Tiles
from eopipe.training.model_checks import check_init_folder
from eopipe.trial_settings import configs_of_trainings

# Vector data sets that are folders.
FOLDERS = (".gdb",)
# Positions of chips that are counted; larger grids have enough blocks.
MAX_POSITIONS = 4_000_000
# Edge of a pixel in metres at which labels are compared with an area whose grid is not known.
PIXEL = 10.0
# The sections that a model depends on.
OF_MODEL = {"search", "preprocess", "composite", "label", "train", "trials", "predict", "report"}
# Any year of days has each season and month.
DAYS_OF_A_STACK = 366
# PyTorch's errors of an operation that needs values, on a tensor without: "meta tensor", "'Meta' backend".
OF_META_DEVICE = re.compile(r"\bmeta\b", re.IGNORECASE)


def check_command(config: ConfigFile = None) -> None:
    """Find every mistake of a config that needs no images: settings, dates, files, labels, model, scenes, blocks."""
    # Stages that take part log what they read.
    logging.getLogger("eopipe").setLevel(logging.ERROR)
    with in_project(config) as path:
        for sentence in warnings_of(check_file(path)):
            print(f"warning: {sentence}")
    print(f"{config or path} is valid")


def check_file(path: Path) -> Config:
    """The config in a file, with defaults.

    Raises UsageError that lists every mistake, or BadInputError where all settings are right, and files or scenes are
    missing.
    """
    config, settings, wrong_sections = validate(read_config(path))
    raise_mistakes(*file_mistakes(config, wrong_sections, settings), f"{path}: ")
    return config


def file_mistakes(
    config: Config, wrong_sections: set[str], settings: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The mistakes of settings, of which some are known, and of files and scenes, as far as no other hides them."""
    settings, inputs = [*settings], [*missing_files(config, wrong_sections)]
    if not imports_chips(config):
        inputs += refusal(lambda: chip_stores(config))
    elif not inputs:
        inputs += refusal_of_import(lambda: files_of_import(config["import"]))
    if not wrong_sections & OF_MODEL:
        settings += model_mistakes(config)
    if not settings and not inputs and not config["chip_set"]:
        inputs = scene_mistakes(config)
    if not settings and not inputs:
        settings = refusal(lambda: split_of_chip_set(config), "split") or unmet(config, known_of(config))[0]
    return settings, inputs


def raise_mistakes(settings: Sequence[str], inputs: Sequence[str], start: str = "") -> None:
    """Raise UsageError for mistakes of settings, BadInputError for mistakes of files and scenes alone."""
    mistakes = [*settings, *inputs]
    if mistakes:
        text = mistakes[0] if len(mistakes) == 1 else f"{len(mistakes)} mistakes\n  " + "\n  ".join(mistakes)
        raise UsageError(start + text) if settings else BadInputError(start + text)


def missing_files(config: Config, wrong_sections: set[str]) -> Iterator[str]:
    """A sentence for each file or folder of the user that is missing, of the wrong kind, or cannot be read."""
    for name in STAGES:
        ports = [] if name in wrong_sections else [port for port in stage(name).settings if is_path_port(port)]
        for port in ports:
            value, is_folder = config[name][port.name], getattr(port.mark, "folder", False)
            for path in value if port.is_list else [] if value is None else [value]:
                kind = "file or folder" if getattr(port.mark, "mixed", False) else "folder" if is_folder else "file"
                yield from _missing(f"{name}.{port.name}", Path(path), kind)
    area, search = config["search"]["area"], "search" not in wrong_sections
    if search and area is not None and Path(area).is_file():
        yield from refusal(lambda: area_geometry(Path(area), ()), "search.area")
    init = config["train"]["init"]
    if "train" not in wrong_sections and init is not None and Path(init).is_dir():
        yield from refusal(lambda: check_init_folder(Path(init)), "train.init")


def _missing(setting: str, path: Path, kind: str) -> Iterator[str]:
    if URL_AS_PATH.match(str(path)):
        # A mistake of the setting, which is listed already.
        return
    if not path.exists():
        cure = "put the labels there, or name another file" if setting == "label.source" else "correct the path"
        yield f"{setting} {path} is missing: there is no such {kind}; {cure}"
    elif kind == "folder" and not path.is_dir():
        yield f"{setting} {path} is a file; give the folder that contains it"
    elif kind == "file" and path.is_dir() and path.suffix not in FOLDERS:
        yield f"{setting} {path} is a folder; give one file in it"
    elif not os.access(path, os.R_OK):
        yield f"{setting} {path} cannot be read: permission denied"


def model_mistakes(config: Config) -> list[str]:
    """Why the model cannot be imported or built, or does not take a chip, for which no memory is taken.

    For a finished model, what does not fit it.
    """
    if config["model"]:
        return finished_model_mistakes(config)
    if not all(Path(path).is_file() for path in config["train"]["model_files"]) or unpacked(config):
        # Listed among the missing files; what an import packs has its size and bands then.
        return []
    depth, slot = config["train"]["depth"], read_index(Path(config["chip_set"]))["slot"] if config["chip_set"] else 0
    if slot % 2**depth:
        return [f"the chips are in slots of {slot} pixels, which cannot be halved {depth} times (train.depth)"]
    sentences = [s for c in configs_of_trainings(config).values() for s in refusal(partial(model_warnings, c))]
    return [s if "train." in s else f"train.architecture: {s}" for s in dict.fromkeys(sentences)]


def model_warnings(config: Config) -> list[str]:
    """Warnings about the output of a model. Raises UsageError where it cannot be built or does not take a chip."""
    train, label = config["train"], config["label"]
    if config["chip_set"]:
        index = read_index(Path(config["chip_set"]))
        bands, classes, chip = index["bands"], len(index["classes"]), index["slot"]
    else:
        bands, chip = image_bands(config), config["split"]["chip"]
        classes = 1 if label["measure"] else len(label["classes"]) ** (2 if label["before"] else 1)
    architecture = Architecture.of(train, bands or config["preprocess"]["bands"], classes)
    # Without the bands of its images a model is only built.
    warnings = try_without_memory(architecture, train, chip if bands else 0)
    if bands or not module_of(architecture.name):
        return warnings
    stack = config["composite"]["stack"]
    return [
        f"model {architecture.name} was built, but not tried on a chip, since the number of bands follows from the "
        f"dates (composite.stack: {stack}) and composite.parts does not list them; train tries it before its first step"
    ]


def image_bands(config: Config) -> tuple[str, ...]:
    """The bands of the images that a model takes; none where they follow from scenes that only a server knows."""
    bands, composite, stack = config["preprocess"]["bands"], config["composite"], config["composite"]["stack"]
    if "none" in (composite["method"], stack):
        return tuple(bands)
    parts = dict.fromkeys(composite["parts"])
    try:
        if not parts and (scenes := known_scenes(config)):
            by_period: dict[str, dict[str, None]] = {}
            for day in scenes.days:
                by_period.setdefault(period_of(day, composite["period"], stack).name, {})[part_of(day, stack)] = None
            first, *others = by_period.values()
            parts = first if all(other == first for other in others) else {}
    except (EopipeError, OSError):
        # A mistake of search, which is listed for itself.
        return ()
    return tuple(f"{band}_{part}" for part in parts for band in bands)


def unpacked(config: Config) -> str:
    """Why the run will have other chips than its chip set has now; empty where it will not, and for scenes."""
    folder, changed = Path(config["chip_set"] or ""), list[str]()
    is_there = (folder / INDEX).is_file()
    if (record := record_path(folder)).is_file() and is_there and imports_chips(config):
        changed = changed_options(read_json(record), "import", config["import"])
    if not config["chip_set"] or (is_there and not changed):
        return ""
    reason = f"is packed again by the run, for {' and '.join(changed)} changed" if changed else "is not packed yet"
    return f"{folder} {reason}, so its split is unchecked; `eopipe run {shell_word(record)}` packs it alone"


def known_of(config: Config) -> Known:
    """What is known of the run of a valid config without a server."""
    scenes = known_scenes(config) if config["label"]["dates"] or config["with_products"] else None
    return Known(split_of_chip_set(config)[0], *((scenes.days, scenes.frame) if scenes else ((), None)))


def split_of_chip_set(config: Config) -> tuple[dict[str, int], list[str]]:
    """The chips of each split of a chip set, all of which are usable, and warnings; none where they are not known.

    Raises UsageError or BadInputError for a split that the places and columns of the set do not allow.
    """
    if not config["chip_set"] or unpacked(config):
        return {}, []
    split, folder = config["split"], Path(config["chip_set"])
    places = ChipPlaces.of([Tiles(folder / f"tiles/{name}.zarr") for name in chip_stores(config)])
    if places is None:
        raise BadInputError(f"{folder} has no index of its chips; run eopipe import again")
    plan, request = split_arguments(split)
    plan = places.plan(plan)
    splits, _ = assign_splits(ChipTable.of_set(places), plan, request)
    counts = {name: int((splits == number).sum()) for number, name in enumerate(SPLITS)}
    if empty := [name for name, count in counts.items() if name != "val" and not count]:
        raise BadInputError(f"split: no chip of {folder} is in the {empty[0]} split")
    return counts, [*plan_warnings(plan, places.samples, splits, None)]


def warnings_of(config: Config) -> Iterator[str]:
    """Sentences about a valid config that may not do what its user expects, here or at all."""
    yield from filter(None, [unpacked(config), *split_of_chip_set(config)[1], *label_warnings(config["label"])])
    yield from unmet(config, known_of(config))[1]
    if config["model"]:
        return
    for of_training in configs_of_trainings(config).values():
        if not unpacked(config) and module_of(of_training["train"]["architecture"]):
            yield from model_warnings(of_training)
    processes, cores = config["train"]["processes"], os.cpu_count() or 1
    if processes > cores:
        yield f"train.processes is {processes}, and this machine has {cores} cores; each process computes on one"
    if config["train"]["device"] == "cuda":
        import torch

        if not torch.cuda.is_available():
            yield "train.device is cuda, and PyTorch finds no GPU on this machine: train runs only where there is one"


def try_without_memory(architecture: Architecture, train: Config, chip: int) -> list[str]:
    """Build a model on PyTorch's meta device, and send a chip through one of a user; warnings about its output.

    Raises UsageError where it fails.

    Without `chip` it is only built. A model that copies pretrained weights while it is built, or looks at values,
    cannot run there; it passes.
    """
    import torch

    from eopipe.models.build import freeze
    from eopipe.training.model_checks import dry_run

    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            module = freeze(architecture.build(), train["freeze"])
            if chip and module_of(architecture.name):
                edges = sorted({chip, train["crop"] or chip})
                sentences = [dry_run(module, architecture, edge, train["task"]) for edge in edges]
                return [sentence for sentence in sentences if sentence][:1]
    except (NotImplementedError, RuntimeError, ModelCodeError) as error:
        if not OF_META_DEVICE.search(str(error)):
            raise
    return []


def scene_mistakes(config: Config) -> list[str]:
    """Why no scene, grid, chip or label can come of the config; scenes of a server are not searched for."""
    try:
        frame, mistakes = run_frame(config), part_mistakes(config)
        if config["model"] and (scenes := known_scenes(config)):
            check_grid(config, scenes.frame)
    except EopipeError as error:
        return [f"search: {error}"]
    mistakes += chip_mistakes(frame.shape, config["split"]) if frame and not config["model"] else []
    return [*mistakes, *label_mistakes(config, frame)]


def label_mistakes(config: Config, frame: Frame | None) -> list[str]:
    """Why the label stage would refuse the files of labels; those that are assets of scenes are not read.

    Without a frame they are compared with the area in its UTM zone, at search.resolution or 10 m.
    """
    label, cell = config["label"], label_cell(config, frame)
    if config["model"] and not has_settings("label", label):
        return []
    files = [(f"label.{name}", Path(label[name])) for name in ("before", "source") if label[name]]
    return [text for name, path in files for text in refusal(partial(check_label_file, path, label, cell), name)]


def label_cell(config: Config, frame: Frame | None) -> Cell | None:
    """The grid on which labels are read before the run; without a frame the area in its UTM zone, if there is one."""
    cell, search = frame.cells[0] if frame and frame.only else None, config["search"]
    geometry = area_geometry(search["area"], search["bbox"])
    if not frame and geometry and search["crs"] != UTM:
        metres = search["resolution"] if (search["resolution"] or 0) >= SMALLEST_METRES else PIXEL
        with suppress(EopipeError):
            cell = Frame.of_grids([choose_grid([], (), geometry, "auto", metres)]).cells[0]
    return cell


def part_mistakes(config: Config) -> list[str]:
    """Parts of composites that no scene is in, where the scenes are known without a server, or the dates exclude them.

    Raises the errors of search.
    """
    composite, search = config["composite"], config["search"]
    parts, stack = composite["parts"], composite["stack"]
    remedy = ", since the model needs it" if config["model"] else ", or remove the part"
    if composite["method"] == "none" or not parts:
        return []
    if not (scenes := known_scenes(config)):
        first, last = (moment.date() for moment in parse_interval(search["datetime"] or ""))
        # No interval of more days excludes a part of all years; years are counted from the interval itself.
        days = [first + timedelta(days) for days in range(min((last - first).days + 1, DAYS_OF_A_STACK))]
        observed = {part_of(day, stack) for day in days} | {f"{year:04}" for year in range(first.year, last.year + 1)}
        missing = [part for part in parts if part not in observed]
        reason = f"which search.datetime {search['datetime']} excludes; widen it{remedy}"
        return [f"composite.parts has {', '.join(missing)}, {reason}"] if missing else []
    return missing_parts(config, [*scenes.days], parts)


def known_scenes(config: Config) -> FrozenScenes | None:
    """The scenes of the run, where they are known without a server. Raises the errors of search."""
    is_known = config["search"]["catalog"] or is_up_to_date(config, Path(config["results"]))
    return find_scenes(config) if is_known else None


def run_frame(config: Config) -> Frame | None:
    """The grid of the run, where it is known without a server; None elsewhere.

    From the grid that a run froze, from the items of a catalog on disk, or from area and resolution. Raises the
    errors of search.
    """
    search = config["search"]
    if search["crs"] == UTM:
        # Blocks of several cells are not forecast.
        return None
    if scenes := known_scenes(config):
        return scenes.frame
    geometry, resolution = area_geometry(search["area"], search["bbox"]), search["resolution"]
    # Metres or degrees: without a CRS only the scenes say which.
    if geometry is None or resolution is None or (search["crs"] == "auto" and resolution < SMALLEST_METRES):
        return None
    return Frame.of_grids([choose_grid([], search["assets"], geometry, search["crs"], resolution)])


def chip_mistakes(shape: tuple[int, int], split: dict[str, Any]) -> list[str]:
    """Why a split would have no chip on a grid without clouds."""
    plan = plan_of(split)
    if too_large := refusal(lambda: chip_corners(shape, plan), "split.chip") if plan.chip > min(shape) else []:
        return too_large
    positions = (shape[0] // plan.stride) * (shape[1] // plan.stride)
    if not plan.by_place or plan.method == "group" or positions > MAX_POSITIONS:
        return []
    empty = [name for name in empty_splits(shape, plan) if name != "val"]
    # One cause for all of them.
    return [describe_empty_split(name, shape, plan) for name in empty[:1]]
