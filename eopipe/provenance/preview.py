"""The page of a crate that RO-Crate foresees for people: what its metadata tell, and nothing else."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from eopipe.provenance.contextual_entities import About, Source
from eopipe.provenance.data_entities import Part
from eopipe.provenance.jobs import Job

PREVIEW = "ro-crate-preview.html"
# Of a stage with thousands of jobs, or of as many scenes, a page shows the first ones.
MOST = 50
Entities = Mapping[str, Mapping[str, Any]]


def preview(metadata: Mapping[str, Any]) -> str:
    """The page, from the content of ro-crate-metadata.json; it asks for nothing but files of the crate."""
    from jinja2 import Environment, StrictUndefined

    told = {entity["@id"]: entity for entity in metadata["@graph"]}
    root = told["./"]
    style = (files("eopipe.reporting") / "style.css").read_text(encoding="utf-8")
    text = (files("eopipe.provenance") / "preview.html").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(text)
    return template.render(
        style=style,
        name=root["name"],
        description=root["description"],
        about=list(_about(told, root)),
        map="map.png" if "map.png" in told else "",
        report="report.html" if "report.html" in told else "",
        stages=_stages(told),
        parts=[_part(told[path]) for path in _outermost([each["@id"] for each in _all(root.get("hasPart"))])],
        scenes=[_scene(told, told[each["@id"]]) for each in _all(root.get("isBasedOn"))[:MOST]],
        count=len(_all(root.get("isBasedOn"))),
        most=MOST,
    )


def _about(told: Entities, root: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Who, when, what may be done with it, how it was made."""
    words = {"author": "By", "publisher": "Published by", "funder": "Funded by", "license": "Licence"}
    for key, word in words.items():
        if names := [_name(told, each) for each in _all(root.get(key))]:
            yield word, ", ".join(names)
    run = told["#run"]
    yield "Ended", root["datePublished"]
    yield "Jobs", run["description"]
    tool = told[told["#engine"]["instrument"]["@id"]]
    yield "Engine", f"{tool['name']} ({tool['softwareVersion']})"


def _stages(told: Entities) -> dict[str, list[dict[str, Any]]]:
    """The jobs of each stage, in the order in which they began."""
    stages: dict[str, list[dict[str, Any]]] = {}
    jobs = [entity for key, entity in told.items() if key.startswith("#job/")]
    for job in sorted(jobs, key=lambda job: str(job["startTime"])):
        stages.setdefault(job["@id"].split("/")[1], []).append(_job(told, job))
    return stages


def _job(told: Entities, job: Mapping[str, Any]) -> dict[str, Any]:
    start, end = (datetime.fromisoformat(job[key]) for key in ("startTime", "endTime"))
    return {
        "name": unquote(job["@id"].removeprefix("#job/")),
        "start": job["startTime"],
        "seconds": f"{(end - start).total_seconds():.0f}",
        "error": job.get("error", ""),
        "command": job["description"],
        "results": [_part(told[each["@id"]]) for each in _all(job.get("result"))],
    }


def _part(entity: Mapping[str, Any]) -> dict[str, str]:
    """A file or folder: its name, its place in the crate if it lies there, its digest."""
    inside = not entity["@id"].startswith("#") and ":" not in entity["@id"]
    return {
        "name": unquote(entity["@id"]) if inside else str(entity.get("name", entity["@id"])),
        "href": entity["@id"] if inside else "",
        "bytes": str(entity.get("contentSize", "")),
        "sha256": str(entity.get("sha256", "")),
    }


def _scene(told: Entities, scene: Mapping[str, Any]) -> dict[str, str]:
    credit = scene.get("creditText") or ", ".join(_name(told, each) for each in _all(scene.get("license")))
    return {"name": str(scene["name"]), "date": str(scene.get("temporalCoverage", "")), "credit": str(credit)}


def _outermost(paths: list[str]) -> list[str]:
    """Those that lie in no folder of the list."""
    folders = tuple(path for path in paths if path.endswith("/"))
    return [path for path in paths if not path.startswith(tuple(folder for folder in folders if folder != path))]


def _name(told: Entities, value: Any) -> str:
    """What a reference is called; text is its own name."""
    if not isinstance(value, Mapping):
        return str(value)
    return str(told.get(value["@id"], {}).get("name", value["@id"]))


def _all(value: Any) -> list[Any]:
    """One, many or none, as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]


CHECK = """## Check it

`eopipe verify .` compares every file with its checksum; `rocrate-validator validate -p provenance-run-crate .` checks
the metadata. What the metadata name by `#sha256/…` is not in the crate. It can be recognised by its `sha256`, or made
again: `eopipe rerun .` runs all jobs with their settings and compares every checksum. The `sha256` of a folder is that
of its `manifest.json`, which lists its files.
"""


def readme(about: About, parts: Sequence[Part], jobs: Sequence[Job], sources: Sequence[Source]) -> str:
    """What the crate holds, where it comes from and how to check it, as Markdown."""
    people = ", ".join(filter(None, (*about.people, about.organization)))
    lines = [f"# {about.title}", "", about.description, ""]
    lines += [f"By {people}. Licence: {about.license}." if people else f"Licence: {about.license}.", ""]
    lines += [f"Funded by {'; '.join(about.funding)}.", ""] if about.funding else []
    lines += ["## What is inside", "", "| name | files | bytes |", "|---|---:|---:|"]
    lines += [f"| `{part.path}` | {part.content.files} | {part.content.bytes} |" for part in parts]
    lines += ["", "`ro-crate-metadata.json` tells what every job did, with which settings, from what to what.", ""]
    lines += ["## How it was made", "", "| stage | jobs | failed |", "|---|---:|---:|"]
    count, failed = Counter(job.stage for job in jobs), Counter(job.stage for job in jobs if job.failed)
    lines += [f"| {stage} | {number} | {failed[stage]} |" for stage, number in count.items()]
    return "\n".join([*lines, "", *_credits(sources), CHECK])


def _credits(sources: Sequence[Source]) -> list[str]:
    """The credit lines and licences of the scenes, each once."""
    if not sources:
        return []
    licences = {str(s.entity["license"].id) for s in sources if "license" in s.entity}
    words = {str(s.entity["creditText"]) for s in sources if "creditText" in s.entity}
    words |= {f"Cite: {s.entity['citation']['name']}" for s in sources if "citation" in s.entity}
    words |= {f"Data by {one['name']}" for s in sources for one in s.entity.get("provider", [])}
    lines = [f"{len(sources)} scenes; their STAC Items are in `scenes/`.", ""]
    return ["## Scenes", "", *lines, *(f"- {word}" for word in sorted(words | licences)), ""]
