"""The CWL workflows, derived from the stages: the pipeline, and its parts that CWL can only repeat as a workflow.

An input of the pipeline is a setting of the config: `train_epochs` is `epochs` in the section `train`.
"""

from collections.abc import Iterable
from typing import Any

from dev.cwl import (
    PARTS_OF_MAP,
    cells_tool,
    cwl_type,
    described,
    entry,
    needs_inputs,
    periods_tool,
    steps_tool,
    tool,
    workflow_document,
)
from eopipe.contract import STAGES, Knob, Option, Port, stage

Cwl = dict[str, Any]
# With it cwltool's checker does not warn of what `pickValue` has removed.
SELF = {"valueFrom": "$(self)"}
MERGED = {"linkMerge": "merge_flattened", "pickValue": "all_non_null"}
# What the model sees: composites if the run has them, else the tiles of each scene.
IMAGES = {"source": ["composite/images", "preprocess/tiles"], "pickValue": "first_non_null"}
LABELS = {"source": ["label/labels", "label_scenes/labels"], **MERGED}
# A training that was ended early has no model, and then nothing can follow.
MODEL = {"source": ["train/model"], "linkMerge": "merge_nested", "pickValue": "the_only_non_null", **SELF}
CLASSES = {"source": ["predict/classes", "predict_images/classes"], **MERGED}
PROBABILITIES = {"source": ["predict/probabilities", "predict_images/probabilities"], **MERGED}
MAPS = {"classes": CLASSES, "probabilities": PROBABILITIES}
# Stages that are repeated for each fold.
OF_FOLD = ("split", "train", "calibrate", "predict", "evaluate")
JSON, TIFF = "iana:application/json", "iana:image/tiff"
EACH_FILE, EACH_FOLDER = {"type": "array", "items": "File"}, {"type": "array", "items": "Directory"}
FOLDERS = {"type": EACH_FOLDER}
PACKED = "packed/pipeline.cwl"


def tools() -> dict[str, Cwl]:
    """All tools by the names of their files: those of the stages, and three that decide on steps of the pipeline."""
    small = {"steps": steps_tool(), "cells": cells_tool(), "periods": periods_tool()}
    return {name: tool(stage(name)) for name in STAGES} | small


def settings(name: str) -> list[Port]:
    """The ports of a stage that a config sets, in its own section or in that of another stage."""
    shared = [port for port in stage(name).of(Option, Knob) if port.section]
    return [*stage(name).settings, *shared]


def input_name(name: str, port: Port) -> str:
    """The input of the pipeline that sets a port of a stage."""
    return f"{port.section or name}_{port.setting}"


def stage_step(name: str, wires: Cwl, *, of: str = "", **more: Any) -> Cwl:
    """A step that runs a stage: what it gets from other steps, and every setting of its stage."""
    of = of or name
    chosen = {port.name: input_name(of, port) for port in settings(of)} | {
        key: f"{of}_{key}" for key in needs_inputs(of)
    }
    words = name.replace("_", " ")
    outputs = list(tool(stage(of))["outputs"])
    return {"label": words, "doc": stage(of).summary, "run": f"{of}.cwl", **more, "in": chosen | wires, "out": outputs}


def when(source: str) -> tuple[Cwl, Cwl]:
    """The input that decides whether a step runs, and the condition."""
    return {"wanted": source}, {"when": "$(inputs.wanted)"}


