"""A run as a Provenance Run Crate: RO-Crate 1.1 with the Workflow Run profiles 0.5, made from run records alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eopipe.provenance.contextual_entities import (
    HOME,
    About,
    Source,
    author,
    coauthors,
    cover,
    funders,
    licence,
    organization,
    read_sources,
)
from eopipe.provenance.create_actions import COMPLETED, FAILED, Account, Parameters, commit_words, kind_of
from eopipe.provenance.data_entities import Part, Things, bring_all, media_type, part, places
from eopipe.provenance.graph import METADATA, WORKFLOW_CRATE, Entity, Graph, local
from eopipe.provenance.jobs import Job, read_jobs
from eopipe.provenance.preview import PREVIEW, preview, readme
from eopipe.provenance.redact import redact_config
from eopipe.publish import MANIFEST, link_or_copy

README, SCENES, CONFIG = "README.md", "scenes", "config"
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
class Engine:
    """What ran the jobs: its name as WorkflowHub has it, its version, empty if unknown."""

    name: Literal["snakemake", "cwl"]
    version: str = ""

    @property
    def title(self) -> str:
        """Its name for people."""
        return {"snakemake": "Snakemake", "cwl": "Common Workflow Language"}[self.name]

    @property
    def home(self) -> str:
        """Its site."""
        return {"snakemake": "https://snakemake.github.io/", "cwl": "https://www.commonwl.org/"}[self.name]


@dataclass(frozen=True)
class Sources:
    """The files that a crate is made from."""

    records: Sequence[Path]
    payload: Sequence[Path]
    scenes: Sequence[Path]
    workflow: Path
    config: Path | None
    lock: Path | None


def build(draft: Path, sources: Sources, about: About, engine: Engine) -> None:
    """Fill a folder with the payload and the metadata of a crate.

    Raises BadInputError for files that are no run records or no STAC Items.
    """
    jobs = read_jobs(sources.records)
    parts = _fill(draft, sources, jobs)
    graph = Graph()
    things = Things(graph, parts)
    workflow = _workflow(graph, draft / sources.workflow.name, engine, jobs)
    lock = _extra(graph, draft, sources.lock, "", conformsTo=_pip(graph)) if sources.lock else None
    parameters = Parameters(graph, things, jobs)
    account = Account(graph, things, parameters, author(graph, about), workflow, lock)
    account.tell(jobs)
    if sources.config:
        config = _extra(graph, draft, sources.config, f"{CONFIG}/", version=_commits(jobs))
        workflow.append_to("input", parameters.tie("workflow-in", "config", config, "File"))
        account.given.append(config)
    run = _run(account, parts, jobs)
    _organize(account, run, engine, jobs)
    scenes = read_sources(graph, sources.scenes, SCENES)
    _root(graph, about, account, run, scenes)
    graph.add_file(README, name="What this crate is", encodingFormat="text/markdown", about=graph.root)
    (draft / README).write_text(readme(about, parts, jobs, scenes), encoding="utf-8", newline="\n")
    graph.add(PREVIEW, "CreativeWork", name="What the metadata tell, for people", about=graph.root)
    graph.write(draft)
    (draft / PREVIEW).write_text(preview(graph.value()), encoding="utf-8", newline="\n")


def _fill(draft: Path, sources: Sources, jobs: Sequence[Job]) -> list[Part]:
    """Bring all files into the crate; give what its metadata lists as the run's data."""
    fixed = {sources.workflow.name: sources.workflow}
    fixed |= {sources.lock.name: sources.lock} if sources.lock else {}
    fixed |= {f"{CONFIG}/{sources.config.name}": sources.config} if sources.config else {}
    placed = places(sources.payload, jobs, {METADATA, README, PREVIEW, MANIFEST, SCENES, CONFIG, *fixed})
    for path, source in fixed.items():
        link_or_copy(source, draft / path, link=False)
    if sources.config:
        copy = draft / CONFIG / sources.config.name
        copy.write_text(redact_config(copy.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    for path, source in placed.items():
        link_or_copy(source, draft / path)
    bring_all(sources.scenes, draft / SCENES)
    return [*(part(draft, path) for path in placed), part(draft, SCENES, most=len(sources.scenes))]


def _file_facts(path: Path, place: str) -> dict[str, Any]:
    content = part(path.parent, path.name).content
    return {"contentSize": str(content.bytes), "sha256": content.sha256, "encodingFormat": media_type(place)}


def _extra(graph: Graph, draft: Path, source: Path, folder: str, **told: Any) -> Entity:
    path = f"{folder}{source.name}"
    name = "pinned software environment" if "conformsTo" in told else "configuration of the run"
    return graph.add_file(path, name=name, **told, **_file_facts(draft / path, path))


def _commits(jobs: Sequence[Job]) -> str:
    """The commits of the project that the config lies in, where that is a checkout of its own."""
    return ", ".join(sorted({commit_words(job.record.project) for job in jobs} - {""}))


def _pip(graph: Graph) -> Entity:
    return graph.add(PIP_FORMAT, "CreativeWork", name="pip requirements file format", url=PIP_FORMAT)


def _workflow(graph: Graph, file: Path, engine: Engine, jobs: Sequence[Job]) -> Entity:
    """The workflow file, which the root calls the main entity."""
    language = f"https://w3id.org/workflowhub/workflow-ro-crate#{engine.name}"
    versions = sorted({" ".join(filter(None, (j.record.version, j.record.software.get("git")))) for j in jobs})
    profile = graph.add(
        WORKFLOW_PROFILE, "CreativeWork", name="Bioschemas ComputationalWorkflow", version="1.0-RELEASE"
    )
    entity = graph.add_file(
        file.name,
        WORKFLOW_TYPES,
        name="eopipe",
        description="Satellite scenes to a trained, measured, mapped and citable model.",
        conformsTo=profile,
        programmingLanguage=graph.add(language, "ComputerLanguage", name=engine.title, url=engine.home),
        url=HOME,
        version=", ".join(versions),
        **_file_facts(file, file.name),
    )
    graph.root["mainEntity"] = entity
    return entity


def _run(account: Account, parts: Sequence[Part], jobs: Sequence[Job]) -> Entity:
    """The run of the whole workflow: from what it was given to what the crate holds of what it made."""
    results = []
    for made in (p for p in parts if p.content.key in account.makers):
        source = account.makers[made.content.key]
        thing = account.things.of(made.content)
        target = account.parameters.tie("workflow-out", ".".join(source), thing, kind_of(made.content))
        account.workflow.append_to("output", target)
        account.connect(account.workflow, local("parameter", *source), target.id)
        results.append(thing)
    failed = [job.title for job in jobs if job.failed]
    return account.graph.add(
        local("run"),
        "CreateAction",
        name="Run of eopipe",
        description=f"{len(jobs)} jobs, {len(failed)} of them failed.",
        instrument=account.workflow,
        agent=account.agent,
        object=account.given,
        result=results,
        error=f"failed: {', '.join(failed)}" if failed else None,
        **_when(jobs),
    )


def _when(jobs: Sequence[Job]) -> dict[str, Any]:
    """First start, last end and status of the jobs together."""
    start, end = min(job.record.start for job in jobs), max(job.record.end for job in jobs)
    status = FAILED if any(job.failed for job in jobs) else COMPLETED
    return {"startTime": start, "endTime": end, "actionStatus": status}


def _organize(account: Account, run: Entity, engine: Engine, jobs: Sequence[Job]) -> None:
    """What the engine did: it started every job."""
    graph = account.graph
    seen = sorted({job.record.engine for job in jobs} - {""})
    tool = graph.add(
        engine.home,
        "SoftwareApplication",
        name=engine.title,
        description="Workflow engine",
        softwareVersion=engine.version or ", ".join(seen) or "not recorded",
        url=engine.home,
    )
    times = {key: run[key] for key in ("startTime", "endTime", "actionStatus")}
    action = graph.add(
        local("engine"),
        "OrganizeAction",
        name=f"Run of {engine.title}",
        instrument=tool,
        agent=account.agent,
        object=account.controls,
        result=run,
        **times,
    )
    # The engine's action leads to what it controlled.
    graph.root["mentions"] = [run, *account.actions, action]


def _root(graph: Graph, about: About, account: Account, run: Entity, scenes: Sequence[Source]) -> None:
    profiles = [graph.add(i, "CreativeWork", name=n, version=i.rpartition("/")[2]) for i, n in PROFILES.items()]
    told = {
        "name": about.title,
        "description": about.description,
        "license": licence(graph, about.license),
        "author": [account.agent, *coauthors(graph, about)],
        "funder": funders(graph, about),
        "publisher": organization(graph, about) or account.agent,
        # The clock of this job would make two crates of one run differ.
        "datePublished": run["endTime"],
        "conformsTo": profiles,
        "keywords": ["earth observation", "machine learning", "remote sensing"],
        "isBasedOn": [scene.entity for scene in scenes],
    }
    for key, value in (told | cover(graph, scenes)).items():
        if value:
            graph.root[key] = value
