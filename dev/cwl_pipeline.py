"""The CWL workflows, derived from the stages: the pipeline, and its parts that CWL can only repeat as a workflow.

An input of the pipeline is a setting of the config: `train_epochs` is `epochs` in the section `train`.
"""

from typing import Any

from dev.app_package import Cwl
from dev.cwl import workflow_document
from dev.cwl_repeated import composites, image_inputs, image_map, records_of
from dev.cwl_small_tools import cells_tool, images_tool, steps_tool
from dev.cwl_steps import EACH_FILE, EACH_FOLDER, TIFF, plain_step, stage_step, used_inputs
from dev.cwl_variants import JSON, MERGED, SELF, entry, output, when
from eopipe.contract import STAGES, Output, stage
from eopipe.stages.choose import USES
from eopipe.trial_settings import MAX_RUNGS

# What the model sees: composites if the run has them, else the tiles of each scene.
IMAGES = {"source": ["composite/images", "preprocess/tiles"], "pickValue": "first_non_null"}
LABELS = {"source": ["label/labels", "label_scenes/labels"], **MERGED}
# A training that was ended early has no model, and then nothing can follow.
ONE_MODEL = {"linkMerge": "merge_nested", "pickValue": "the_only_non_null", **SELF}
TRAINED = {"source": ["train/model"], **ONE_MODEL}
# With trials the step `choose` has it, with members the step `combine`.
MODEL = {"source": ["train/model", "choose/model", "combine/model"], **ONE_MODEL}
CLASSES = {"source": ["predict/classes", "predict_images/classes"], **MERGED}
PROBABILITIES = {"source": ["predict/probabilities", "predict_images/probabilities"], **MERGED}
MAPS = {"classes": CLASSES, "probabilities": PROBABILITIES}
# Where the pipeline has what its stages read: an input is the output of the same name, but where several steps make it.
SOURCES: Cwl = {port.name: f"{name}/{port.name}" for name in STAGES for port in stage(name).of(Output)} | MAPS
SOURCES |= {"scenes": "search/items_each", "tiles": IMAGES, "labels": LABELS, "model": MODEL}
SOURCES["fold_metrics"] = "cross_validate/metrics"
# Outputs of the steps `cells` and `images`, by which maps are repeated: of all images, and of each image.
EACH_CELL = {"cell": "cells", "ending": "endings"}
EACH_IMAGE = {"image": "image_stores", "cell": "image_cells", "ending": "image_endings"}


def pipeline() -> Cwl:
    """The whole pipeline."""
    of_model = _model_steps(SOURCES, "steps/mosaic", "steps/images", is_whole=True)
    of_training, if_training = when("with_training")
    of_model["train"]["in"] |= {"state": "train_state"} | of_training
    of_model["train"] |= if_training
    trained = {name: of_model.pop(name) for name in ("split", "train")}
    steps = _data_steps() | trained | _training_steps() | of_model
    steps["evaluate"]["in"]["member_maps"] = "members/classes"
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
    assets = {"source": ["search_grid_assets", "preprocess_bands"], "pickValue": "first_non_null", **SELF}
    fetched: Cwl = {"item": "search/items_each", "catalog": "search_catalog"}
    fetched |= {"scene_name": {"valueFrom": "$(inputs.item.nameroot)"}}
    tiled = {"tiles_name": {"valueFrom": "$(inputs.scene.basename).zarr"}}
    of_file, if_file = when("steps/label_file")
    of_scenes, if_scenes = when("steps/label_scenes")
    of_images, if_images = when("steps/images")
    images = plain_step("images", images_tool(), tiles=IMAGES)
    # Engines put all outputs into one folder, where the tiles of the scene have its name.
    file_labels: Cwl = {"scene": None, "labels_name": {"default": "labels-all.zarr"}}
    scene_labels = {"labels_name": {"valueFrom": "labels-$(inputs.scene.basename).zarr"}}
    return {
        "steps": plain_step("steps", steps_tool(), with_labels={"default": True}),
        "search": stage_step("search", SOURCES, {"grid_assets": assets}),
        "cells": plain_step("cells", cells_tool(), grid="search/grid"),
        "images": images | {"in": images["in"] | of_images} | if_images,
        "fetch": stage_step("fetch", SOURCES, fetched, scatter="item"),
        "preprocess": stage_step("preprocess", SOURCES, tiled, scatter="scene"),
        "composite": _composites_step(),
        "label": stage_step("label", SOURCES, file_labels | of_file, **if_file),
        "label_scenes": stage_step(
            "label_scenes", SOURCES, scene_labels | of_scenes, of="label", scatter="scene", **if_scenes
        ),
    }


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