def _inputs() -> Cwl:
    """Every setting of the config, memory and time of the jobs, and what CWL alone needs."""
    inputs: Cwl = {}
    for name in STAGES:
        for port in settings(name):
            if not port.section:
                inputs[input_name(name, port)] = described(port) | {"label": f"{name}.{port.name}"}
        for key, value in needs_inputs(name).items():
            inputs[f"{name}_{key}"] = value | {"label": f"{value['label']} of {name}"}
    # Without a value the grid follows the bands.
    grid_assets = next(port for port in stage("search").ports if port.name == "grid_assets")
    inputs["search_grid_assets"] |= {"type": ["null", cwl_type(grid_assets)]}
    del inputs["search_grid_assets"]["default"]
    number, numbers = (
        "number of folds of a cross-validation beside the model; 0: none",
        {"type": "array", "items": "int"},
    )
    return inputs | {
        "train_state": entry(["null", "Directory"], "state", "checkpoints of a training that did not end"),
        "map_parts": entry("int", "map parts", PARTS_OF_MAP) | {"default": 1},
        "folds": entry("int", "folds", number) | {"default": 0},
        "fold": entry(numbers, "fold numbers", "folds to run, such as [0, 1, 2] of 3 folds") | {"default": []},
        "with_onnx": entry("boolean", "with ONNX", "export the model to ONNX") | {"default": True},
        "with_report": entry("boolean", "with report", "make the report and the cards") | {"default": True},
        "with_products": entry("boolean", "with products", "make polygons, QGIS style and areas of zones of the maps")
        | {"default": False},
        "with_crate": entry("boolean", "with crate", "make the Provenance Run Crate") | {"default": True},
        "config": entry(["null", "File"], "config", "config of the job, for the crate", "iana:application/yaml"),
        "lock": entry(["null", "File"], "lock", "pinned versions of the software, for the crate", "iana:text/plain"),
        "workflow": entry("File", "workflow", "all of this workflow in one file, which the crate contains")
        | {"default": {"class": "File", "location": PACKED}},
    }


def pipeline() -> Cwl:
    """The whole pipeline."""
    images = {"tiles": IMAGES, "labels": LABELS}
    steps = _data_steps() | _model_steps(images, "steps/mosaic", "steps/images", ("cells/cells", "cells/endings"))
    steps["train"]["in"]["state"] = "train_state"
    steps["cross_validate"] = _cross_validation()
    steps |= _result_steps()
    steps["crate"] = _crate_step(steps)
    return workflow_document(
        "eopipe",
        "Satellite scenes to a trained, evaluated, mapped and citable model.",
        ("operation_2426", "operation_2423"),
        {"inputs": used_inputs(steps, ()), "steps": steps, "outputs": _outputs()},
    )


def _data_steps() -> dict[str, Cwl]:
    """From the catalog to images and labels on one grid."""
    grid = {"grid": "search/grid"}
    assets = {"source": ["search_grid_assets", "preprocess_bands"], "pickValue": "first_non_null", **SELF}
    fetched = {"item": "search/items_each", "catalog": "search_catalog", **grid}
    tiled = {"scene": "fetch/scene", **grid, "tiles_name": {"valueFrom": "$(inputs.scene.basename).zarr"}}
    of_file, if_file = when("steps/label_file")
    of_scenes, if_scenes = when("steps/label_scenes")
    # Engines put all outputs into one folder, where the tiles of the scene have its name.
    labels_name = {"valueFrom": "labels-$(inputs.scene.basename).zarr"}
    scene_labels = grid | {"scene": "fetch/scene", "labels_name": labels_name}
    return {
        "steps": _plain_step("steps", steps_tool(), with_labels={"default": True}),
        "search": stage_step("search", {"grid_assets": assets}),
        "cells": _plain_step("cells", cells_tool(), grid="search/grid"),
        "fetch": stage_step(
            "fetch", fetched | {"scene_name": {"valueFrom": "$(inputs.item.nameroot)"}}, scatter="item"
        ),
        "preprocess": stage_step("preprocess", tiled, scatter="scene"),
        "composite": _composites_step(),
        "label": stage_step("label", grid | {"labels_name": {"default": "labels-all.zarr"}} | of_file, **if_file),
        "label_scenes": stage_step("label_scenes", scene_labels | of_scenes, of="label", scatter="scene", **if_scenes),
    }


def _plain_step(name: str, document: Cwl, **wires: Any) -> Cwl:
    """A step of a small tool; its inputs without a wire are those of the pipeline."""
    inputs = {key: wires.get(key, key) for key in document["inputs"]}
    outputs = list(document["outputs"])
    return {"label": name, "doc": document["doc"], "run": f"{name}.cwl", "in": inputs, "out": outputs}


def _composites_step() -> Cwl:
    inputs, condition = when("steps/composite")
    wires = {"tiles": "preprocess/tiles", "items": "search/items"} | inputs
    names = {name: name for name in composites()["inputs"] if name not in wires}
    doc = "Composite the scenes of each period; without composites the model sees the scenes."
    return {
        "label": "composite",
        "doc": doc,
        "run": "composites.cwl",
        **condition,
        "in": wires | names,
        "out": ["images", "record"],
    }


