"""The tools of the CWL workflows that are not stages: what runs, which cells and images there are, scenes by period."""

from typing import Any

from dev.cwl import AUTHORS, HINTS, NAMESPACES, PARTS_OF_MAP, described, requirements
from dev.cwl_variants import entry
from eopipe.contract import STAGES, stage


def steps_tool() -> dict[str, Any]:
    """The tool that decides which of the optional steps a job has."""
    deciding = (("label", "asset"), ("composite", "method"), ("split", "method"), ("split", "by"))
    outputs = {
        "label_file": "one file has the labels of all scenes",
        "label_scenes": "each scene has labels of its own",
        "composite": "the model sees composites, not scenes",
        "mosaic": "all images have one map",
        "images": "each image has a map of its own",
    }
    ports = {name: {port.name: port for port in stage(name).ports} for name in STAGES}
    labels = entry(
        "boolean", "with labels", "the run has labels: for a training, or for a test of a finished model's map"
    )
    return _small_tool(
        "steps",
        "Decide which steps the settings need.",
        {f"{name}_{key}": described(ports[name][key]) for name, key in deciding} | {"with_labels": labels},
        {name: entry("boolean", name.replace("_", " "), doc) for name, doc in outputs.items()},
    )


def cells_tool() -> dict[str, Any]:
    """The tool that lists the cells of a run, each of which has a map, and the parts of the maps."""
    inputs = {
        "grid": entry("File", "grid", "grid of the run", "iana:application/json"),
        "map_parts": entry("int", "map parts", PARTS_OF_MAP) | {"default": 1},
    }
    outputs = {
        "cells": "cells of the run; an empty text for the only one",
        "endings": "what the names of the maps of the cells end with",
        "parts": "parts of the maps of all cells, such as 3-of-16; none where a map is made as a whole",
        "part_cells": "the cell of each part",
        "part_endings": "what the names of its files end with",
    }
    return _small_tool("cells", "List the cells of the run.", inputs, _texts(outputs))


def images_tool() -> dict[str, Any]:
    """The tool that lists the cells that each image reaches, where each has a map of its own."""
    tiles = {port.name: described(port) for port in stage("composite").ports}["tiles"]
    outputs = {
        "image_cells": "each cell of each image; an empty text for the only one",
        "image_endings": "what the name of the map of an image in a cell ends with",
    }
    stores = entry("Directory[]", "image stores", "tile store of each of the image cells")
    doc = "List the cells of each image."
    return _with_tiles(_small_tool("images", doc, {"tiles": tiles}, {"image_stores": stores} | _texts(outputs)))


def _texts(outputs: dict[str, str]) -> dict[str, Any]:
    return {name: entry("string[]", name.replace("_", " "), doc) for name, doc in outputs.items()}


def periods_tool() -> dict[str, Any]:
    """The tool that groups the tiles of the scenes by the periods of their composites."""
    ports = {port.name: described(port) for port in stage("composite").ports}
    items = entry("Directory", "items", "frozen STAC Items of the run")
    nested = {"type": "array", "items": {"type": "array", "items": "Directory"}}
    document = _small_tool(
        "periods",
        "Group the tiles of the scenes by the period of their composite.",
        {"items": items, **{name: ports[name] for name in ("tiles", "period", "stack", "parts")}},
        {
            "groups": entry(nested, "groups", "tile stores of the scenes of each period"),
            "names": entry({"type": "array", "items": "string"}, "names", "name of the composite of each period"),
        },
    )
    return _with_tiles(document)


def _with_tiles(document: dict[str, Any]) -> dict[str, Any]:
    """A tool that reads the paths of its tiles from a list."""
    del document["inputs"]["tiles"]["inputBinding"]
    listing = [{"entryname": "tiles.list.json", "entry": "$(inputs.tiles)\n"}]
    document["requirements"] |= {"InitialWorkDirRequirement": {"listing": listing}}
    # Its outputs are inputs: in the cache of an engine they would be paths of an earlier run.
    document["requirements"] |= {"WorkReuse": {"enableReuse": False}}
    return document | {"arguments": ["--tiles", "@tiles.list.json"]}


def _small_tool(name: str, doc: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """A tool of one moment, whose results are values that the engine reads from cwl.output.json."""
    needs = {"ResourceRequirement": {"coresMin": 1, "coresMax": 1, "ramMin": 1000, "ramMax": 1000}}
    return {
        "cwlVersion": "v1.2",
        "class": "CommandLineTool",
        "$namespaces": NAMESPACES,
        "label": f"eopipe cwl {name}",
        "doc": doc,
        "intent": ["edam:operation_2409"],
        **AUTHORS,
        "requirements": requirements("split") | needs | {"ToolTimeLimit": {"timelimit": 600}},
        "hints": HINTS,
        "baseCommand": ["eopipe", "cwl", name],
        "inputs": {
            key: port | {"inputBinding": {"prefix": f"--{key.replace('_', '-')}"}} for key, port in inputs.items()
        },
        "outputs": outputs,
    }
