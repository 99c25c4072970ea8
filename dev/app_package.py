"""EO Application Packages (OGC 20-089): parts of the pipeline with their tools, in one CWL document.

A platform stages a STAC catalog in and a STAC catalog out, so a package begins at the search in a staged folder and
ends with the catalog of what was made. The wiring is that of `cwl/pipeline.cwl`, cut back to what that end needs.
"""

from collections.abc import Iterator
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
# What a document tells once for all its parts.
WHOLE = ("cwlVersion", "$namespaces", "s:license", "s:author")
STAC = {
    "type": "Directory",
    "label": "STAC catalog",
    "doc": "model, maps and tiles",
    "outputSource": f"{END}/catalog",
}
MODEL = {
    "type": "Directory",
    "label": "model",
    "doc": "STAC catalog with the trained model, as the package eopipe-train makes it, or the folder of a model",
}


@dataclass(frozen=True)
class Package:
    """What a package is cut down to: sources that it is given instead, and inputs of steps that it does without."""

    name: str
    label: str
    doc: str
    given: tuple[tuple[str, str, Cwl], ...] = ()
    without: tuple[tuple[str, str], ...] = ()


PACKAGES = (
    Package(
        "eopipe-train",
        "Train a model and map with it",
        "Scenes of a staged STAC catalog and a file of labels to a trained and measured model, its map and its tiles, "
        "as a STAC catalog.",
    ),
    Package(
        "eopipe-predict",
        "Map with a trained model",
        "Scenes of a staged STAC catalog and a trained model to a map and its tiles, as a STAC catalog.",
        given=(("train/model", "model", MODEL),),
        without=((END, "metrics"),),
    ),
)


def document(pipeline: Cwl, tools: dict[str, Cwl]) -> Cwl:
    """All packages in one document; `tools` are by the file name that the pipeline runs."""
    workflows = [_workflow(pipeline, package) for package in PACKAGES]
    used = {step["run"] for workflow in workflows for step in workflow["steps"].values()}
    return {
        "cwlVersion": pipeline["cwlVersion"],
        "$namespaces": pipeline["$namespaces"],
        **ABOUT,
        "$graph": [*workflows, *(_tool(file, tool) for file, tool in tools.items() if _place(file) in used)],
    }


def _workflow(pipeline: Cwl, package: Package) -> Cwl:
    """The pipeline cut back to the steps that its end needs."""
    instead = {source: name for source, name, _ in package.given}
    steps = {name: _step(pipeline, name, package, instead) for name in pipeline["steps"]}
    needed, todo = set(), [END]
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += [source.partition("/")[0] for source in _sources(steps[name]) if "/" in source]
    kept = {name: step for name, step in steps.items() if name in needed}
    asked = {source for step in kept.values() for source in _sources(step)}
    known = pipeline["inputs"] | {name: port for _, name, port in package.given}
    return {
        "class": "Workflow",
        "id": package.name,
        "label": package.label,
        "doc": package.doc,
        "requirements": pipeline["requirements"],
        "inputs": {name: port for name, port in known.items() if name in asked},
        "outputs": {"stac": STAC},
        "steps": kept,
    }


def _step(pipeline: Cwl, name: str, package: Package, instead: dict[str, str]) -> Cwl:
    step: Cwl = pipeline["steps"][name]
    kept = {port: value for port, value in step["in"].items() if (name, port) not in package.without}
    return step | {"run": _place(step["run"]), "in": {port: _given(value, instead) for port, value in kept.items()}}


def _given(value: Any, instead: dict[str, str]) -> Any:
    """An input of a step, with other sources where the package is given what a step would have made."""
    if isinstance(value, str):
        return instead.get(value, value)
    if isinstance(value, list):
        return [_given(one, instead) for one in value]
    return value | {"source": _given(value["source"], instead)} if "source" in value else value


def _sources(step: Cwl) -> Iterator[str]:
    for value in step["in"].values():
        found = value.get("source", []) if isinstance(value, dict) else value
        yield from [found] if isinstance(found, str) else found


def _place(file: str) -> str:
    """Where the tool of a file lies in the document; a step of the same name would look like a circle."""
    return f"#stage-{file.removesuffix('.cwl')}"


def _tool(file: str, tool: Cwl) -> Cwl:
    """A tool as a part of a document: it has an id, a container as a hint, and a platform has staged what it reads."""
    kept = {key: value for key, value in tool.items() if key not in WHOLE}
    return {
        "class": kept.pop("class"),
        "id": _place(file).removeprefix("#"),
        **kept,
        "requirements": tool["requirements"] | {"NetworkAccess": {"networkAccess": False}},
        "hints": tool["hints"] | {"DockerRequirement": {"dockerPull": IMAGE}},
    }