def _model_steps(images: Cwl, mosaic: str, each_image: str, cells: tuple[str, str], number: str = "") -> dict[str, Cwl]:
    """Split, training, maps and scores; `number` is the end of each output's name, by the fold.

    `cells` are the cells that have a map each, and what the names of the maps end with.
    """
    fold_input = {"fold": "fold"} if number else {}

    def names(**outputs: str) -> Cwl:
        # The part before the ending of the file is what differs.
        parts = {key: value.partition(".") for key, value in outputs.items()} if number else {}
        return fold_input | {f"{k}_name": {"valueFrom": f"{p[0]}{number}{p[1]}{p[2]}"} for k, p in parts.items()}

    of_split = names(chips="split.json", statistics="statistics.json", map="split.png", places="split.gpkg")
    of_mosaic, if_mosaic = when(mosaic)
    calibrated = images | {"model": MODEL, "chips": "split/chips"}
    mapped = {"model": MODEL, "tiles": images["tiles"], "calibration": "calibrate/calibration"} | of_mosaic
    mapped |= {"cell": cells[0], "ending": cells[1]} | fold_input
    mapped |= {f"{k}_name": {"valueFrom": f"{k}{number}$(inputs.ending).tif"} for k in ("classes", "probabilities")}
    each_cell: Cwl = {"scatter": ["cell", "ending"], "scatterMethod": "dotproduct"}
    parts = {} if number else _map_parts(mapped, if_mosaic)
    files = [f"predict_parts/{output}" for output in MAPS]
    joined = {"finished_parts": {"source": files, **MERGED}} if parts else {}
    steps = {
        "split": stage_step("split", images | of_split),
        "train": stage_step("train", images | _split_files() | names(model="model")),
        "calibrate": stage_step("calibrate", calibrated | names(calibration="calibration.json")),
        **parts,
        "predict": stage_step("predict", mapped | joined, **each_cell, **if_mosaic),
        "predict_images": _image_maps(images["tiles"], each_image, number) | {},
        "evaluate": stage_step("evaluate", images | MAPS | {"chips": "split/chips"} | names(metrics="metrics.json")),
    }
    steps["predict_images"]["in"] |= fold_input
    if number:
        steps["split"]["in"] |= {"fold": "fold", "folds": "folds"}
    return steps


def _map_parts(mapped: Cwl, if_mosaic: Cwl) -> Cwl:
    """The step that makes the parts of the maps; none where a map is made as a whole."""
    wires = mapped | {"cell": "cells/part_cells", "ending": "cells/part_endings", "part": "cells/parts"}
    each: Cwl = {"scatter": ["cell", "ending", "part"], "scatterMethod": "dotproduct"}
    return {"predict_parts": stage_step("predict_parts", wires, of="predict", **each, **if_mosaic)}


def _split_files() -> Cwl:
    return {"chips": "split/chips", "statistics": "split/statistics"}


def _image_maps(images: Any, each_image: str, number: str) -> Cwl:
    """A map of each image, where they do not belong to one mosaic."""
    inputs, condition = when(each_image)
    wires = {"image": images, "model": MODEL, "calibration": "calibrate/calibration"} | inputs
    names = {
        f"{name}_name": {"valueFrom": f"{name}{number}-$(inputs.image.basename).tif"}
        for name in ("classes", "probabilities")
    }
    chosen = {name: name for name in image_map()["inputs"] if name not in wires | names}
    return {
        "label": "predict images",
        "doc": "Map each image by itself, where labels or splits differ between them; scatter over the images.",
        "run": "image-map.cwl",
        "scatter": "image",
        **condition,
        "in": wires | names | chosen,
        "out": ["classes", "probabilities", "record"],
    }


def _cross_validation() -> Cwl:
    document = fold()
    wires = {"tiles": IMAGES, "labels": LABELS, "mosaic": "steps/mosaic", "images": "steps/images"}
    wires |= {"cells": "cells/cells", "endings": "cells/endings"}
    return {
        "label": "cross-validate",
        "doc": "Cross-validation; scatter over the folds.",
        "run": "fold.cwl",
        "scatter": "fold",
        "in": {name: wires.get(name, name) for name in document["inputs"]},
        "out": list(document["outputs"]),
    }


