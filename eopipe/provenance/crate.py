"""A run as a Provenance Run Crate: RO-Crate 1.1 with the Workflow Run profiles 0.5, built from run records alone.

Its pages for people are `ro-crate-preview.html`, which shows its metadata, and `README.md`. ro-crate-py has a preview
of its own. It lists the names of the files and no more: neither jobs, commands and errors, nor digests, licences and
scenes, without links, and it does not escape HTML in the metadata.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from eopipe.chips.splits import read_split
from eopipe.provenance.create_actions import COMPLETED, FAILED, ActionBuilder, commit_text, data_type
from eopipe.provenance.data_entities import CratePart, DataEntities, add_files, crate_paths, media_type, read_part
from eopipe.provenance.graph import (
    METADATA,
    REPOSITORY,
    WORKFLOW_CRATE,
    CrateDescription,
    CrateGraph,
    Entity,
    add_scenes,
    as_list,
    coauthors,
    coverage,
    funders,
    licence,
    local_id,
    organization,
)
from eopipe.provenance.jobs import RecordedJob, read_jobs
from eopipe.provenance.redact import redact_config
from eopipe.publish import MANIFEST, link_or_copy
from eopipe.reporting.wording import unused_data
from eopipe.scenes.item import Item
from eopipe.text_table import escape_markdown

README, SCENES, CONFIG, SPLIT = "README.md", "scenes", "config", "split.json"
WORKFLOW_TYPES = ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]
WORKFLOW_PROFILE = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
PIP_FORMAT = "https://pip.pypa.io/en/stable/reference/requirements-file-format/"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    WORKFLOW_CRATE: "Workflow RO-Crate",
}


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
# Title and site of each engine, by its name in WorkflowHub.
ENGINES = {
    "snakemake": ("Snakemake", "https://snakemake.github.io/"),
    "cwl": ("Common Workflow Language", "https://www.commonwl.org/"),
}


@dataclass(frozen=True)
class CrateInputs:
    """What a crate is built from: files, and the engine that ran the jobs with its version, empty if unknown."""

    records: Sequence[Path]
    payload: Sequence[Path]
    scenes: Sequence[Path]
    workflow: Path
    config: Path | None
    lock: Path | None
    engine: Literal["snakemake", "cwl"] = "snakemake"
    engine_version: str = ""


def build_crate(draft: Path, inputs: CrateInputs, description: CrateDescription) -> None:
    """Fill a folder with the payload and the metadata of a crate.

    Raises BadInputError for files that are not run records or not STAC Items.
    """
    jobs = read_jobs(inputs.records)
    parts = _add_payload(draft, inputs, jobs)
    graph = CrateGraph()
    data_entities = DataEntities(graph, parts)
    workflow = _workflow(graph, draft, inputs, jobs)
    lock = None
    if inputs.lock:
        form = graph.add(PIP_FORMAT, "CreativeWork", name="pip requirements file format", url=PIP_FORMAT)
        title = "pinned versions of the software"
        lock = _add_described(graph, draft, inputs.lock.name, name=title, conformsTo=form)
    builder = ActionBuilder(graph, data_entities, jobs, description, workflow, lock)
    builder.add_jobs()
    if inputs.config:
        # The commit of the project that contains the config, if it is a checkout of its own.
        commits = ", ".join(sorted({commit_text(job.record.project) for job in jobs} - {""}))
        path, title = f"{CONFIG}/{inputs.config.name}", "configuration of the run"
        config = _add_described(graph, draft, path, name=title, version=commits)
        described = "config file: the settings of all stages"
        builder.add_input("config", config, "File", description=described)
    run = _run_action(builder, parts)
    _add_engine(builder, run, inputs)
    scenes = add_scenes(graph, inputs.scenes, SCENES)
    _describe_root(builder, run, scenes)
    graph.add_file(README, name="What this crate is", encodingFormat="text/markdown", about=graph.root)
    text = readme(description, parts, jobs, [entity for _, entity in scenes])
    (draft / README).write_text(text, encoding="utf-8", newline="\n")
    graph.add(PREVIEW, "CreativeWork", name="Preview of the metadata as a web page", about=graph.root)
    graph.write(draft)
    (draft / PREVIEW).write_text(preview(graph.metadata()), encoding="utf-8", newline="\n")


def _add_payload(draft: Path, inputs: CrateInputs, jobs: Sequence[RecordedJob]) -> list[CratePart]:
    """Put all files into the crate; return those that its metadata list as data of the run."""
    copied = {inputs.workflow.name: inputs.workflow}
    copied |= {inputs.lock.name: inputs.lock} if inputs.lock else {}
    copied |= {f"{CONFIG}/{inputs.config.name}": inputs.config} if inputs.config else {}
    reserved = {METADATA, README, PREVIEW, MANIFEST, SCENES, CONFIG, *copied}
    linked = crate_paths(inputs.payload, jobs, reserved)
    for path, source in copied.items():
        link_or_copy(source, draft / path, link=False)
    if inputs.config:
        copy = draft / CONFIG / inputs.config.name
        copy.write_text(redact_config(copy.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    for path, source in linked.items():
        link_or_copy(source, draft / path)
    # A split has scenes that it does not use, and why.
    notes = (" ".join(unused_data(read_split(draft / path))) if Path(path).name == SPLIT else "" for path in linked)
    parts = [replace(read_part(draft, path), note=note) for path, note in zip(linked, notes, strict=True)]
    if inputs.scenes:
        add_files(inputs.scenes, draft / SCENES)
        parts.append(read_part(draft, SCENES, maximum=len(inputs.scenes)))
    return parts


def _add_described(
    graph: CrateGraph, draft: Path, path: str, kind: str | list[str] = "File", **properties: Any
) -> Entity:
    """Add a file of the crate with its size, digest and media type."""
    content = read_part(draft, path).content
    described = {"contentSize": str(content.bytes), "sha256": content.sha256, "encodingFormat": media_type(path)}
    return graph.add_file(path, kind, **properties, **described)


def _workflow(graph: CrateGraph, draft: Path, inputs: CrateInputs, jobs: Sequence[RecordedJob]) -> Entity:
    """The workflow file, the main entity of the crate."""
    language, (title, url) = f"https://w3id.org/workflowhub/workflow-ro-crate#{inputs.engine}", ENGINES[inputs.engine]
    profile = graph.add(
        WORKFLOW_PROFILE, "CreativeWork", name="Bioschemas ComputationalWorkflow", version="1.0-RELEASE"
    )
    entity = _add_described(
        graph,
        draft,
        inputs.workflow.name,
        WORKFLOW_TYPES,
        name="eopipe",
        description="Satellite scenes to a trained, measured, mapped and citable model.",
        conformsTo=profile,
        programmingLanguage=graph.add(language, "ComputerLanguage", name=title, url=url),
        url=REPOSITORY,
        version=", ".join(sorted({job.record.code for job in jobs})),
    )
    graph.root["mainEntity"] = entity
    return entity


def _run_action(builder: ActionBuilder, parts: Sequence[CratePart]) -> Entity:
    """The CreateAction of the whole workflow: from the user's inputs to the outputs that the crate contains.

    It has the first start, the last end and the status of the jobs together.
    """
    results, jobs = [], builder.jobs
    for content in (part.content for part in parts if part.content.key in builder.sources):
        source = builder.sources[content.key]
        entity = builder.data_entities.of(content)
        described = {"description": entity["description"]} if "description" in entity else {}
        target = builder.link("workflow-out", ".".join(source), entity, data_type(content), **described)
        builder.workflow.append_to("output", target)
        builder.connect(builder.workflow, local_id("parameter", *source), target.id)
        results.append(entity)
    failed = [job.title for job in jobs if job.failed]
    return builder.graph.add(
        local_id("run"),
        "CreateAction",
        name="Run of eopipe",
        description=f"{len(jobs)} jobs, {len(failed)} of them failed.",
        instrument=builder.workflow,
        agent=builder.agent,
        object=builder.user_inputs,
        result=results,
        error=f"failed: {', '.join(failed)}" if failed else None,
        startTime=min(job.record.start for job in jobs),
        endTime=max(job.record.end for job in jobs),
        actionStatus=FAILED if failed else COMPLETED,
    )


def _add_engine(builder: ActionBuilder, run: Entity, inputs: CrateInputs) -> None:
    """Add the OrganizeAction of the engine, which started every job."""
    graph, (title, url) = builder.graph, ENGINES[inputs.engine]
    recorded = [text.partition(" ") for text in sorted({job.record.engine for job in builder.jobs} - {""})]
    names = sorted({name for name, _, _ in recorded})
    versions = ", ".join(version for _, _, version in recorded if version)
    tool = graph.add(
        url,
        "SoftwareApplication",
        name=title,
        description=f"Workflow engine: {', '.join(names) or inputs.engine}",
        softwareVersion=inputs.engine_version or versions or "not recorded",
        url=url,
    )
    times = {key: run[key] for key in ("startTime", "endTime", "actionStatus")}
    action = graph.add(
        local_id("engine"),
        "OrganizeAction",
        name=f"Run of {title}",
        instrument=tool,
        agent=builder.agent,
        object=builder.controls,
        result=run,
        **times,
    )
    # The ControlActions are reached through the engine's action.
    graph.root["mentions"] = [run, *builder.actions, action]


def _describe_root(builder: ActionBuilder, run: Entity, scenes: Sequence[tuple[Item, Entity]]) -> None:
    graph, description = builder.graph, builder.description
    profiles = [graph.add(i, "CreativeWork", name=n, version=i.rpartition("/")[2]) for i, n in PROFILES.items()]
    properties = {
        "name": description.title,
        "description": description.description,
        "license": licence(graph, description.license),
        "author": [builder.agent, *coauthors(graph, description)],
        "funder": funders(graph, description),
        "publisher": organization(graph, description) or builder.agent,
        # With the clock of this job two crates of one run would differ.
        "datePublished": run["endTime"],
        "conformsTo": profiles,
        "keywords": ["earth observation", "machine learning", "remote sensing"],
        "isBasedOn": [entity for _, entity in scenes],
    }
    for key, value in (properties | coverage(graph, scenes)).items():
        if value:
            graph.root[key] = value


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
        root=root,
        entities=entities,
        engine=entities[entities["#engine"]["instrument"]["@id"]],
        titles={"author": "By", "publisher": "Published by", "funder": "Funded by", "license": "Licence"},
        names=lambda value: ", ".join(_name(entities, reference) for reference in as_list(value)),
        stages=_stages(entities),
        parts=[_part(entities[path]) for path in paths],
        scenes=[entities[reference["@id"]] for reference in scenes[:LISTED]],
        count=len(scenes),
        listed=LISTED,
    )


def _stages(entities: EntityMap) -> dict[str, list[dict[str, Any]]]:
    """The jobs of each stage, in the order of their start times."""
    stages: dict[str, list[dict[str, Any]]] = {}
    jobs = [entity for key, entity in entities.items() if key.startswith("#job/")]
    for job in sorted(jobs, key=lambda job: str(job["startTime"])):
        stages.setdefault(job["@id"].split("/")[1], []).append(_job(entities, job))
    return stages


def _job(entities: EntityMap, job: Mapping[str, Any]) -> dict[str, Any]:
    start, end = (datetime.fromisoformat(job[key]) for key in ("startTime", "endTime"))
    return dict(job) | {
        "name": unquote(job["@id"].removeprefix("#job/")),
        "seconds": f"{(end - start).total_seconds():.0f}",
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
    scenes: Sequence[Entity],
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


def _credits(entities: Sequence[Entity]) -> list[str]:
    """The section on the scenes: their credit lines and licences, each once."""
    if not entities:
        return []
    licences = {str(entity["license"].id) for entity in entities if "license" in entity}
    credit = {str(entity["creditText"]) for entity in entities if "creditText" in entity}
    credit |= {f"Cite: {entity['citation']['name']}" for entity in entities if "citation" in entity}
    credit |= {f"Data by {provider['name']}" for entity in entities for provider in entity.get("provider", [])}
    lines = [f"{len(entities)} scenes; their STAC Items are in `scenes/`.", ""]
    return ["## Scenes", "", *lines, *(f"- {escape_markdown(line)}" for line in sorted(credit | licences)), ""]
