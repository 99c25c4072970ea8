"""`eopipe cwl`: any config as a job of the CWL pipeline; and what the pipeline itself asks while it runs.

An input of `cwl/pipeline.cwl` is a setting: `train_epochs` is `epochs` in the section `train` of a config.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from urllib.parse import quote

import yaml

from eopipe.config import load
from eopipe.contract import STAGES, Argument, Input, Port, stage
from eopipe.errors import BadInputError, UsageError
from eopipe.launch.environment import parse_nodes
from eopipe.own_files import write_files
from eopipe.ports import ConfigFile
from eopipe.provenance.record import record_path
from eopipe.run.images import has_mosaic, names_of_parts, periods
from eopipe.run.locate import chip_stores, imports_chips, in_project, shipped
from eopipe.run.rules import pinned
from eopipe.text_files import write_json
from eopipe.tiles.cells import read_frame
from eopipe.tiles.store import Tiles
from eopipe.trial_settings import MAX_RUNGS, counts_of_rungs, kind_of_trainings, settings_text, training_settings

JOB = "job.yml"
HEAD = "# Written by `eopipe cwl`"
IANA = "https://www.iana.org/assignments/media-types/"
TileStores = Annotated[tuple[Path, ...], Input("tile stores, one for each image", folder=True)]
# What an engine reads as the outputs of a tool.
OUTPUT = Path("cwl.output.json")
# Settings without an input: the engine of the crate is CWL, and the rest is of Snakemake.
FIXED = {("crate", "engine")}
OF_SNAKEMAKE = ("results", "state", "online_nodes", "max_minutes", "setup", "container")


def cwl(
    config_file: ConfigFile = None,
    to: Annotated[Path, Argument("folder to write to", value="FOLDER")] = Path("cwl"),
) -> None:
    """Write a config as a job file for CWL engines, with the workflow and its tools beside it."""
    folder, start = to.absolute(), Path.cwd()
    with in_project(config_file) as path:
        config = load(path)
        pipeline = "chip-set.cwl" if config["chip_set"] else "finished-model.cwl" if config["model"] else "pipeline.cwl"
        in_one_file = {"class": "File", "location": f"packed/{pipeline}"}
        text = job_text(job(config, folder, path) | {"workflow": in_one_file}, str(path))
    _write(folder, text)
    place = os.path.relpath(folder, start)
    # A project keeps what Snakemake has written.
    # CWL has no word for them.
    others = " and ".join(name for name in OF_SNAKEMAKE[2:] if config[name])
    note = f"{others} of the config: Snakemake's, see docs/cwl.md for CWL\n" if others else ""
    words = ["cwltool", "--outdir", f"{config['results']}-cwl", f"{place}/{pipeline}", f"{place}/{JOB}"]
    print(f"{note}now: {shlex.join(words)}")


def job(config: dict[str, Any], folder: Path, source: Path) -> dict[str, Any]:
    """The inputs of the pipeline for a config, without those that have their default.

    Paths are relative to `folder`, where the job file is; `source` is the config's file. Raises UsageError for a
    training on many nodes, BadInputError for files that do not exist.
    """
    if parse_nodes(config["train"]["nodes"]).minimum > 1:
        raise UsageError(
            f"train.nodes is {config['train']['nodes']}, but a job of CWL has one node; set train.nodes: 1, or run "
            "this config with Snakemake"
        )
    inputs = {
        f"{name}_{port.name}": _value(port, config[name][port.name], folder)
        for name in STAGES
        for port in stage(name).settings
        if (name, port.name) not in FIXED and config[name][port.name] != port.default
    }
    if config["search"]["grid_assets"] == config["preprocess"]["bands"]:
        # So the pipeline does by itself.
        inputs.pop("search_grid_assets", None)
    inputs |= _chip_set_inputs(config, folder)
    for kind in ("model", "calibration"):
        if config[kind]:
            inputs[kind] = _file(Path(config[kind]), folder)
    if config["calibration"]:
        inputs["calibration"]["format"] = f"{IANA}application/json"
    inputs |= _general_settings(config)
    inputs["config"] = _file(source, folder) | {"format": f"{IANA}application/yaml"}
    for lock in pinned(shipped("cwl/pipeline.cwl").parents[1])[:1]:
        inputs["lock"] = _file(lock, folder) | {"format": f"{IANA}text/plain"}
    return inputs


def _chip_set_inputs(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The stores of a chip set with their record, or what packs them; nothing for a run on scenes."""
    if not config["chip_set"]:
        return {}
    chip_set, section = Path(config["chip_set"]), config["import"]
    if imports_chips(config):
        if not (section["root"] or section["folders"]):
            raise UsageError(
                "an engine moves its inputs, so the paths of the chips need a folder to start from: set import.root"
            )
        # Snakemake writes the folder of the set; its name is the default of the collection.
        return {"with_import": True, "import_collection": section["collection"] or chip_set.absolute().name}
    inputs: dict[str, Any] = {}
    for kind in ("tiles", "labels"):
        inputs[kind] = [_file(chip_set / kind / f"{name}.zarr", folder) for name in chip_stores(config)]
    if (record := record_path(chip_set)).is_file():
        inputs["import_record"] = _file(record, folder) | {"format": f"{IANA}application/json"}
    return inputs