def _model_steps(
    sources: Cwl, mosaic: str, each_image: str, number: str = "", *, is_whole: bool = False
) -> dict[str, Cwl]:
    """Split, training, maps and scores; `number` is the end of each output's name, by the fold.

    In the whole pipeline steps say which maps there are, in others inputs.
    """
    fold_input = {"fold": "fold"} if number else {}

    def names(**outputs: str) -> Cwl:
        # The part before the ending of the file is what differs.
        parts = {key: value.partition(".") for key, value in outputs.items()} if number else {}
        return fold_input | {f"{k}_name": {"valueFrom": f"{p[0]}{number}{p[1]}{p[2]}"} for k, p in parts.items()}

    of_split = names(chips="split.json", statistics="statistics.json", map="split.png", outlines="split.gpkg")
    of_mosaic, if_mosaic = when(mosaic)
    # A map is of all places, not of chips.
    mapped: Cwl = {"chips": None} | of_mosaic
    mapped |= ({name: f"cells/{source}" for name, source in EACH_CELL.items()} if is_whole else EACH_CELL) | fold_input
    mapped |= {f"{k}_name": {"valueFrom": f"{k}{number}$(inputs.ending).tif"} for k in ("classes", "probabilities")}
    each_cell: Cwl = {"scatter": [*EACH_CELL], "scatterMethod": "dotproduct"}
    each_map = (_of_images() if is_whole else EACH_IMAGE) | {name: sources[name] for name in ("model", "calibration")}
    parts = {} if number else _map_parts(sources, mapped, if_mosaic)
    files = [f"predict_parts/{output}" for output in MAPS]
    joined = {"finished_parts": {"source": files, **MERGED}} if parts else {}
    steps = {
        "split": stage_step("split", sources, of_split),
        "train": stage_step("train", sources, names(model="model")),
        "calibrate": stage_step("calibrate", sources, names(calibration="calibration.json")),
        **parts,
        "predict": stage_step("predict", sources, mapped | joined, **each_cell, **if_mosaic),
        "predict_images": _image_maps(each_map, each_image, number),
        "evaluate": stage_step("evaluate", sources, names(metrics="metrics.json")),
    }
    steps["predict_images"]["in"] |= fold_input
    if number:
        steps["split"]["in"] |= {"fold": "fold", "folds": "folds"}
    return steps


def _map_parts(sources: Cwl, mapped: Cwl, if_mosaic: Cwl) -> Cwl:
    """The step that makes the parts of the maps; none where a map is made as a whole."""
    wires = mapped | {"cell": "cells/part_cells", "ending": "cells/part_endings", "part": "cells/parts"}
    each: Cwl = {"scatter": ["cell", "ending", "part"], "scatterMethod": "dotproduct"}
    return {"predict_parts": stage_step("predict_parts", sources, wires, of="predict", **each, **if_mosaic)}


def _of_images() -> Cwl:
    """The outputs of the step `images`; empty where it does not run."""
    return {name: {"source": [f"images/{source}"], **MERGED} for name, source in EACH_IMAGE.items()}


def _image_maps(wires: Cwl, each_image: str, number: str) -> Cwl:
    """A map of each image in each of its cells, where they do not belong to one mosaic."""
    inputs, condition = when(each_image)
    wires = wires | inputs
    names = {
        f"{name}_name": {"valueFrom": f"{name}{number}-$(inputs.image.basename)$(inputs.ending).tif"}
        for name in ("classes", "probabilities")
    }
    unset = wires | names | {"calibration": None, "chips": None, "places": None}
    chosen = {name: name for name in image_map()["inputs"] if name not in unset}
    return {
        "label": "predict images",
        "doc": "Map each image by itself, where labels or splits differ between them; scatter over the images.",
        "run": "image-map.cwl",
        "scatter": [*EACH_IMAGE],
        "scatterMethod": "dotproduct",
        **condition,
        "in": wires | names | chosen,
        "out": ["classes", "probabilities", "record"],
    }


