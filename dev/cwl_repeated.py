"""CWL workflows around one stage, which CWL can only repeat as a workflow, and what repeated ones have in common."""

from dev.app_package import Cwl
from dev.cwl import workflow_document
from dev.cwl_small_tools import periods_tool
from dev.cwl_steps import EACH_FILE, EACH_FOLDER, TIFF, stage_step, used_inputs
from dev.cwl_variants import FOLDERS, JSON, entry, output


def records_of(steps: dict[str, Cwl]) -> Cwl:
    """The run records of steps, as outputs."""
    outputs = {}
    for name, step in steps.items():
        record = output(["null", "File"], f"record of {name}", "run record of the job", JSON, f"{name}/record")
        if "scatter" in step:
            record["type"] = ["null", {"type": "array", "items": ["null", "File"]}]
        outputs[f"{name}_record"] = record
    return outputs


def image_inputs() -> Cwl:
    """What a workflow that is repeated on the images of a run gets of them."""
    return {
        "tiles": FOLDERS | {"label": "tiles", "doc": "tile stores of all images"},
        "labels": FOLDERS | {"label": "labels", "doc": "label store of all scenes, or one for each"},
        "mosaic": entry("boolean", "mosaic", "map all images as one"),
        "images": entry("boolean", "images", "map each image by itself"),
        "cells": entry("string[]", "cells", "cells that have a map each; an empty text for the only cell"),
        "endings": entry("string[]", "endings", "what the names of the maps of the cells end with"),
        "image_stores": entry("Directory[]", "image stores", "tile store of each image, once for each of its cells")
        | {"default": []},
        "image_cells": entry("string[]", "image cells", "the cell of each of them") | {"default": []},
        "image_endings": entry("string[]", "image endings", "what the name of its map ends with") | {"default": []},
    }


def composites() -> Cwl:
    """The composites of all periods."""
    periods = periods_tool()
    step = stage_step(
        "composite",
        {"tiles": "periods/groups"},
        {"composite_name": "periods/names"},
        scatter=["tiles", "composite_name"],
        scatterMethod="dotproduct",
    )
    known = {
        "tiles": FOLDERS | {"label": "tiles", "doc": "tile stores of all scenes"},
        "items": entry("Directory", "items", "frozen STAC Items of the run"),
    }
    inputs = {name: name if name in known else f"composite_{name}" for name in periods["inputs"]}
    steps = {
        "periods": {
            "label": "periods",
            "doc": periods["doc"],
            "run": "periods.cwl",
            "in": inputs,
            "out": list(periods["outputs"]),
        },
        "composite": step,
    }
    outputs = {
        "images": output(EACH_FOLDER, "composites", "one Zarr store per period", "", "composite/composite"),
        "record": output(EACH_FILE, "records", "run records of the jobs", JSON, "composite/record"),
    }
    return workflow_document(
        "eopipe composites",
        "One composite for each period that has scenes.",
        ("operation_3436",),
        {"inputs": known | used_inputs(steps, known), "steps": steps, "outputs": outputs},
    )


def image_map() -> Cwl:
    """The map of one image: a workflow, as CWL has no other way to make a list of it."""
    known = {
        "image": entry("Directory", "image", "tile store of the image"),
        "model": entry("Directory", "model", "trained model"),
        "calibration": entry(["null", "File"], "calibration", "temperature of the probabilities", JSON),
        "chips": entry(["null", "File"], "chips", "split file, where places of it alone are mapped", JSON),
        "places": entry(["null", "string"], "places", "places of the split file to map"),
        "cell": entry("string", "cell", "cell to map; an empty text for the only one"),
        "classes_name": entry("string", "classes", "name of the map of classes"),
        "probabilities_name": entry("string", "probabilities", "name of the map of probabilities"),
    }
    wires = {name: name for name in known if name != "image"}
    step = stage_step("predict", {"tiles": {"source": ["image"], "linkMerge": "merge_nested"}}, wires)
    outputs = {
        "classes": output("File", "classes", "map of classes", TIFF, "predict/classes"),
        "probabilities": output("File", "probabilities", "map of probabilities", TIFF, "predict/probabilities"),
        "record": output("File", "record", "run record of the job", JSON, "predict/record"),
    }
    return workflow_document(
        "eopipe image map",
        "The map of one image.",
        ("operation_2423",),
        {"inputs": known | used_inputs({"predict": step}, known), "steps": {"predict": step}, "outputs": outputs},
    )
