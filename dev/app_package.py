"""EO Application Packages (OGC 20-089): parts of the pipeline with their tools, in one CWL document.

A platform stages a STAC catalog in and a STAC catalog out, so a package begins with the search in a staged folder and
ends with the catalog of the results. Its steps are those of `cwl/pipeline.cwl` that the last one needs.
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
# The person who sends a model must not be the one who allows its code: the package maps with built-in architectures.
NO_CODE = ("predict", "allow_code")
MODEL = {
    "type": "Directory",
    "label": "model",
    "doc": "STAC catalog with the trained model, as the package eopipe-train makes it, or the folder of a model",
}


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
        omitted=(UNCALIBRATED,),
    ),
    Package(
        "eopipe-predict",
        "Map with a trained model",
        "Scenes of a staged STAC catalog and a trained model to a map and its tiles, as a STAC catalog.",
        replaced=(("train/model", "model", MODEL),),
        omitted=((END, "metrics"), UNCALIBRATED, NO_CODE),
    ),
)


def document(pipeline: Cwl, tools: dict[str, Cwl]) -> Cwl:
    """All packages in one document; the keys of `tools` are the file names that the pipeline runs."""
    workflows = [_workflow(pipeline, package) for package in PACKAGES]
    used = {step["run"] for workflow in workflows for step in workflow["steps"].values()}
    return {
        "cwlVersion": pipeline["cwlVersion"],
        "$namespaces": pipeline["$namespaces"],
        **ABOUT,
        "$graph": [*workflows, *(_tool(file, tool) for file, tool in tools.items() if _reference(file) in used)],
    }


def _workflow(pipeline: Cwl, package: Package) -> Cwl:
    """The pipeline, reduced to the steps that its last step needs."""
    replaced = {source: name for source, name, _ in package.replaced}
    steps = {name: _step(pipeline, name, package, replaced) for name in pipeline["steps"]}
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


def _step(pipeline: Cwl, name: str, package: Package, replaced: dict[str, str]) -> Cwl:
    step: Cwl = pipeline["steps"][name]
    inputs = {port: value for port, value in step["in"].items() if (name, port) not in package.omitted}
    inputs = {port: _with_sources(value, replaced) for port, value in inputs.items()}
    return step | {"run": _reference(step["run"]), "in": inputs}


def _with_sources(value: Any, replaced: dict[str, str]) -> Any:
    """An input of a step whose sources are replaced by inputs of the package."""
    if isinstance(value, str):
        return replaced.get(value, value)
    if isinstance(value, list):
        return [_with_sources(source, replaced) for source in value]
    return value | {"source": _with_sources(value["source"], replaced)} if "source" in value else value


def _sources(step: Cwl) -> Iterator[str]:
    for value in step["in"].values():
        sources = value.get("source", []) if isinstance(value, dict) else value
        yield from [sources] if isinstance(sources, str) else sources


def _reference(file: str) -> str:
    """The reference to a tool in the document; a step of the same name would look like a cycle."""
    return f"#stage-{file.removesuffix('.cwl')}"


def _tool(file: str, tool: Cwl) -> Cwl:
    """A tool as a part of a document: with an id, a container as a hint, and without network, as inputs are staged."""
    entries = {key: value for key, value in tool.items() if key not in SHARED_KEYS}
    return {
        "class": entries.pop("class"),
        "id": _reference(file).removeprefix("#"),
        **entries,
        "requirements": tool["requirements"] | {"NetworkAccess": {"networkAccess": False}},
        "hints": tool["hints"] | {"DockerRequirement": {"dockerPull": IMAGE}},
    }
