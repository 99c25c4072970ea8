"""CWL documents that follow from the committed ones in `cwl/`: variants of the pipeline, packed workflows, packages.

A chip set and a finished model are the pipeline with other steps. `python -m dev.cwl_variants FOLDER` writes them; the
build of a wheel does too, where nothing but PyYAML is installed, so this imports neither stages nor their packages.
"""

import json
import sys
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from dev.app_package import Cwl, document, packed

# With or without the C library the text is the same.
LOADER, DUMPER = getattr(yaml, "CSafeLoader", yaml.SafeLoader), getattr(yaml, "CSafeDumper", yaml.SafeDumper)
SOURCE = Path(__file__).parents[1] / "cwl"
HEAD = "# Derived from eopipe/stages by `make sync`; do not edit.\n"
# Each workflow of a whole run, also in one file.
WHOLE = ("pipeline.cwl", "chip-set.cwl", "finished-model.cwl")
PACKAGE = "app-package.cwl"
# With it cwltool's checker does not warn of what `pickValue` has removed.
SELF = {"valueFrom": "$(self)"}
MERGED = {"linkMerge": "merge_flattened", "pickValue": "all_non_null"}
JSON = "iana:application/json"
FOLDERS = {"type": {"type": "array", "items": "Directory"}}
NO_FOLDERS: Cwl = FOLDERS | {"default": []}
# What a chip set replaces: steps of scenes, steps of one map of all images, and what needs a place on the Earth.
OF_SCENES = (
    *("steps", "search", "cells", "fetch", "preprocess", "composite", "label", "label_scenes"),
    *("predict_parts", "predict", "products", "estimate"),
)
# The stores are given, or packed by the first step.
OF_CHIPS = {"composite/images": "tiles", "preprocess/tiles": "import/tiles"}
OF_CHIPS |= {"label/labels": "labels", "label_scenes/labels": "import/labels"}
# What a finished model replaces.
OF_TRAINING = (*("split", "train", "trials", "members", "choose", "combine", "calibrate", "cross_validate", "export"),)
OF_MODEL = {f"{name}/model": "model" for name in ("train", "choose", "combine")}
OF_MODEL["calibrate/calibration"] = "calibration"
# Inputs of the import that a person decides on, with the command line.
NOT_OF_A_JOB = ("chip_set_name", "allow_folder")
# What the report of a training has, and what a job asks for.
CARDS = ("model_card", "data_card")
OF_JOB = ("mem_mb", "timelimit_s")


def committed() -> dict[str, Cwl]:
    """The documents that others follow from, by the names of their files."""
    files = {path.name: path for path in sorted(SOURCE.glob("*.cwl")) if path.name not in (PACKAGE, *WHOLE[1:])}
    return {name: yaml.load(path.read_text(), LOADER) for name, path in files.items()}  # noqa: S506 - both are safe


def built(documents: dict[str, Cwl]) -> dict[str, str]:
    """The documents that follow from the committed ones, by their paths in `cwl/`, as text."""
    variants = {"chip-set.cwl": chip_set(documents), "finished-model.cwl": finished_model(documents)}
    values = variants | {f"packed/{name}": packed(documents | variants, name) for name in WHOLE}
    return {name: as_text(value) for name, value in (values | {PACKAGE: document(documents)}).items()}


def as_text(value: Cwl) -> str:
    """A document as YAML without anchors, which not every CWL parser resolves."""
    plain = json.loads(json.dumps(value))
    return HEAD + yaml.dump(plain, Dumper=DUMPER, sort_keys=False, width=110, allow_unicode=True)