def _cross_validation() -> Cwl:
    return _repeated("cross-validate", "Cross-validation; scatter over the folds.", "fold", fold(), {"scatter": "fold"})


def _training_steps() -> dict[str, Cwl]:
    """Several trainings, and what makes one model of them; none of these steps where there is a single one."""
    each: Cwl = {"scatter": ["name", "settings"], "scatterMethod": "dotproduct"}
    docs = {
        "trial": "Trials of the training, each mapped on the validation places; scatter over the trials.",
        "member": "Members of an ensemble, each mapped on the test places; scatter over the members.",
    }
    steps = _rung_steps()
    for kind, places in (("trial", "val"), ("member", "test")):
        wires: Cwl = {"name": f"{kind}_names", "settings": f"{kind}_settings"}
        wires |= {"kind": {"default": kind}, "places": {"default": places}}
        wires |= {"continued": {"default": None}, "promoted": {"default": None}}
        steps[f"{kind}s"] = _repeated(f"{kind}s", docs[kind], "training", training(), each, wires)
    last = MAX_RUNGS - 1
    steps["trials"]["in"] |= {
        "continued": _models_of_rung(last),
        "promoted": f"promote_{last}/rung",
    }
    steps["trials"]["scatter"] = [*each["scatter"], "continued"]
    of_trials, if_trials = when("with_trials")
    of_members, if_members = when("with_members")
    chosen: Cwl = {"models": "trials/model", "classes": "trials/classes"} | _named("model", "leaderboard", "page")
    chosen |= {"rungs": {"source": [f"promote_{number}/rung" for number in range(MAX_RUNGS)], **MERGED, **SELF}}
    averaged = {"models": "members/model"} | _named("model")
    return steps | {
        "choose": stage_step("choose", SOURCES, chosen | of_trials, **if_trials),
        "combine": _reducer_step("combine", "mean", averaged | of_members, if_members),
    }


def _reducer_step(name: str, reducer: str, wires: Cwl, condition: Cwl) -> Cwl:
    """A step of the stage `choose` with a reducer, and without inputs of the run that this does not use."""
    unused = dict.fromkeys(["score", *USES["reducer"]["best"][0]])
    return stage_step(name, SOURCES, unused | {"reducer": {"default": reducer}} | wires, of="choose", **condition)


def _named(*outputs: str) -> Cwl:
    """The names of outputs of the stage `choose`: a job has those that its reducer makes."""
    marks = {port.name: port.mark for port in stage("choose").ports}
    return {f"{name}_name": {"default": mark.name} for name in outputs if isinstance(mark := marks[name], Output)}


def _models_of_rung(number: int) -> Cwl:
    """The models of all trials of a rung, which are a list also where the rung is skipped."""
    # The second source is never reached. Without `pickValue` cwltool warns of a step with a condition, and of a single
    # source StreamFlow takes the elements of its list in the place of the list.
    return {"source": [f"rung_{number}/model", "trial_names"], "pickValue": "first_non_null", **SELF}


def _rung_steps() -> dict[str, Cwl]:
    """Trainings of the trials up to each rung, and which of them continue; a job with fewer rungs has the last ones."""
    steps: dict[str, Cwl] = {}
    for number in range(MAX_RUNGS):
        of_rung, condition = when(f"with_rung_{number}")
        named: Cwl = {"name": "trial_names", "settings": "trial_settings", "until": f"rung_{number}_until"}
        named |= {"model_name": {"valueFrom": "model-trial-$(inputs.name)"}}
        each: Cwl = {"scatter": ["name", "settings"], "scatterMethod": "dotproduct"}
        before: Cwl = {}
        if number:
            named |= {
                "continued": _models_of_rung(number - 1),
                "promoted": f"promote_{number - 1}/rung",
            }
            each["scatter"] = [*each["scatter"], "continued"]
            before = {"previous": f"promote_{number - 1}/rung"}
        steps[f"rung_{number}"] = stage_step(
            f"rung_{number}", SOURCES, named | of_rung, of="train", **each, **condition
        )
        compared = {
            "models": _models_of_rung(number),
            "count": f"rung_{number}_count",
        } | before
        compared |= {"rung_name": f"rung_{number}_name"} | of_rung
        steps[f"promote_{number}"] = _reducer_step(f"promote_{number}", "halving", compared, condition)
    return steps


