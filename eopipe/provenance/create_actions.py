"""Jobs as CreateActions, stages as tools and HowToSteps, ports as FormalParameters, and the data flow between them."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eopipe.contract import STAGES, Option, Output, Port, function_name, stage, summary
from eopipe.provenance.data_entities import DataEntities
from eopipe.provenance.graph import REPOSITORY, RUN_TERMS, CrateDescription, CrateGraph, Entity, author, local_id
from eopipe.provenance.jobs import RecordedData, RecordedJob

PARAMETER_PROFILE = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
PARAMETER_TYPES = {bool: "Boolean", int: "Integer", float: "Float"}
COMPLETED, FAILED = "http://schema.org/CompletedActionStatus", "http://schema.org/FailedActionStatus"
# Unit of each measure of a run record: processor time of the job with its child processes, peak memory of a process.
USAGE_UNITS = {"cpu_s": "https://qudt.org/vocab/unit/SEC", "max_rss_mb": "https://qudt.org/vocab/unit/MebiBYTE"}
LIBRARY_SITES = {
    "python": "https://www.python.org/",
    "numpy": "https://numpy.org/",
    "rasterio": "https://rasterio.readthedocs.io/",
    "torch": "https://pytorch.org/",
    "zarr": "https://zarr.dev/",
}


def data_type(data: RecordedData) -> str:
    """The type of a file or folder in RO-Crate."""
    return "Dataset" if data.folder else "File"


def _distinct_values(jobs: Sequence[RecordedJob]) -> dict[tuple[str, str], list[str]]:
    """The distinct values of every setting over all jobs, as sorted JSON, by stage and setting."""
    values = defaultdict(set)
    for job in jobs:
        for name, value in job.settings.items():
            values[job.stage, name].add(_json(value))
    return {key: sorted(distinct) for key, distinct in values.items()}


def _json(value: Any) -> str:
    # A list in JSON-LD has no order, so it is written as text.
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _port(name: str, port: str) -> Port | None:
    """The port as the installed version defines it; a record of another version may have other ports."""
    ports = stage(name).ports if name in STAGES else ()
    return next((p for p in ports if p.name == port), None)


def _port_properties(port: Port | None) -> dict[str, Any]:
    if port is None:
        return {}
    properties: dict[str, Any] = {"description": port.mark.doc, "valueRequired": port.required}
    if isinstance(port.mark, Option) and not port.required and port.default not in (None, ()):
        properties["defaultValue"] = _json(port.default) if isinstance(port.default, tuple) else port.default
    return properties


def commit_text(commit: str) -> str:
    """The text for a commit of a run record, where `+` means changed files.

    >>> commit_text("1a2b+")
    'commit 1a2b, with changed files'
    """
    return f"commit {commit.rstrip('+')}{', with changed files' * commit.endswith('+')}" if commit else ""


@dataclass
class ActionBuilder:
    """Adds the jobs of a run to the graph, and the parameters of stages and workflow with the data that they took.

    `sources` maps the content of each output to its stage and port.
    """

    graph: CrateGraph
    data_entities: DataEntities
    jobs: Sequence[RecordedJob]
    description: CrateDescription
    workflow: Entity
    lock: Entity | None
    software: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    actions: list[Entity] = field(default_factory=list)
    controls: list[Entity] = field(default_factory=list)
    user_inputs: list[Entity] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.profile = self.graph.add(
            PARAMETER_PROFILE, "CreativeWork", name="Bioschemas FormalParameter", version="1.0-RELEASE"
        )
        self.agent = author(self.graph, self.description)
        self.values = _distinct_values(self.jobs)
        self.stages = list(dict.fromkeys(job.stage for job in self.jobs))
        for job in self.jobs:
            self.sources |= {data.key: (job.stage, data.port) for data in job.record.outputs}

    def add_jobs(self) -> None:
        """Add every job, its stage, and the data flow from stage to stage."""
        for job in self.jobs:
            self._add_job(job)

    def link(self, owner: str, name: str, example: Entity, kind: str, **properties: Any) -> Entity:
        """The parameter of a stage or of the workflow (the owner) that a data entity or value is an example of."""
        identifier = local_id("parameter", owner, name)
        parameter = self.graph.add(identifier, "FormalParameter", name=name, conformsTo=self.profile, **properties)
        parameter.append_to("additionalType", kind)
        example.append_to("exampleOfWork", parameter)
        return parameter

    def of_port(self, job: RecordedJob, data: RecordedData) -> Entity:
        """The parameter of the port that a job read or wrote a file or folder through."""
        port, entity = _port(job.stage, data.port), self.data_entities.of(data)
        properties = _port_properties(port) | ({"multipleValues": True} if port and port.is_list else {})
        if port and isinstance(port.mark, Output):
            entity.setdefault("description", port.mark.doc)
        return self.link(job.stage, data.port, entity, data_type(data), **properties)

    def of_setting(self, job: RecordedJob, name: str) -> tuple[Entity, Entity]:
        """The parameter of a setting and the entity of its value, which jobs with the same value share."""
        setting, distinct = job.settings[name], self.values[job.stage, name]
        number = str(distinct.index(_json(setting)) + 1) if len(distinct) > 1 else ""
        value = self.graph.add(local_id("value", job.stage, name, number), "PropertyValue", name=name)
        value["value"] = _json(setting) if isinstance(setting, (list, dict)) else setting
        kind = PARAMETER_TYPES.get(type(setting), "Text")
        return self.link(job.stage, name, value, kind, **_port_properties(_port(job.stage, name))), value

    def _add_job(self, job: RecordedJob) -> None:
        tool = self._tool(job)
        step = self._step(job, tool)
        for data in job.record.inputs:
            tool.append_to("input", self.of_port(job, data))
            self._connect_input(step, job, data)
        settings = [self.of_setting(job, name) for name in job.settings]
        for parameter, _ in settings:
            tool.append_to("input", parameter)
        for data in job.record.outputs:
            tool.append_to("output", self.of_port(job, data))
        action = self._create_action(job, tool, [value for _, value in settings])
        control = self.graph.add(
            local_id("control", job.stage, job.label),
            "ControlAction",
            name=f"Orchestration of {job.title}",
            instrument=step,
            object=action,
            actionStatus=action["actionStatus"],
        )
        self.actions.append(action)
        self.controls.append(control)

    def _create_action(self, job: RecordedJob, tool: Entity, values: list[Entity]) -> Entity:
        record, machine = job.record, job.record.place.name
        return self.graph.add(
            local_id("job", job.stage, job.label),
            "CreateAction",
            name=f"Run of eopipe {job.title}",
            description=job.command,
            identifier=record.place.job,
            instrument=tool,
            agent=self.agent,
            object=[self.data_entities.of(data) for data in record.inputs] + values,
            result=[self.data_entities.of(data) for data in record.outputs],
            startTime=record.start,
            endTime=record.end,
            actionStatus=FAILED if job.failed else COMPLETED,
            error=job.error if job.failed else None,
            location=self.graph.add(local_id("machine", machine), "Place", name=machine),
            containerImage=self._container(job),
            resourceUsage=self._resource_usage(job),
        )

    def _container(self, job: RecordedJob) -> Entity | None:
        """The container image that the job ran in, if it recorded one: of a registry, or a file."""
        image = job.record.container
        if not image:
            return None
        path = image.rpartition("://")[2]
        registry, _, name = path.partition("/") if "." in path.partition("/")[0] and "/" in path else ("", "", path)
        name, _, tag = name.partition(":")
        kind = "SIFImage" if path.endswith((".sif", ".simg", ".img")) else "DockerImage"
        properties = {"additionalType": {"@id": f"{RUN_TERMS}{kind}"}, "registry": registry, "name": name, "tag": tag}
        return self.graph.add(local_id("container", image), "ContainerImage", **properties)

    def _resource_usage(self, job: RecordedJob) -> list[Entity]:
        """The measured usage of the job; jobs with the same value share an entity."""
        entities = []
        for name, value in sorted(job.record.usage.items()):
            properties = {"propertyID": f"{REPOSITORY}#{name}", "unitCode": USAGE_UNITS.get(name), "value": value}
            identifier = local_id("usage", name, str(value))
            entities.append(self.graph.add(identifier, "PropertyValue", name=name, **properties))
        return entities

    def _tool(self, job: RecordedJob) -> Entity:
        """The command of a stage, in the version and commit that ran and with its libraries."""
        version, commit = job.record.version, job.record.software.get("git", "")
        url = f"{REPOSITORY}/blob/v{version}/eopipe/stages/{function_name(job.stage)}.py"
        variants = self.software.setdefault(url, [])
        if job.record.software not in variants:
            variants.append(job.record.software)
        number = variants.index(job.record.software) + 1
        tool = self.graph.add(
            f"{url}#{number}" if number > 1 else url,
            "SoftwareApplication",
            name=f"eopipe {job.stage}",
            description=summary(job.stage) if job.stage in STAGES else None,
            softwareVersion=version,
            identifier=commit_text(commit),
            url=url,
        )
        for name, release in sorted(job.record.software.items()):
            if name != "git":
                tool.append_to("softwareRequirements", self._library(name, release))
        self.workflow.append_to("hasPart", tool)
        return tool

    def _library(self, name: str, version: str) -> Entity:
        site = LIBRARY_SITES.get(name)
        identifier = f"{site}#{version}" if site else local_id("library", name, version)
        return self.graph.add(identifier, "SoftwareApplication", name=name, softwareVersion=version, url=site)

    def _step(self, job: RecordedJob, tool: Entity) -> Entity:
        step = self.graph.add(
            local_id("step", job.stage),
            "HowToStep",
            name=job.stage,
            description=tool.get("description"),
            position=str(self.stages.index(job.stage) + 1),
            buildInstructions=self.lock,
        )
        step.append_to("workExample", tool)
        self.workflow.append_to("step", step)
        return step

    def _connect_input(self, step: Entity, job: RecordedJob, data: RecordedData) -> None:
        """Connect an input of a stage to the stage output, or to the workflow input, that it was."""
        source = self.sources.get(data.key) or self.sources.get(self.data_entities.folder_of(data))
        target = local_id("parameter", job.stage, data.port)
        # A model contains copies of the code that its training read; a rung is an output of the stage that reads it.
        if source and (source[0] != job.stage or data.key in self.sources):
            self.connect(step, local_id("parameter", *source), target)
            return
        entity = self.data_entities.of(data)
        port = _port(job.stage, data.port)
        described = {"description": port.mark.doc} if port else {}
        parameter = self.add_input(data.port, entity, data_type(data), **described)
        self.connect(step, parameter.id, target)

    def add_input(self, name: str, entity: Entity, kind: str, **properties: Any) -> Entity:
        """Add what no job made as an input of the workflow; return its parameter."""
        parameter = self.link("workflow-in", name, entity, kind, **properties)
        self.workflow.append_to("input", parameter)
        self.user_inputs.append(entity)
        return parameter

    def connect(self, owner: Entity, source: str, target: str) -> None:
        """Add the ParameterConnection from one parameter (its id) to another, to a step or the workflow."""
        ends = (end.removeprefix("#parameter/").replace("/", ".") for end in (source, target))
        properties = {"sourceParameter": {"@id": source}, "targetParameter": {"@id": target}}
        connection = self.graph.add(local_id("connection", *ends), "ParameterConnection", **properties)
        owner.append_to("connection", connection)