def _general_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings beside the sections that are inputs of the pipeline, where they are not the default."""
    # A chip set has a map and a job for each store.
    defaults = {"folds": 0, "with_products": False} | ({} if config["chip_set"] else {"map_parts": 1})
    inputs = {name: config[name] for name, default in defaults.items() if config[name] != default}
    if config["evaluate"]["sample"]:
        inputs["with_areas"] = True
    if config["model"] and (config["label"]["source"] or config["label"]["asset"]):
        # A training always has labels.
        inputs["with_labels"] = True
    if kind := kind_of_trainings(config):
        trainings = training_settings(config)
        texts = [settings_text(settings) for settings in trainings.values()]
        inputs |= {"with_training": False, f"with_{kind}s": True}
        inputs |= {f"{kind}_names": [*trainings], f"{kind}_settings": texts}
    rungs = config["trials"]["rungs"]
    # The pipeline has as many steps as there can be rungs; fewer rungs are the last ones.
    for rung, (share, count) in enumerate(zip(rungs, counts_of_rungs(config), strict=True)):
        step = f"rung_{MAX_RUNGS - len(rungs) + rung}"
        inputs |= {f"with_{step}": True, f"{step}_name": f"rung-{rung}.json"}
        inputs |= {f"{step}_until": share, f"{step}_count": count}
    return inputs | ({"fold": [*range(config["folds"])]} if config["folds"] else {})


def job_text(inputs: dict[str, Any], source: str) -> str:
    """A job file: the inputs, and the config that they are from."""
    values = yaml.safe_dump(inputs, sort_keys=False, allow_unicode=True, width=110)
    return f"{HEAD} from {source}: inputs that are not given have their defaults.\n{values}"


def _value(port: Port, value: Any, folder: Path) -> Any:
    if isinstance(port.mark, Input) and value is not None:
        paths = value if isinstance(value, tuple) else (value,)
        files = [_file(path, folder) for path in paths]
        return files if isinstance(value, tuple) else files[0]
    return list(value) if isinstance(value, tuple) else value


def _file(path: Path, folder: Path) -> dict[str, str]:
    """A file or folder as CWL names it: by a relative URL."""
    if not path.exists():
        raise BadInputError(f"there is no {path}, which the config names")
    kind = "Directory" if path.is_dir() else "File"
    return {"class": kind, "location": quote(os.path.relpath(path.absolute(), folder.absolute()))}


def _write(folder: Path, text: str) -> None:
    """Copy tools and workflows, in a checkout build the rest, write the job; UsageError for a file of the user."""
    source, contents = shipped("cwl/pipeline.cwl").parent, {JOB: text}
    folders = [] if folder.is_dir() and folder.samefile(source) else [source]
    with TemporaryDirectory(prefix="eopipe-cwl-") as name:
        if (source.parent / "dev").is_dir():
            environment = os.environ | {"PYTHONPATH": str(source.parent)}
            subprocess.run([sys.executable, "-P", "-m", "dev.cwl_variants", name], env=environment, check=True)
            folders.append(Path(name))
        for place in folders:
            files = [*place.rglob("*.cwl"), *place.glob("overrides/*.yml")]
            contents |= {str(file.relative_to(place)): file.read_text(encoding="utf-8") for file in files}
    write_files(folder, contents, HEAD, "# Derived from eopipe/stages by `make sync`")


def _write_steps(
    label_asset: Annotated[str | None, Argument("label.asset of the job")] = None,
    composite_method: Annotated[str, Argument("composite.method of the job")] = "none",
    split_method: Annotated[str | None, Argument("split.method of the job")] = None,
    split_by: Annotated[str | None, Argument("split.by of the job")] = None,
    with_labels: Annotated[bool, Argument("whether it has labels")] = False,
) -> None:
    """Write which of the optional steps of the CWL pipeline a job has; a job of the pipeline itself."""
    write_json(OUTPUT, steps(label_asset, composite_method, split_method, split_by, with_labels=with_labels))


def steps(
    label_asset: str | None, composite_method: str, split_method: str | None, split_by: str | None, *, with_labels: bool
) -> dict[str, bool]:
    """The conditions of the optional steps of the pipeline, as the rules of Snakemake have them."""
    of_scenes = with_labels and label_asset is not None
    split, label = {"method": split_method, "by": split_by}, {"asset": label_asset if with_labels else None}
    is_mosaic = has_mosaic({"split": split, "label": label, "chip_set": None})
    return {
        "label_file": with_labels and not of_scenes,
        "label_scenes": of_scenes,
        "composite": composite_method != "none",
        "mosaic": is_mosaic,
        "images": not is_mosaic,
    }


def _write_cells(
    grid: Annotated[Path, Argument("grid.json of the search")],
    map_parts: Annotated[int, Argument("map_parts of the job")] = 1,
) -> None:
    """Write the cells of a run with the parts and names of their maps; a job of the pipeline itself."""
    names = [cell.id for cell in read_frame(grid).cells]
    endings = [f"-{name}" if name else "" for name in names]
    parts = [(*cell, part) for cell in zip(names, endings, strict=True) for part in names_of_parts(map_parts)]
    of_parts = {
        "parts": [part for _, _, part in parts],
        "part_cells": [cell for cell, _, _ in parts],
        "part_endings": [f"{ending}-part-{part}" for _, ending, part in parts],
    }
    write_json(OUTPUT, {"cells": names, "endings": endings} | of_parts)


def _write_images(tiles: TileStores) -> None:
    """Write the cells that each image reaches, with the name of its map there; a job of the pipeline itself."""
    stores = [Tiles(path) for path in tiles]
    reached = [(_folder(store.path), part.cell) for store in stores for part in store.parts]
    of_images = {
        "image_stores": [store for store, _ in reached],
        "image_cells": [cell for _, cell in reached],
        "image_endings": [f"-{cell}" if cell else "" for _, cell in reached],
    }
    write_json(OUTPUT, of_images)


def _folder(path: Path) -> dict[str, str]:
    """A folder as a tool of CWL gives it to the engine."""
    return {"class": "Directory", "path": str(path), "basename": path.name}


def _write_periods(
    items: Annotated[Path, Argument("folder of the items that the search found")],
    tiles: TileStores,
    period: Annotated[str, Argument("composite.period of the job")] = "all",
    stack: Annotated[str, Argument("composite.stack of the job")] = "none",
    parts: Annotated[tuple[str, ...], Argument("composite.parts of the job")] = (),
) -> None:
    """Write the tile stores of each period, and the names of the composites; a job of the pipeline itself."""
    stores = {path.name: _folder(path) for path in tiles}
    scenes = periods({"composite": {"period": period, "stack": stack, "parts": parts}}, items)
    groups = [[stores[f"{scene}.zarr"] for scene in names] for names in scenes.values()]
    write_json(OUTPUT, {"groups": groups, "names": [f"{name}.zarr" for name in scenes]})


CWL = {"": cwl, "steps": _write_steps, "cells": _write_cells, "images": _write_images, "periods": _write_periods}