def _repeated(label: str, doc: str, kind: str, document: Cwl, each: Cwl, wires: Cwl | None = None) -> Cwl:
    """A workflow that is repeated on the images of the run."""
    of_run = {name: SOURCES[name] for name in ("tiles", "labels", "chips", "statistics")}
    of_run |= {"mosaic": "steps/mosaic", "images": "steps/images"}
    of_run |= {name: f"cells/{name}" for name in EACH_CELL.values()} | (wires or {})
    of_run |= {EACH_IMAGE[name]: wire for name, wire in _of_images().items()}
    inputs = {name: of_run.get(name, name) for name in document["inputs"]}
    return {"label": label, "doc": doc, "run": f"{kind}.cwl", **each, "in": inputs, "out": list(document["outputs"])}


def _result_steps() -> dict[str, Cwl]:
    """What is written about model and maps."""
    of_onnx, if_onnx = when("with_onnx")
    of_report, if_report = when("with_report")
    cards: Cwl = {f"{name}_name": {"default": f"{name.replace('_', '-')}.md"} for name in ("model_card", "data_card")}
    of_products, if_products = when("with_products")
    of_areas, if_areas = when("with_areas")
    first = {"tiles": IMAGES | {"valueFrom": "$(self[0])"}}
    return {
        "estimate": stage_step("estimate", SOURCES, of_areas, **if_areas),
        "export": stage_step("export", SOURCES, first | of_onnx, **if_onnx),
        "report": stage_step("report", SOURCES, cards | of_report, **if_report),
        "products": stage_step("products", SOURCES, of_products, **if_products),
        "publish": stage_step("publish", SOURCES, of="catalog"),
    }


def _crate_step(steps: dict[str, Cwl]) -> Cwl:
    records = [f"{name}/{out}" for name, step in steps.items() for out in step["out"] if out.endswith("record")]
    of_split = [f"split/{out}" for out in ("chips", "statistics", "map", "outlines")]
    payload = ["search/grid", "search/selection", *of_split, "evaluate/metrics", "export/onnx", "export/check"]
    payload += ["estimate/areas", "estimate/page", "evaluate_sample", "evaluate_sample_design"]
    payload += [f"report/{out}" for out in ("page", "picture", "model_card", "data_card")]
    payload += ["train/model", "calibrate/calibration", *CLASSES["source"], *PROBABILITIES["source"]]
    payload += ["cross_validate/metrics", "cross_validate/model", "trials/model", "members/model", "combine/model"]
    payload += [f"choose/{out}" for out in ("model", "leaderboard", "page")]
    payload += [f"promote_{number}/rung" for number in range(MAX_RUNGS)]
    inputs, condition = when("with_crate")
    wires: Cwl = {
        "records": {"source": records, **MERGED},
        "payload": {"source": payload, **MERGED, **SELF},
        "workflow": "workflow",
        "config": "config",
        "lock": "lock",
        "engine": {"default": "cwl"},
    }
    return stage_step("crate", SOURCES, wires | inputs, **condition)


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
        ("split_outlines", "File", "chips as polygons", "iana:application/geopackage+sqlite3", "split/outlines"),
        ("model", optional_folder, "trained model", "", "train/model"),
        ("chosen_model", optional_folder, "model of the best trial", "", "choose/model"),
        ("leaderboard", optional_file, "scores of the trials on the validation places", JSON, "choose/leaderboard"),
        ("trials_page", optional_file, "the trials as one HTML page", "iana:text/html", "choose/page"),
        ("ensemble", optional_folder, "model of the members of an ensemble", "", "combine/model"),
        ("trial_models", each_model, "trained model of each trial", "", "trials/model"),
        ("member_models", each_model, "trained model of each member of an ensemble", "", "members/model"),
        ("train_checkpoints", optional_folder, "checkpoints of a training that did not end", "", "train/checkpoints"),
        ("calibration", "File", "temperature of the probabilities", JSON, "calibrate/calibration"),
        ("onnx", optional_file, "the model in ONNX format", "edam:format_2333", "export/onnx"),
        ("classes", EACH_FILE, "map of classes, of all images or one of each", TIFF, CLASSES),
        ("probabilities", EACH_FILE, "map of probabilities, of all images or one of each", TIFF, PROBABILITIES),
        ("metrics", "File", "scores of the maps in the test areas", JSON, "evaluate/metrics"),
        ("areas", optional_file, "areas with standard errors, from a labelled sample", JSON, "estimate/areas"),
        ("areas_page", optional_file, "the same as one HTML page", "iana:text/html", "estimate/page"),
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
    return {name: output(kind, name, doc, form, source) for name, kind, doc, form, source in rows}