def chip_set(documents: dict[str, Cwl]) -> Cwl:
    """The pipeline on the tile and label stores of a chip set, with a map for each store."""
    whole, tool = deepcopy(documents["pipeline.cwl"]), documents["import.cwl"]
    steps = _rewired_steps(whole, OF_SCENES, OF_CHIPS)
    # Their condition is a step of scenes.
    del steps["images"]["when"], steps["predict_images"]["when"]
    each_store = {"mosaic": False, "images": True, "cells": [""], "endings": [""]}
    for repeated in ("cross_validate", "trials", "members"):
        steps[repeated]["in"] |= {name: {"default": value} for name, value in each_store.items()}
    steps["crate"]["in"]["records"]["source"][:0] = ["import_record", "import/record"]
    of_import, if_import = when("with_import")
    settings = {name: f"import_{name}" for name in tool["inputs"] if name not in NOT_OF_A_JOB}
    steps = {"import": _step("import", tool, settings | of_import) | if_import} | steps
    known = {
        "with_import": entry("boolean", "with import", "pack chips, in the place of tiles and labels")
        | {"default": False},
        "import_record": entry(
            ["null", "File"], "import record", "run record of the import, with which the crate begins", JSON
        ),
        "tiles": NO_FOLDERS | {"label": "tiles", "doc": "tile stores of the chip set"},
        "labels": NO_FOLDERS | {"label": "labels", "doc": "label stores of the chip set"},
    }
    inputs = known | _used_inputs(steps, known, whole, _settings("import", tool))
    inputs["train_state"] = whole["inputs"]["train_state"]
    inputs["workflow"] = _itself(inputs["workflow"], "chip-set.cwl")
    outputs = _rewired_outputs(whole, OF_SCENES, OF_CHIPS)
    for kind in ("tiles", "labels"):
        del outputs[kind]
    doc = "the chip set, where it was packed here"
    outputs["chip_set"] = output(["null", "Directory"], "chip set", doc, "", "import/chip_set")
    doc = "Chips that exist, or that `eopipe import` packed, to a trained, evaluated, mapped and citable model."
    return whole | {"label": "eopipe chip set", "doc": doc, "inputs": inputs, "steps": steps, "outputs": outputs}


def finished_model(documents: dict[str, Cwl]) -> Cwl:
    """The pipeline without split and training: the map of scenes by a model that is there, tested by any labels."""
    whole = deepcopy(documents["pipeline.cwl"])
    rungs = [name for name in whole["steps"] if name.startswith(("rung_", "promote_"))]
    steps = _rewired_steps(whole, (*OF_TRAINING, *rungs), OF_MODEL)
    for name in ("split_method", "split_by"):
        del steps["steps"]["in"][name]
    steps["steps"]["in"]["with_labels"] = "with_labels"
    steps["evaluate"] = _test_of_map(steps["evaluate"])
    for name in CARDS:
        del steps["report"]["in"][f"{name}_name"]
    steps["report"]["in"]["status_name"] = {"default": "status.json"}
    steps["crate"]["in"]["payload"]["source"].append("report/status")
    known = {
        "model": entry("Directory", "model", "trained model"),
        "calibration": entry(
            ["null", "File"], "calibration", "temperature of its probabilities", "iana:application/json"
        ),
        "with_labels": entry("boolean", "with labels", "test the map with labels: of label_source, or of label_asset")
        | {"default": False},
    }
    inputs = known | _used_inputs(steps, known, whole, {})
    inputs["workflow"] = _itself(inputs["workflow"], "finished-model.cwl")
    outputs = _rewired_outputs(whole, (*OF_TRAINING, *rungs), OF_MODEL)
    outputs = {name: value for name, value in outputs.items() if name not in CARDS}
    doc = "areas, missing classes, and inputs unlike the training inputs"
    outputs["status"] = output(["null", "File"], "status", doc, JSON, "report/status")
    outputs["metrics"] |= {"type": ["null", "File"], "doc": "scores of the maps, on all labels"}
    outputs["labels"]["doc"] += "; none without labels"
    doc = "Satellite scenes to a map by a model that was trained before, which labels may test."
    intent = {"intent": ["edam:operation_2423"]}
    body = {"inputs": inputs, "steps": steps, "outputs": outputs}
    return whole | {"label": "eopipe finished model", "doc": doc} | intent | body


def _test_of_map(trained: Cwl) -> Cwl:
    """The step `evaluate` where the job has labels; `trained` is the one behind a training."""
    of_labels, if_labels = when("with_labels")
    sources = {name: trained["in"][name] for name in ("tiles", "labels", "classes", "probabilities")}
    # Without the settings of the baselines, which need labels to train with.
    needs = {name: f"evaluate_{name}" for name in OF_JOB}
    return trained | if_labels | {"in": needs | sources | {"tested_model": "model"} | of_labels}


def _step(name: str, tool: Cwl, inputs: Cwl) -> Cwl:
    """A step that runs a tool of the pipeline's folder."""
    outputs = list(tool["outputs"])
    return {"label": name, "doc": tool["doc"], "run": f"{name}.cwl", "in": inputs, "out": outputs}


