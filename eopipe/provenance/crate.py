"""A run as a Provenance Run Crate: RO-Crate 1.1 with the Workflow Run profiles 0.5, built from run records alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from eopipe.chips.splits import read_split
from eopipe.provenance.contextual_entities import (
    REPOSITORY,
    CrateDescription,
    SceneEntity,
    add_scenes,
    author,
    coauthors,
    coverage,
    funders,
    licence,
    organization,
)
from eopipe.provenance.create_actions import COMPLETED, FAILED, ActionBuilder, FormalParameters, commit_text, data_type
from eopipe.provenance.data_entities import CratePart, DataEntities, add_files, crate_paths, media_type, read_part
from eopipe.provenance.graph import METADATA, WORKFLOW_CRATE, CrateGraph, Entity, local_id
from eopipe.provenance.jobs import RecordedJob, read_jobs
from eopipe.provenance.preview import PREVIEW, preview, readme
from eopipe.provenance.redact import redact_config
from eopipe.publish import MANIFEST, link_or_copy
from eopipe.reporting.wording import unused_data

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


@dataclass(frozen=True)
class WorkflowEngine:
    """The engine that ran the jobs: its name in WorkflowHub, and its version, empty if unknown."""

    name: Literal["snakemake", "cwl"]
    version: str = ""

    @property
    def title(self) -> str:
        return {"snakemake": "Snakemake", "cwl": "Common Workflow Language"}[self.name]

    @property
    def url(self) -> str:
        return {"snakemake": "https://snakemake.github.io/", "cwl": "https://www.commonwl.org/"}[self.name]


@dataclass(frozen=True)
class CrateInputs:
    """The files that a crate is built from."""

    records: Sequence[Path]
    payload: Sequence[Path]
    scenes: Sequence[Path]
    workflow: Path
    config: Path | None
    lock: Path | None


def build_crate(draft: Path, inputs: CrateInputs, description: CrateDescription, engine: WorkflowEngine) -> None:
    """Fill a folder with the payload and the metadata of a crate.

    Raises BadInputError for files that are not run records or not STAC Items.
    """
    jobs = read_jobs(inputs.records)
    parts = _add_payload(draft, inputs, jobs)
    graph = CrateGraph()
    data_entities = DataEntities(graph, parts)
    workflow = _workflow(graph, draft / inputs.workflow.name, engine, jobs)
    lock = None
    if inputs.lock:
        form = graph.add(PIP_FORMAT, "CreativeWork", name="pip requirements file format", url=PIP_FORMAT)
        title = "pinned versions of the software"
        lock = _add_described(graph, draft, inputs.lock.name, name=title, conformsTo=form)
    parameters = FormalParameters(graph, data_entities, jobs)
    builder = ActionBuilder(graph, data_entities, parameters, author(graph, description), workflow, lock)
    builder.add_jobs(jobs)
    if inputs.config:
        # The commit of the project that contains the config, if it is a checkout of its own.
        commits = ", ".join(sorted({commit_text(job.record.project) for job in jobs} - {""}))
        path, title = f"{CONFIG}/{inputs.config.name}", "configuration of the run"
        config = _add_described(graph, draft, path, name=title, version=commits)
        described = "config file: the settings of all stages"
        parameter = parameters.link("workflow-in", "config", config, "File", description=described)
        workflow.append_to("input", parameter)
        builder.user_inputs.append(config)
    run = _run_action(builder, parts, jobs)
    _add_engine(builder, run, engine, jobs)
    scenes = add_scenes(graph, inputs.scenes, SCENES)
    _describe_root(graph, description, builder, run, scenes)
    graph.add_file(README, name="What this crate is", encodingFormat="text/markdown", about=graph.root)
    (draft / README).write_text(readme(description, parts, jobs, scenes), encoding="utf-8", newline="\n")
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
    parts = [replace(read_part(draft, path), note=_left_out_text(draft / path)) for path in linked]
    if inputs.scenes:
        add_files(inputs.scenes, draft / SCENES)
        parts.append(read_part(draft, SCENES, maximum=len(inputs.scenes)))
    return parts


def _left_out_text(path: Path) -> str:
    """Which scenes a split does not use, and why; empty for other files."""
    return " ".join(unused_data(read_split(path))) if path.name == SPLIT else ""


def _add_described(
    graph: CrateGraph, draft: Path, path: str, kind: str | list[str] = "File", **properties: Any
) -> Entity:
    """Add a file of the crate with its size, digest and media type."""
    content = read_part(draft, path).content
    described = {"contentSize": str(content.bytes), "sha256": content.sha256, "encodingFormat": media_type(path)}
    return graph.add_file(path, kind, **properties, **described)


def _workflow(graph: CrateGraph, file: Path, engine: WorkflowEngine, jobs: Sequence[RecordedJob]) -> Entity:
    """The workflow file, the main entity of the crate."""
    language = f"https://w3id.org/workflowhub/workflow-ro-crate#{engine.name}"
    versions = {" ".join(filter(None, (job.record.version, job.record.software.get("git")))) for job in jobs}
    profile = graph.add(
        WORKFLOW_PROFILE, "CreativeWork", name="Bioschemas ComputationalWorkflow", version="1.0-RELEASE"
    )
    entity = _add_described(
        graph,
        file.parent,
        file.name,
        WORKFLOW_TYPES,
        name="eopipe",
        description="Satellite scenes to a trained, measured, mapped and citable model.",
        conformsTo=profile,
        programmingLanguage=graph.add(language, "ComputerLanguage", name=engine.title, url=engine.url),
        url=REPOSITORY,
        version=", ".join(sorted(versions)),
    )
    graph.root["mainEntity"] = entity
    return entity


def _run_action(builder: ActionBuilder, parts: Sequence[CratePart], jobs: Sequence[RecordedJob]) -> Entity:
    """The CreateAction of the whole workflow: from the user's inputs to the outputs that the crate contains."""
    results = []
    for content in (part.content for part in parts if part.content.key in builder.sources):
        source = builder.sources[content.key]
        entity = builder.data_entities.of(content)
        described = {"description": entity["description"]} if "description" in entity else {}
        target = builder.parameters.link("workflow-out", ".".join(source), entity, data_type(content), **described)
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
        **_times(jobs),
    )