def fold() -> Cwl:
    """One fold of a cross-validation."""
    sources = SOURCES | {"tiles": "tiles", "labels": "labels", "model": TRAINED}
    steps = _model_steps(sources, "mosaic", "images", "-fold-$(inputs.fold)")
    model = output(["null", "Directory"], "model", "trained model of the fold", "", "train/model")
    outputs = {"metrics": output("File", "metrics", "scores of the fold", JSON, "evaluate/metrics"), "model": model}
    outputs |= records_of(steps)
    known = {
        "fold": entry("int", "fold", "fold used for testing, from 0"),
        "folds": entry("int", "folds", "number of folds, at least 3"),
        **image_inputs(),
    }
    return workflow_document(
        "eopipe fold",
        "One fold of a cross-validation, split, trained, mapped and evaluated; the name of every output contains the "
        "fold's number.",
        ("operation_2426", "operation_2428"),
        {"inputs": known | used_inputs(steps, known), "steps": steps, "outputs": outputs},
    )


def training() -> Cwl:
    """One of several trainings: its model, and maps of the places where it is scored."""
    number = "-$(inputs.kind)-$(inputs.name)"
    sources = {name: name for name in ("tiles", "labels", "chips", "statistics")} | {"model": TRAINED}
    of_training = {"name": "name", "kind": "kind", "chips": "chips", "places": "places", "model": TRAINED}
    named = {"model_name": {"valueFrom": f"model{number}"}, "name": "name", "kind": "kind", "settings": "settings"}
    named |= {"continued": "continued", "promoted": "promoted"}
    mapped = of_training | EACH_CELL | when("mosaic")[0]
    mapped |= {f"{kind}_name": {"valueFrom": f"{kind}{number}$(inputs.ending).tif"} for kind in MAPS}
    each_cell: Cwl = {"scatter": [*EACH_CELL], "scatterMethod": "dotproduct"}
    steps = {
        "train": stage_step("train", sources, named),
        "predict": stage_step("predict", sources, mapped, **each_cell, **when("mosaic")[1]),
        "predict_images": _image_maps(EACH_IMAGE | of_training, "images", number),
    }
    outputs = {
        "model": output(["null", "Directory"], "model", "trained model", "", "train/model"),
        "classes": output(EACH_FILE, "classes", "maps of the places", TIFF, CLASSES),
        **records_of(steps),
    }
    known = {
        "kind": entry("string", "kind", "what the training is: trial or member"),
        "name": entry("string", "name", "name of the trial, or number of the member"),
        "settings": entry("string", "settings", "options of the training by their names, in JSON"),
        "places": entry("string", "places", "places of the split that are mapped"),
        "continued": entry(["null", "Directory"], "continued", "model of the last rung, which the training continues"),
        "promoted": entry(["null", "File"], "promoted", "last rung, which names the trials that continue", JSON),
        "chips": entry("File", "chips", "split file", JSON),
        "statistics": entry("File", "statistics", "band statistics of the training chips", JSON),
        **image_inputs(),
    }
    return workflow_document(
        "eopipe training",
        "One of several trainings: a model with settings of its own, mapped on the places where it is scored; the name "
        "of every output contains the training's name.",
        ("operation_2426", "operation_2423"),
        {"inputs": known | used_inputs(steps, known), "steps": steps, "outputs": outputs},
    )