def _result_steps() -> dict[str, Cwl]:
    """What is written about model and maps."""
    described_run = {
        "model": MODEL,
        "tiles": IMAGES,
        "scenes": "search/items_each",
        "metrics": "evaluate/metrics",
    } | MAPS
    of_onnx, if_onnx = when("with_onnx")
    of_report, if_report = when("with_report")
    of_products, if_products = when("with_products")
    first = {"model": MODEL, "tiles": IMAGES | {"valueFrom": "$(self[0])"}}
    scored = {"fold_metrics": "cross_validate/metrics"}
    reported = described_run | scored | {"chips": "split/chips", "labels": LABELS}
    return {
        "export": stage_step("export", first | of_onnx, **if_onnx),
        "report": stage_step("report", reported | of_report, **if_report),
        "products": stage_step("products", MAPS | of_products, **if_products),
        "publish": stage_step("publish", described_run | {"onnx": "export/onnx"}, of="catalog"),
    }


def _crate_step(steps: dict[str, Cwl]) -> Cwl:
    records = [f"{name}/{out}" for name, step in steps.items() for out in step["out"] if out.endswith("record")]
    payload = ["search/grid", "search/selection", *(f"split/{out}" for out in ("chips", "statistics", "map", "places"))]
    payload += ["evaluate/metrics", "export/onnx", "export/check"]
    payload += [f"report/{out}" for out in ("page", "picture", "model_card", "data_card")]
    payload += ["train/model", "calibrate/calibration", *CLASSES["source"], *PROBABILITIES["source"]]
    payload += ["cross_validate/metrics", "cross_validate/model"]
    inputs, condition = when("with_crate")
    wires: Cwl = {
        "records": {"source": records, **MERGED},
        "payload": {"source": payload, **MERGED, **SELF},
        "scenes": "search/items_each",
        "workflow": "workflow",
        "config": "config",
        "lock": "lock",
        "engine": {"default": "cwl"},
    }
    return stage_step("crate", wires | inputs, **condition)


def _outputs() -> Cwl:
    optional_file, optional_folder = ["null", "File"], ["null", "Directory"]
    each_model = {"type": "array", "items": optional_folder}
    rows: list[tuple[str, Any, str, str, Any]] = [
        ("grid", "File", "grid of the run", JSON, "search/grid"),
        ("selection", "File", "selected scenes, and the excluded ones with the reason", JSON, "search/selection"),
        ("tiles", EACH_FOLDER, "one Zarr store per scene", "", "preprocess/tiles"),
        ("composites", ["null", EACH_FOLDER], "one Zarr store per period", "", "composite/images"),
        ("labels", EACH_FOLDER, "label store of all scenes, or one per scene", "", LABELS),
        ("chips", "File", "samples of each split", JSON, "split/chips"),
        ("statistics", "File", "band statistics of the training chips", JSON, "split/statistics"),
        ("split_map", "File", "map of the splits", "iana:image/png", "split/map"),
        ("split_places", "File", "chips as polygons", "iana:application/geopackage+sqlite3", "split/places"),
        ("model", optional_folder, "trained model", "", "train/model"),
        ("train_checkpoints", optional_folder, "checkpoints of a training that did not end", "", "train/checkpoints"),
        ("calibration", "File", "temperature of the probabilities", JSON, "calibrate/calibration"),
        ("onnx", optional_file, "the model in ONNX format", "edam:format_2333", "export/onnx"),
        ("classes", EACH_FILE, "map of classes, of all images or one of each", TIFF, CLASSES),
        ("probabilities", EACH_FILE, "map of probabilities, of all images or one of each", TIFF, PROBABILITIES),
        ("metrics", "File", "scores of the maps in the test areas", JSON, "evaluate/metrics"),
        ("page", optional_file, "the report as one HTML page", "iana:text/html", "report/page"),
        ("picture", optional_file, "the map as a PNG image", "iana:image/png", "report/picture"),
        ("model_card", optional_file, "model card in Markdown", "iana:text/markdown", "report/model_card"),
        ("data_card", optional_file, "data card in Markdown", "iana:text/markdown", "report/data_card"),
        ("products", optional_folder, "polygons, QGIS style and areas of zones", "", "products/products"),
        ("stac", "Directory", "STAC catalog of model, maps and tiles", "", "publish/catalog"),
        ("run_crate", optional_folder, "Provenance Run Crate", "", "crate/crate"),
        ("fold_metrics", EACH_FILE, "scores of each fold", JSON, "cross_validate/metrics"),
        ("fold_models", each_model, "trained model of each fold", "", "cross_validate/model"),
    ]
    return {name: _output(kind, name, doc, form, source) for name, kind, doc, form, source in rows}


