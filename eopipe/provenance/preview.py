"""The pages of a crate for people: `ro-crate-preview.html`, which shows its metadata, and `README.md`.

ro-crate-py has a preview of its own. It lists the names of the files and no more: neither jobs, commands and errors,
nor digests, licences and scenes, without links, and it does not escape HTML in the metadata.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from eopipe.provenance.contextual_entities import CrateDescription, SceneEntity
from eopipe.provenance.data_entities import CratePart
from eopipe.provenance.graph import as_list
from eopipe.provenance.jobs import RecordedJob
from eopipe.text_table import escape_markdown

PREVIEW = "ro-crate-preview.html"
# The page lists this many jobs of a stage, and this many scenes.
LISTED = 50
CHECK = """## Check it

`eopipe verify .` compares every file with its checksum; `rocrate-validator validate -p provenance-run-crate .` checks
the metadata. Data that the metadata name `#sha256/…` are not in the crate. They can be identified by their `sha256`, or
recomputed: `eopipe rerun .` runs all jobs with their settings and compares every checksum. The `sha256` of a folder is
the digest of its `manifest.json`, which lists its files.
"""
EntityMap = Mapping[str, Mapping[str, Any]]


def preview(metadata: Mapping[str, Any]) -> str:
    """The page for the content of ro-crate-metadata.json; it loads nothing but files of the crate."""
    from jinja2 import Environment, StrictUndefined

    entities = {entity["@id"]: entity for entity in metadata["@graph"]}
    root = entities["./"]
    style = (files("eopipe.reporting") / "style.css").read_text(encoding="utf-8")
    text = (files("eopipe.provenance") / "preview.html").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(text)
    scenes = as_list(root.get("isBasedOn"))
    paths = _outermost([reference["@id"] for reference in as_list(root.get("hasPart"))])
    return template.render(
        style=style,
        name=root["name"],
        description=root["description"],
        facts=list(_facts(entities, root)),
        map="map.png" if "map.png" in entities else "",
        report="report.html" if "report.html" in entities else "",
        stages=_stages(entities),
        parts=[_part(entities[path]) for path in paths],
        scenes=[_scene(entities, entities[reference["@id"]]) for reference in scenes[:LISTED]],
        count=len(scenes),
        listed=LISTED,
    )


def _facts(entities: EntityMap, root: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Authors, licence, time and engine of the run, each with its title."""
    titles = {"author": "By", "publisher": "Published by", "funder": "Funded by", "license": "Licence"}
    for key, title in titles.items():
        if names := [_name(entities, reference) for reference in as_list(root.get(key))]:
            yield title, ", ".join(names)
    yield "Ended", root["datePublished"]
    yield "Jobs", entities["#run"]["description"]
    engine = entities[entities["#engine"]["instrument"]["@id"]]
    yield "Engine", f"{engine['name']} ({engine['softwareVersion']})"


def _stages(entities: EntityMap) -> dict[str, list[dict[str, Any]]]:
    """The jobs of each stage, in the order of their start times."""
    stages: dict[str, list[dict[str, Any]]] = {}
    jobs = [entity for key, entity in entities.items() if key.startswith("#job/")]
    for job in sorted(jobs, key=lambda job: str(job["startTime"])):
        stages.setdefault(job["@id"].split("/")[1], []).append(_job(entities, job))
    return stages


def _job(entities: EntityMap, job: Mapping[str, Any]) -> dict[str, Any]:
    start, end = (datetime.fromisoformat(job[key]) for key in ("startTime", "endTime"))
    return {
        "name": unquote(job["@id"].removeprefix("#job/")),
        "start": job["startTime"],
        "seconds": f"{(end - start).total_seconds():.0f}",
        "error": job.get("error", ""),
        "command": job["description"],
        "results": [_part(entities[reference["@id"]]) for reference in as_list(job.get("result"))],
    }


def _part(entity: Mapping[str, Any]) -> dict[str, str]:
    """A file or folder: its name, its link if it is in the crate, its size and digest."""
    is_inside = not entity["@id"].startswith("#") and ":" not in entity["@id"]
    return {
        "name": unquote(entity["@id"]) if is_inside else str(entity.get("name", entity["@id"])),
        "href": entity["@id"] if is_inside else "",
        "bytes": str(entity.get("contentSize", "")),
        "sha256": str(entity.get("sha256", "")),
    }


def _scene(entities: EntityMap, scene: Mapping[str, Any]) -> dict[str, str]:
    licences = ", ".join(_name(entities, reference) for reference in as_list(scene.get("license")))
    credit = str(scene.get("creditText") or licences)
    return {"name": str(scene["name"]), "date": str(scene.get("temporalCoverage", "")), "credit": credit}


def _outermost(paths: list[str]) -> list[str]:
    """The paths that are not inside of a folder in the list."""
    folders = tuple(path for path in paths if path.endswith("/"))
    return [path for path in paths if not path.startswith(tuple(folder for folder in folders if folder != path))]


def _name(entities: EntityMap, value: Any) -> str:
    """The name of a referenced entity; text is its own name."""
    if not isinstance(value, Mapping):
        return str(value)
    return str(entities.get(value["@id"], {}).get("name", value["@id"]))


def readme(
    description: CrateDescription,
    parts: Sequence[CratePart],
    jobs: Sequence[RecordedJob],
    scenes: Sequence[SceneEntity],
) -> str:
    """What the crate contains, how it was made and how to check it, as Markdown."""
    people = escape_markdown(", ".join(filter(None, (*description.people, description.organization))))
    lines = [f"# {escape_markdown(description.title)}", "", escape_markdown(description.description), ""]
    terms = f"Licence: {escape_markdown(description.license or 'none stated')}."
    lines += [f"By {people}. {terms}" if people else terms, ""]
    lines += [f"Funded by {escape_markdown('; '.join(description.funding))}.", ""] if description.funding else []
    lines += ["## Contents", "", "| name | files | bytes |", "|---|---:|---:|"]
    lines += [f"| `{part.path}` | {part.content.files} | {part.content.bytes} |" for part in parts]
    lines += ["", "`ro-crate-metadata.json` describes every job with its settings, inputs and outputs.", ""]
    lines += ["## How it was made", "", "| stage | jobs | failed |", "|---|---:|---:|"]
    count, failed = Counter(job.stage for job in jobs), Counter(job.stage for job in jobs if job.failed)
    lines += [f"| {stage} | {number} | {failed[stage]} |" for stage, number in count.items()]
    return "\n".join([*lines, "", *_credits(scenes), CHECK])


def _credits(scenes: Sequence[SceneEntity]) -> list[str]:
    """The section on the scenes: their credit lines and licences, each once."""
    if not scenes:
        return []
    entities = [scene.entity for scene in scenes]
    licences = {str(entity["license"].id) for entity in entities if "license" in entity}
    credit = {str(entity["creditText"]) for entity in entities if "creditText" in entity}
    credit |= {f"Cite: {entity['citation']['name']}" for entity in entities if "citation" in entity}
    credit |= {f"Data by {provider['name']}" for entity in entities for provider in entity.get("provider", [])}
    lines = [f"{len(scenes)} scenes; their STAC Items are in `scenes/`.", ""]
    return ["## Scenes", "", *lines, *(f"- {escape_markdown(line)}" for line in sorted(credit | licences)), ""]
