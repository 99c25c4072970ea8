"""Workflows that follow from the pipeline: of a chip set, and of a finished model, which maps without a training."""

from typing import Any

from dev.cwl import entry, workflow_document
from dev.cwl_pipeline import IMAGES, LABELS, fold, pipeline, training
from dev.cwl_repeated import composites, image_map
from dev.cwl_steps import FOLDERS, JSON, MERGED, PACKED, SELF, Cwl, output, stage_step, used_inputs, when
from eopipe.contract import stage
from eopipe.trial_settings import MAX_RUNGS

NO_FOLDERS: Cwl = FOLDERS | {"default": []}
# The workflows of a whole run, each also in one file.
WHOLE = ("pipeline", "chip-set", "finished-model")
# What a chip set replaces: steps of scenes, steps of one map of all images, and what needs a place on the Earth.
OF_SCENES = (
    *("steps", "search", "cells", "fetch", "preprocess", "composite", "label", "label_scenes"),
    *("predict_parts", "predict", "products"),
)
# The stores are given, or packed by the first step.
OF_CHIPS = dict(zip(IMAGES["source"], ("tiles", "import/tiles"), strict=True))
OF_CHIPS |= dict(zip(LABELS["source"], ("labels", "import/labels"), strict=True))
# What a finished model replaces.
OF_TRAINING = (
    *("split", "train", "trials", "members", "choose", "combine", "calibrate", "cross_validate", "export", "report"),
    *(f"{name}_{number}" for number in range(MAX_RUNGS) for name in ("rung", "promote")),
)
OF_MODEL = {f"{name}/model": "model" for name in ("train", "choose", "combine")}
OF_MODEL["calibrate/calibration"] = "calibration"
OF_MODEL |= {f"report/{name}": f"describe/{name}" for name in ("page", "picture", "record")}


def workflows() -> dict[str, Cwl]:
    """All workflows by the names of their files."""
    parts = {"fold": fold(), "training": training(), "composites": composites(), "image-map": image_map()}
    return {"pipeline": pipeline(), "chip-set": chip_set(), "finished-model": finished_model()} | parts


def packed_name(name: str) -> str:
    """The file, in the folder of the workflows, that holds all of one."""
    return PACKED.replace("pipeline", name)


def chip_set() -> Cwl:
    """The pipeline on the tile and label stores of a chip set, with a map for each store."""
    whole = pipeline()
    steps = _rewired_steps(whole, OF_SCENES, OF_CHIPS)
    # Their condition is a step of scenes.
    del steps["images"]["when"], steps["predict_images"]["when"]
    each_store = {"mosaic": False, "images": True, "cells": [""], "endings": [""]}
    for repeated in ("cross_validate", "trials", "members"):
        steps[repeated]["in"] |= {name: {"default": value} for name, value in each_store.items()}
    steps["crate"]["in"]["records"]["source"][:0] = ["import_record", "import/record"]
    of_import, if_import = when("with_import")
    steps = {"import": stage_step("import", {}, of_import, **if_import)} | steps
    known = {
        "with_import": entry("boolean", "with import", "pack chips, in the place of tiles and labels")
        | {"default": False},
        "import_record": entry(
            ["null", "File"], "import record", "run record of the import, with which the crate begins", JSON
        ),
        "tiles": NO_FOLDERS | {"label": "tiles", "doc": "tile stores of the chip set"},
        "labels": NO_FOLDERS | {"label": "labels", "doc": "label stores of the chip set"},
    }
    inputs = known | used_inputs(steps, known) | {"train_state": whole["inputs"]["train_state"]}
    inputs["workflow"] = _packed_workflow(inputs["workflow"], "chip-set")
    outputs = _rewired_outputs(whole, OF_SCENES, OF_CHIPS)
    for kind in ("tiles", "labels"):
        del outputs[kind]
    doc = "the chip set, where it was packed here"
    outputs["chip_set"] = output(["null", "Directory"], "chip set", doc, "", "import/chip_set")
    return workflow_document(
        "eopipe chip set",
        "Chips that exist, or that `eopipe import` packed, to a trained, evaluated, mapped and citable model.",
        ("operation_2426", "operation_2423"),
        {"inputs": inputs, "steps": steps, "outputs": outputs},
    )


def finished_model() -> Cwl:
    """The pipeline without split and training: the map of scenes by a model that is there, tested by any labels."""
    whole = pipeline()
    steps = _rewired_steps(whole, OF_TRAINING, OF_MODEL)
    for name in ("split_method", "split_by"):
        del steps["steps"]["in"][name]
    steps["steps"]["in"]["with_labels"] = "with_labels"
    steps["evaluate"] = _test_of_map(steps["evaluate"]["in"])
    of_report, if_report = when("with_report")
    described = stage_step("describe", steps["publish"]["in"], of_report, **if_report)
    steps = {name: step for name, step in steps.items() if name != "crate"} | {
        "describe": described,
        "crate": steps["crate"],
    }
    known = {
        "model": entry("Directory", "model", "trained model"),
        "calibration": entry(
            ["null", "File"], "calibration", "temperature of its probabilities", "iana:application/json"
        ),
        "with_labels": entry("boolean", "with labels", "test the map with labels: of label_source, or of label_asset")
        | {"default": False},
    }
    inputs = known | used_inputs(steps, known)
    inputs["workflow"] = _packed_workflow(inputs["workflow"], "finished-model")
    outputs = _rewired_outputs(whole, OF_TRAINING, OF_MODEL)
    outputs["metrics"] |= {"type": ["null", "File"], "doc": "scores of the maps, on all labels"}
    outputs["labels"]["doc"] += "; none without labels"
    return workflow_document(
        "eopipe finished model",
        "Satellite scenes to a map by a model that was trained before, which labels may test.",
        ("operation_2423",),
        {"inputs": inputs, "steps": steps, "outputs": outputs},
    )


def _test_of_map(trained: Cwl) -> Cwl:
    """The step `evaluate` where the job has labels; `trained` are its inputs behind a training."""
    of_labels, if_labels = when("with_labels")
    sources = {name: trained[name] for name in ("tiles", "labels", "classes", "probabilities")}
    step = stage_step("evaluate", sources, {"tested_model": "model"} | of_labels, **if_labels)
    for port in stage("evaluate").settings:
        # Settings of the baselines, which need labels to train with.
        del step["in"][port.name]
    return step


def _packed_workflow(value: Cwl, name: str) -> Cwl:
    return value | {"default": {"class": "File", "location": packed_name(name)}}


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
    # Of stores that are given, or packed, one of the two is empty.
    merged = MERGED if remaining == ["tiles", "import/tiles"] else {}
    return value | {key: remaining[0] if isinstance(sources, str) else remaining} | merged