def _output(kind: Any, name: str, doc: str, form: str, source: Any) -> Cwl:
    merged = {key: value for key, value in source.items() if key != "source"} if isinstance(source, dict) else {}
    sources = source["source"] if isinstance(source, dict) else source
    return entry(kind, name.replace("_", " "), doc, form) | {"outputSource": sources} | merged


def fold() -> Cwl:
    """One fold of a cross-validation."""
    images = {"tiles": "tiles", "labels": "labels"}
    steps = _model_steps(images, "mosaic", "images", ("cells", "endings"), "-fold-$(inputs.fold)")
    model = _output(["null", "Directory"], "model", "trained model of the fold", "", "train/model")
    outputs = {"metrics": _output("File", "metrics", "scores of the fold", JSON, "evaluate/metrics"), "model": model}
    for name, step in steps.items():
        record = _output(["null", "File"], f"record of {name}", "run record of the job", JSON, f"{name}/record")
        if "scatter" in step:
            record["type"] = ["null", {"type": "array", "items": ["null", "File"]}]
        outputs[f"{name}_record"] = record
    known = {
        "fold": entry("int", "fold", "fold used for testing, from 0"),
        "folds": entry("int", "folds", "number of folds, at least 3"),
        "tiles": FOLDERS | {"label": "tiles", "doc": "tile stores of all images"},
        "labels": FOLDERS | {"label": "labels", "doc": "label store of all scenes, or one for each"},
        "mosaic": entry("boolean", "mosaic", "map all images as one"),
        "images": entry("boolean", "images", "map each image by itself"),
        "cells": entry("string[]", "cells", "cells that have a map each; an empty text for the only cell"),
        "endings": entry("string[]", "endings", "what the names of the maps of the cells end with"),
    }
    return workflow_document(
        "eopipe fold",
        "One fold of a cross-validation, split, trained, mapped and evaluated; the name of every output contains the "
        "fold's number.",
        ("operation_2426", "operation_2428"),
        {"inputs": known | used_inputs(steps, known), "steps": steps, "outputs": outputs},
    )


def composites() -> Cwl:
    """The composites of all periods."""
    periods = periods_tool()
    step = stage_step(
        "composite",
        {"tiles": "periods/groups", "composite_name": "periods/names"},
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
        "images": _output(EACH_FOLDER, "composites", "one Zarr store per period", "", "composite/composite"),
        "record": _output(EACH_FILE, "records", "run records of the jobs", JSON, "composite/record"),
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
        "classes_name": entry("string", "classes", "name of the map of classes"),
        "probabilities_name": entry("string", "probabilities", "name of the map of probabilities"),
    }
    wires = {name: name for name in known if name != "image"}
    step = stage_step("predict", {"tiles": {"source": ["image"], "linkMerge": "merge_nested"}} | wires)
    outputs = {
        "classes": _output("File", "classes", "map of classes", TIFF, "predict/classes"),
        "probabilities": _output("File", "probabilities", "map of probabilities", TIFF, "predict/probabilities"),
        "record": _output("File", "record", "run record of the job", JSON, "predict/record"),
    }
    return workflow_document(
        "eopipe image map",
        "The map of one image.",
        ("operation_2423",),
        {"inputs": known | used_inputs({"predict": step}, known), "steps": {"predict": step}, "outputs": outputs},
    )


def used_inputs(steps: dict[str, Cwl], known: Iterable[str]) -> Cwl:
    """The inputs of the pipeline that steps of another workflow use."""
    values = [value for step in steps.values() for value in step["in"].values()]
    sources = [value.get("source", []) if isinstance(value, dict) else value for value in values]
    names = {name for entry in sources for name in ([entry] if isinstance(entry, str) else entry)} - {*known}
    return {name: value for name, value in _inputs().items() if name in names}
