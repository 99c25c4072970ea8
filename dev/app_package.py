"""CWL documents of more than one process: packed workflows, and EO Application Packages (OGC 20-089).

A platform stages a STAC catalog in and a STAC catalog out, so a package begins with the search in a staged folder and
ends with the catalog of the results. Its steps are the steps of `cwl/pipeline.cwl` that the last one needs.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from eopipe import __version__

Cwl = dict[str, Any]
HOME = "https://github.com/eopipe/eopipe"
IMAGE = f"ghcr.io/eopipe/eopipe:{__version__}"
# The step of the pipeline that a package ends with.
END = "publish"
TEAM = {"class": "s:Organization", "s:name": "The eopipe team", "s:email": "team@example.org", "s:url": HOME}
ABOUT = {
    "s:name": "eopipe",
    "s:description": "Satellite scenes to a trained, measured and mapped model: train one, or map with one.",
    "s:softwareVersion": __version__,
    "s:codeRepository": HOME,
    "s:license": "https://spdx.org/licenses/Apache-2.0",
    "s:dateCreated": "2026-11-21",
    "s:keywords": ["earth observation", "machine learning", "STAC", "segmentation"],
    "s:softwareHelp": {
        "class": "s:CreativeWork",
        "s:name": "Documentation of eopipe",
        "s:url": f"{HOME}/tree/main/docs",
    },
    "s:publisher": TEAM,
    "s:author": [
        {
            "class": "s:Person",
            "s:givenName": "eopipe",
            "s:familyName": "team",
            "s:email": TEAM["s:email"],
            "s:affiliation": TEAM,
        }
    ],
}
# Keys that a document has once for all its parts.
SHARED_KEYS = ("cwlVersion", "$namespaces", "s:license", "s:author")
STAC = {
    "type": "Directory",
    "label": "STAC catalog",
    "doc": "model, maps and tiles",
    "outputSource": f"{END}/catalog",
}
# The temperature belongs to the mosaic of one run and is not part of the catalog, so both packages map without it.
UNCALIBRATED = ("predict", "calibration")
# A platform runs one package for a scene or an area: its maps are not divided.
WHOLE_MAPS = (("predict", "finished_parts"), ("cells", "map_parts"), ("evaluate", "member_maps"))
# The person who sends a model must not be the one who allows its code: the package maps with built-in architectures.
NO_CODE = ("predict", "allow_code")
MODEL = {
    "type": "Directory",
    "label": "model",
    "doc": "STAC catalog with the trained model, as the package eopipe-train makes it, or the folder of a model",
}


SCENES = {"type": "Directory", "label": "scenes", "doc": "STAC catalog of scenes, staged in by the platform"}
# A package has one map of all its scenes, and one file of labels: what decides that in the pipeline is fixed here.
DECIDED = {"steps/mosaic": True, "steps/label_file": True, "with_training": True}
# The grid follows the bands: ap-validator fails on an optional list as input of a workflow.
DROPPED = (
    *("steps", "composite", "label_scenes", "predict_images", "trials", "members", "choose", "combine"),
    "search_grid_assets",
)


@dataclass(frozen=True)
class Package:
    """A part of the pipeline.

    `replaced`: sources that become inputs of the package, as (source, name, port); `omitted`: inputs of steps, as
    (step, port).
    """

    name: str
    label: str
    doc: str
    replaced: tuple[tuple[str, str, Cwl], ...] = ()
    omitted: tuple[tuple[str, str], ...] = ()


PACKAGES = (
    Package(
        "eopipe-train",
        "Train a model and map with it",
        "Scenes of a staged STAC catalog and a file of labels to a trained and measured model, its map and its tiles, "
        "as a STAC catalog.",
        replaced=(("search_catalog", "catalog", SCENES),),
        omitted=(UNCALIBRATED, *WHOLE_MAPS, ("train", "state")),
    ),
    Package(
        "eopipe-predict",
        "Map with a trained model",
        "Scenes of a staged STAC catalog and a trained model to a map and its tiles, as a STAC catalog.",
        replaced=(("search_catalog", "catalog", SCENES), ("train/model", "model", MODEL)),
        omitted=((END, "metrics"), UNCALIBRATED, *WHOLE_MAPS, NO_CODE),
    ),
)


def document(documents: dict[str, Cwl]) -> Cwl:
    """All packages in one document, from the pipeline and its tools by their file names."""
    pipeline = documents["pipeline.cwl"]
    tools = {name: value for name, value in documents.items() if value["class"] == "CommandLineTool"}
    workflows = [_workflow(pipeline, package) for package in PACKAGES]
    used = {step["run"] for workflow in workflows for step in workflow["steps"].values()}
    return {
        "cwlVersion": pipeline["cwlVersion"],
        "$namespaces": pipeline["$namespaces"],
        **ABOUT,
        "$graph": [*workflows, *(_staged_tool(file, tool) for file, tool in tools.items() if _reference(file) in used)],
    }


def packed(documents: dict[str, Cwl], name: str) -> Cwl:
    """A workflow with all that it runs in one document, which needs no other file.

    Their keys are file names; `name` is the workflow, and the name of the document.
    """
    needed, pending = set[str](), [name]
    while pending:
        needed.add(file := pending.pop())
        pending += {step["run"] for step in documents[file].get("steps", {}).values()} - needed
    graph = [_process(file, value) for file, value in documents.items() if file in needed]
    for process in graph:
        for step in process.get("steps", {}).values():
            step["run"] = _reference(step["run"])
        if process["id"] == _reference(name).removeprefix("#"):
            process["id"] = "main"
            # The pipeline gives itself to the crate.
            process["inputs"]["workflow"]["default"]["location"] = name
    head = {"cwlVersion": "v1.2", "$namespaces": documents[name]["$namespaces"]}
    return head | {key: ABOUT[key] for key in ("s:license", "s:codeRepository")} | {"$graph": graph}


def _process(file: str, value: Cwl) -> Cwl:
    """A process as a part of a document, with an id."""
    entries = {key: entry for key, entry in deepcopy(value).items() if key not in SHARED_KEYS}
    return {"class": entries.pop("class"), "id": _reference(file).removeprefix("#"), **entries}


def _workflow(pipeline: Cwl, package: Package) -> Cwl:
    """The pipeline, reduced to the steps that its last step needs."""
    replaced = {source: name for source, name, _ in package.replaced}
    steps = {name: _step(pipeline, name, package, replaced) for name in pipeline["steps"] if not _is_dropped(name)}
    names, queue = set(), [END]
    while queue:
        name = queue.pop()
        if name not in names:
            names.add(name)
            queue += [source.partition("/")[0] for source in _sources(steps[name]) if "/" in source]
    needed = {name: step for name, step in steps.items() if name in names}
    sources = {source for step in needed.values() for source in _sources(step)}
    inputs = pipeline["inputs"] | {name: port for _, name, port in package.replaced}
    return {
        "class": "Workflow",
        "id": package.name,
        "label": package.label,
        "doc": package.doc,
        "requirements": pipeline["requirements"],
        "inputs": {name: port for name, port in inputs.items() if name in sources},
        "outputs": {"stac": STAC},
        "steps": needed,
    }


def _is_dropped(name: str) -> bool:
    return name in DROPPED or name.startswith(("rung_", "promote_"))


def _step(pipeline: Cwl, name: str, package: Package, replaced: dict[str, str]) -> Cwl:
    step: Cwl = pipeline["steps"][name]
    inputs = {port: value for port, value in step["in"].items() if (name, port) not in package.omitted}
    inputs = {port: _with_sources(value, replaced) for port, value in inputs.items()}
    return step | {"run": _reference(step["run"]), "in": inputs}


def _with_sources(value: Any, replaced: dict[str, str]) -> Any:
    """An input of a step whose sources are replaced by inputs of the package, or dropped with their steps."""
    if isinstance(value, str):
        return {"default": DECIDED[value]} if value in DECIDED else replaced.get(value, value)
    if "source" not in value:
        return value
    sources = value["source"] if isinstance(value["source"], list) else [value["source"]]
    remaining = [replaced.get(source, source) for source in sources if not _is_dropped(source.partition("/")[0])]
    if value.get("pickValue") == "first_non_null" and len(remaining) == 1:
        # An engine would pick the first entry of a single source.
        others = {key: entry for key, entry in value.items() if key not in ("source", "pickValue")}
        return others | {"source": remaining[0]} if others else remaining[0]
    return value | {"source": remaining}


def _sources(step: Cwl) -> Iterator[str]:
    for value in step["in"].values():
        sources = value.get("source", []) if isinstance(value, dict) else value
        yield from [sources] if isinstance(sources, str) else sources


def _reference(file: str) -> str:
    """The reference to a tool in the document; a step of the same name would look like a cycle."""
    return f"#stage-{file.removesuffix('.cwl')}"


def _staged_tool(file: str, tool: Cwl) -> Cwl:
    """A tool of a package: with a container as a hint, and without network, as inputs are staged."""
    return _process(file, tool) | {
        "requirements": tool["requirements"] | {"NetworkAccess": {"networkAccess": False}},
        "hints": tool["hints"] | {"DockerRequirement": {"dockerPull": IMAGE}},
    }
