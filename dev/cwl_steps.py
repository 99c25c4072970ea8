"""The steps and inputs that the CWL workflows are made of, derived from the stages.

An input of the pipeline is a setting of the config: `train_epochs` is `epochs` in the section `train`.
"""

from collections.abc import Iterable
from typing import Any

from dev.app_package import Cwl
from dev.cwl import PARTS_OF_MAP, cwl_type, described, needs_inputs, tool
from dev.cwl_small_tools import cells_tool, images_tool, periods_tool, steps_tool
from dev.cwl_variants import entry, sources
from eopipe.contract import STAGES, Input, Output, Port, stage
from eopipe.trial_settings import MAX_RUNGS

TIFF = "iana:image/tiff"
EACH_FILE, EACH_FOLDER = {"type": "array", "items": "File"}, {"type": "array", "items": "Directory"}


def tools() -> dict[str, Cwl]:
    """All tools by the names of their files: one for each stage, and three that decide on steps of the pipeline."""
    small = {"steps": steps_tool(), "cells": cells_tool(), "images": images_tool(), "periods": periods_tool()}
    return {name: tool(stage(name)) for name in STAGES} | small


def settings(name: str) -> list[Port]:
    """The ports of a stage that a config sets, in its own section or in another stage's."""
    definition = stage(name)
    shared = [port for port in definition.ports if port.section and not isinstance(port.mark, Output)]
    return [*(port for port in definition.settings if port in definition.ports), *shared]


def input_name(name: str, port: Port) -> str:
    """The input of the pipeline that sets a port of a stage."""
    return f"{port.section or name}_{port.setting}"


def stage_step(name: str, sources: Cwl, wires: Cwl | None = None, *, of: str = "", **more: Any) -> Cwl:
    """A step that runs a stage: every setting of its stage, what it reads, and other wires.

    `sources` are where the workflow has what stages read, by the names of their inputs. A wire that is None is none.
    """
    of = of or name
    chosen = {port.name: input_name(of, port) for port in settings(of)} | {
        key: f"{of}_{key}" for key in needs_inputs(of)
    }
    read = [port for port in stage(of).of(Input) if not getattr(port.mark, "user", False)]
    chosen |= {port.name: sources[port.name] for port in read if port.name in sources}
    inputs = {key: wire for key, wire in (chosen | (wires or {})).items() if wire is not None}
    words = name.replace("_", " ")
    outputs = list(tool(stage(of))["outputs"])
    return {"label": words, "doc": stage(of).summary, "run": f"{of}.cwl", **more, "in": inputs, "out": outputs}


def pipeline_inputs() -> Cwl:
    """Every setting of the config, memory and time of the jobs, and what CWL alone needs."""
    inputs: Cwl = {}
    for name in STAGES:
        for port in stage(name).settings:
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
    texts = {"type": "array", "items": "string"}
    for rung in range(MAX_RUNGS):
        doc = "share of the steps after which the trials are compared"
        inputs |= {
            f"with_rung_{rung}": entry("boolean", f"with rung {rung}", "compare the trials") | {"default": False},
            f"rung_{rung}_until": entry("double", f"rung {rung}", doc) | {"default": 0.5},
            f"rung_{rung}_name": entry("string", f"name of rung {rung}", "its file") | {"default": f"rung-{rung}.json"},
            f"rung_{rung}_count": entry("int", f"count of rung {rung}", "trials that continue") | {"default": 1},
        }
    return inputs | {
        "train_state": entry(["null", "Directory"], "state", "checkpoints of a training that did not end"),
        "map_parts": entry("int", "map parts", PARTS_OF_MAP) | {"default": 1},
        "folds": entry("int", "folds", number) | {"default": 0},
        "fold": entry(numbers, "fold numbers", "folds to run, such as [0, 1, 2] of 3 folds") | {"default": []},
        "with_training": entry("boolean", "with training", "train one model; false with trials or members")
        | {"default": True},
        "with_trials": entry("boolean", "with trials", "choose the best of several trainings") | {"default": False},
        "with_members": entry("boolean", "with members", "combine several trainings into one") | {"default": False},
        "trial_names": entry(texts, "trial names", "names of the trials of the training") | {"default": []},
        "trial_settings": entry(texts, "trial settings", "options of train of each trial, in JSON") | {"default": []},
        "member_names": entry(texts, "member names", "numbers of the members of an ensemble") | {"default": []},
        "member_settings": entry(texts, "member settings", "options of train of each member, in JSON")
        | {"default": []},
        "with_onnx": entry("boolean", "with ONNX", "export the model to ONNX") | {"default": True},
        "with_report": entry("boolean", "with report", "make the report and the cards") | {"default": True},
        "with_products": entry("boolean", "with products", "make polygons, QGIS style and areas of zones of the maps")
        | {"default": False},
        "with_areas": entry("boolean", "with areas", "estimate areas from a labelled sample (evaluate_sample)")
        | {"default": False},
        "with_crate": entry("boolean", "with crate", "make the Provenance Run Crate") | {"default": True},
        "config": entry(["null", "File"], "config", "config of the job, for the crate", "iana:application/yaml"),
        "lock": entry(["null", "File"], "lock", "pinned versions of the software, for the crate", "iana:text/plain"),
        "workflow": entry(
            "File", "workflow", "this workflow, which the crate contains; `eopipe cwl` gives it in one file"
        )
        | {"default": {"class": "File", "location": "pipeline.cwl"}},
    }


def plain_step(name: str, document: Cwl, **wires: Any) -> Cwl:
    """A step of a small tool; its inputs without a wire are inputs of the pipeline."""
    inputs = {key: wires.get(key, key) for key in document["inputs"]}
    outputs = list(document["outputs"])
    return {"label": name, "doc": document["doc"], "run": f"{name}.cwl", "in": inputs, "out": outputs}


def used_inputs(steps: dict[str, Cwl], known: Iterable[str]) -> Cwl:
    """The inputs of the pipeline that steps of another workflow use."""
    return {name: value for name, value in pipeline_inputs().items() if name in sources(steps) - {*known}}