def _settings(name: str, tool: Cwl) -> Cwl:
    """The inputs of a tool as inputs of a workflow, with the labels of the pipeline."""
    values = {}
    for key, port in tool["inputs"].items():
        label = f"{port['label']} of {name}" if key in OF_JOB else f"{name}.{key}"
        value = {word: entry for word, entry in port.items() if word != "inputBinding"}
        values[f"{name}_{key}"] = value | {"label": label}
    return values


def _used_inputs(steps: dict[str, Cwl], known: Iterable[str], whole: Cwl, more: Cwl) -> Cwl:
    """The inputs, of the pipeline and more, that steps use, without those that are known."""
    return {name: value for name, value in (more | whole["inputs"]).items() if name in sources(steps) - {*known}}


def sources(steps: dict[str, Cwl]) -> set[str]:
    """What the inputs of steps read: outputs of steps, and inputs of their workflow."""
    values = [value for step in steps.values() for value in step["in"].values()]
    read = [value.get("source", []) if isinstance(value, dict) else value for value in values]
    return {name for names in read for name in ([names] if isinstance(names, str) else names)}


def _itself(value: Cwl, name: str) -> Cwl:
    """The input for the crate, where a workflow gives itself."""
    return value | {"default": {"class": "File", "location": name}}


def entry(kind: Any, label: str, doc: str, form: str = "") -> Cwl:
    """An input or output of a document."""
    return {"type": kind, "label": label, "doc": doc} | ({"format": form} if form else {})


def output(kind: Any, name: str, doc: str, form: str, source: Any) -> Cwl:
    """An output of a workflow from a source: of one step, or of several with what merges them."""
    merged = {key: value for key, value in source.items() if key != "source"} if isinstance(source, dict) else {}
    output_source = source["source"] if isinstance(source, dict) else source
    return entry(kind, name.replace("_", " "), doc, form) | {"outputSource": output_source} | merged


def when(source: str) -> tuple[Cwl, Cwl]:
    """The input that decides whether a step runs, and the condition."""
    return {"wanted": source}, {"when": "$(inputs.wanted)"}


def _rewired_steps(whole: Cwl, removed: tuple[str, ...], replaced: dict[str, str]) -> dict[str, Cwl]:
    """The steps of the pipeline without some, and with others, or inputs, in the place of some sources."""
    steps = {name: step for name, step in whole["steps"].items() if name not in removed}
    for step in steps.values():
        values = ((name, _rewired(value, removed, replaced)) for name, value in step["in"].items())
        step["in"] = {name: value for name, value in values if value is not None}
    return steps


def _rewired_outputs(whole: Cwl, removed: tuple[str, ...], replaced: dict[str, str]) -> Cwl:
    """The outputs of the pipeline that are still there; what became an input is none."""
    values = {n: _rewired(value, removed, replaced, "outputSource") for n, value in whole["outputs"].items()}
    return {name: value for name, value in values.items() if value is not None}


def _rewired(value: Any, removed: tuple[str, ...], replaced: dict[str, str], key: str = "source") -> Any:
    """An input of a step, or an output, with other sources; None where none remains."""
    sources = value.get(key) if isinstance(value, dict) else value
    if sources is None:
        return value
    names = [sources] if isinstance(sources, str) else sources
    renamed = dict.fromkeys(replaced.get(name, name) for name in names)
    remaining = [name for name in renamed if name.partition("/")[0] not in removed]
    if key != "source":
        remaining = [name for name in remaining if "/" in name]
    if not remaining:
        return None
    if isinstance(value, str):
        return remaining[0]
    if {*names} <= {*replaced} and len(renamed) == 1 and key == "source":
        # One input in the place of all: nothing is merged or picked any more.
        of_value = value.get("valueFrom", SELF["valueFrom"])
        return remaining[0] if of_value == SELF["valueFrom"] else {"source": remaining[0], "valueFrom": of_value}
    # Stores are given or packed, so that one of the two is empty.
    merged = MERGED if remaining == ["tiles", "import/tiles"] else {}
    return value | {key: remaining[0] if isinstance(sources, str) else remaining} | merged


def write_built(folder: Path) -> None:
    """Write the documents into a folder that has those that they follow from, or gets them."""
    for name, text in built(committed()).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write_built(Path(sys.argv[1]))
