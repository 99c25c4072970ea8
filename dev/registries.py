"""Metadata of the checkout for registries, from pyproject.toml: CodeMeta 3.0 and a Workflow RO-Crate 1.0."""

import json
import tomllib
from pathlib import Path
from typing import Any

from eopipe import __version__
from eopipe.provenance.crate import PROFILES, WORKFLOW_PROFILE, WORKFLOW_TYPES
from eopipe.provenance.data_entities import media_type
from eopipe.provenance.graph import METADATA, REPOSITORY, WORKFLOW_CRATE, CrateGraph, Entity, licence

CODEMETA, PYPROJECT = "codemeta.json", "pyproject.toml"
LANGUAGES = "https://w3id.org/workflowhub/workflow-ro-crate#"
ENGINES = {
    "snakemake": ("Snakemake", "https://snakemake.github.io/"),
    "cwl": ("Common Workflow Language", "https://www.commonwl.org/"),
}
# The pages that registries show.
PAGES = ("README.md", "CITATION.cff", "LICENSE", "config/README.md")
# Registries require a date: the day of the first release, which does not change with each commit.
PUBLISHED = "2026-11-21"


def registered(root: Path) -> dict[Path, str]:
    """The files for registries with their text; empty outside a checkout."""
    if not (root / PYPROJECT).is_file():
        return {}
    project: dict[str, Any] = tomllib.loads((root / PYPROJECT).read_text(encoding="utf-8"))["project"]
    return {root / CODEMETA: _text(_codemeta(project)), root / METADATA: _text(_crate(project))}


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _codemeta(project: dict[str, Any]) -> dict[str, Any]:
    status = next(c for c in project["classifiers"] if c.startswith("Development Status"))
    return {
        "@context": "https://w3id.org/codemeta/3.0",
        "@type": "SoftwareSourceCode",
        "name": project["name"],
        "description": project["description"],
        "version": __version__,
        "license": f"https://spdx.org/licenses/{project['license']}",
        "author": [{"@type": "Organization", "name": author["name"]} for author in project["authors"]],
        "codeRepository": project["urls"]["Source"],
        "issueTracker": f"{project['urls']['Source']}/issues",
        "keywords": project["keywords"],
        "programmingLanguage": {"@type": "ComputerLanguage", "name": "Python"},
        "runtimePlatform": f"Python {project['requires-python']}",
        "operatingSystem": "Linux",
        "developmentStatus": "wip" if "Alpha" in status else "active",
        "softwareRequirements": project["dependencies"],
    }


def _crate(project: dict[str, Any]) -> Any:
    """The checkout as a Workflow RO-Crate: the Snakefile, and the same pipeline in CWL as its description."""
    graph = CrateGraph()
    team = graph.add("#team", "Organization", name=project["authors"][0]["name"], url=REPOSITORY)
    terms = licence(graph, project["license"])
    entries = {"author": team, "creator": team, "license": terms, "version": __version__, "url": REPOSITORY}
    main = _workflow(graph, "Snakefile", "snakemake", WORKFLOW_TYPES, name=project["name"], **entries)
    main["description"], main["keywords"] = project["description"], project["keywords"]
    main["conformsTo"] = graph.add(WORKFLOW_PROFILE, "CreativeWork", name="Bioschemas ComputationalWorkflow")
    kind = ["File", "SoftwareSourceCode", "HowTo"]
    main["subjectOf"] = _workflow(graph, "cwl/pipeline.cwl", "cwl", kind, name="eopipe in CWL", **entries)
    for page in PAGES:
        form = "text/plain" if page == "LICENSE" else media_type(page)
        graph.add_file(page, name=page, encodingFormat=form, about=graph.root)
    root = {"name": project["name"], "description": project["description"], "license": terms, "author": team}
    root |= {"publisher": team, "mainEntity": main, "datePublished": PUBLISHED, "keywords": project["keywords"]}
    root["conformsTo"] = graph.add(WORKFLOW_CRATE, "CreativeWork", name=PROFILES[WORKFLOW_CRATE], version="1.0")
    for key, value in root.items():
        graph.root[key] = value
    return graph.metadata()


def _workflow(graph: CrateGraph, path: str, engine: str, kind: list[str], /, **entries: Any) -> Entity:
    name, home = ENGINES[engine]
    language = graph.add(f"{LANGUAGES}{engine}", "ComputerLanguage", name=name, url=home, identifier={"@id": home})
    return graph.add_file(path, kind, encodingFormat=media_type(path), programmingLanguage=language, **entries)