def _times(jobs: Sequence[RecordedJob]) -> dict[str, Any]:
    """First start, last end and status of the jobs together."""
    start, end = min(job.record.start for job in jobs), max(job.record.end for job in jobs)
    status = FAILED if any(job.failed for job in jobs) else COMPLETED
    return {"startTime": start, "endTime": end, "actionStatus": status}


def _add_engine(builder: ActionBuilder, run: Entity, engine: WorkflowEngine, jobs: Sequence[RecordedJob]) -> None:
    """Add the OrganizeAction of the engine, which started every job."""
    graph = builder.graph
    recorded = [text.partition(" ") for text in sorted({job.record.engine for job in jobs} - {""})]
    names = sorted({name for name, _, _ in recorded})
    tool = graph.add(
        engine.url,
        "SoftwareApplication",
        name=engine.title,
        description=f"Workflow engine: {', '.join(names) or engine.name}",
        softwareVersion=engine.version or ", ".join(version for _, _, version in recorded if version) or "not recorded",
        url=engine.url,
    )
    times = {key: run[key] for key in ("startTime", "endTime", "actionStatus")}
    action = graph.add(
        local_id("engine"),
        "OrganizeAction",
        name=f"Run of {engine.title}",
        instrument=tool,
        agent=builder.agent,
        object=builder.controls,
        result=run,
        **times,
    )
    # The ControlActions are reached through the engine's action.
    graph.root["mentions"] = [run, *builder.actions, action]


def _describe_root(
    graph: CrateGraph,
    description: CrateDescription,
    builder: ActionBuilder,
    run: Entity,
    scenes: Sequence[SceneEntity],
) -> None:
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
        "isBasedOn": [scene.entity for scene in scenes],
    }
    for key, value in (properties | coverage(graph, scenes)).items():
        if value:
            graph.root[key] = value
