"""What was done: the stages as tools and steps, the jobs as actions, the run of the whole workflow."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eopipe.contract import STAGES, Option, Output, Port, stage, summary
from eopipe.provenance.contextual_entities import HOME
from eopipe.provenance.data_entities import Things
from eopipe.provenance.graph import Entity, Graph, local
from eopipe.provenance.jobs import Data, Job

PROFILE = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
KINDS = {bool: "Boolean", int: "Integer", float: "Float"}


class Parameters:
    """The formal parameters of all stages and of the workflow."""

    def __init__(self, graph: Graph, things: Things, jobs: Sequence[Job]) -> None:
        self.graph, self.things = graph, things
        self.profile = graph.add(PROFILE, "CreativeWork", name="Bioschemas FormalParameter", version="1.0-RELEASE")
        self.values = _all_values(jobs)

    def tie(self, owner: str, name: str, example: Entity, kind: str, **told: Any) -> Entity:
        """The parameter of a stage or of the workflow, which this thing or value is an example of."""
        parameter = self.graph.add(
            local("parameter", owner, name), "FormalParameter", name=name, conformsTo=self.profile, **told
        )
        parameter.append_to("additionalType", kind)
        example.append_to("exampleOfWork", parameter)
        return parameter

    def of_port(self, job: Job, data: Data) -> Entity:
        """The parameter that a file or folder of a job went through."""
        port, thing = _port(job.stage, data.port), self.things.of(data)
        told = _documentation(port) | ({"multipleValues": True} if port and port.is_list else {})
        if port and isinstance(port.mark, Output):
            thing.setdefault("description", port.mark.doc)
        return self.tie(job.stage, data.port, thing, kind_of(data), **told)

    def of_setting(self, job: Job, name: str) -> tuple[Entity, Entity]:
        """The parameter of a setting and the value it had; jobs with the same value share it."""
        given, same = job.settings[name], self.values[job.stage, name]
        number = str(same.index(_text(given)) + 1) if len(same) > 1 else ""
        shown = _text(given) if isinstance(given, (list, dict)) else given
        value = self.graph.add(local("value", job.stage, name, number), "PropertyValue", name=name)
        value["value"] = shown
        kind = KINDS.get(type(given), "Text")
        return self.tie(job.stage, name, value, kind, **_documentation(_port(job.stage, name))), value


def kind_of(data: Data) -> str:
    """The type of a thing in RO-Crate."""
    return "Dataset" if data.folder else "File"


def _all_values(jobs: Sequence[Job]) -> dict[tuple[str, str], list[str]]:
    """The different values of every setting over all jobs, sorted."""
    found = defaultdict(set)
    for job in jobs:
        for name, value in job.settings.items():
            found[job.stage, name].add(_text(value))
    return {key: sorted(values) for key, values in found.items()}


def _text(value: Any) -> str:
    # A list in JSON-LD has no order, so it goes in as text.
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _port(name: str, port: str) -> Port | None:
    """The port as the installed version defines it; a record of another version may have others."""
    ports = stage(name).ports if name in STAGES else ()
    return next((p for p in ports if p.name == port), None)


def _documentation(port: Port | None) -> dict[str, Any]:
    if port is None:
        return {}
    told: dict[str, Any] = {"description": port.mark.doc, "valueRequired": port.required}
    if isinstance(port.mark, Option) and not port.required and port.default not in (None, ()):
        told["defaultValue"] = _text(port.default) if isinstance(port.default, tuple) else port.default
    return told


COMPLETED, FAILED = "http://schema.org/CompletedActionStatus", "http://schema.org/FailedActionStatus"
# What a run record measures, and its unit: processor time of the job and its processes, most memory of one process.
USAGE = {"cpu_s": "https://qudt.org/vocab/unit/SEC", "max_rss_mb": "https://qudt.org/vocab/unit/MebiBYTE"}
HOMES = {
    "python": "https://www.python.org/",
    "numpy": "https://numpy.org/",
    "rasterio": "https://rasterio.readthedocs.io/",
    "torch": "https://pytorch.org/",
    "zarr": "https://zarr.dev/",
}


def commit_words(commit: str) -> str:
    """A commit as a record keeps it, in words.

    >>> commit_words("1a2b+")
    'commit 1a2b, with changed files'
    """
    return f"commit {commit.rstrip('+')}{', with changed files' * commit.endswith('+')}" if commit else ""


@dataclass
class Account:
    """Everything that tells what was done, as it grows; `makers` are the parameters that things came out of."""

    graph: Graph
    things: Things
    parameters: Parameters
    agent: Entity
    workflow: Entity
    lock: Entity | None
    stages: list[str] = field(default_factory=list)
    tools: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    makers: dict[str, tuple[str, str]] = field(default_factory=dict)
    actions: list[Entity] = field(default_factory=list)
    controls: list[Entity] = field(default_factory=list)
    given: list[Entity] = field(default_factory=list)

    def tell(self, jobs: Sequence[Job]) -> None:
        """Add every job, its stage, and how data flowed from stage to stage."""
        self.stages = list(dict.fromkeys(job.stage for job in jobs))
        for job in jobs:
            self.makers |= {data.key: (job.stage, data.port) for data in job.record.outputs}
        for job in jobs:
            self._job(job)

    def _job(self, job: Job) -> None:
        tool = self._tool(job)
        step = self._step(job, tool)
        for data in job.record.inputs:
            tool.append_to("input", self.parameters.of_port(job, data))
            self._flow(step, job, data)
        settings = [self.parameters.of_setting(job, name) for name in job.settings]
        for parameter, _ in settings:
            tool.append_to("input", parameter)
        for data in job.record.outputs:
            tool.append_to("output", self.parameters.of_port(job, data))
        action = self._action(job, tool, [value for _, value in settings])
        control = self.graph.add(
            local("control", job.stage, job.label),
            "ControlAction",
            name=f"Orchestration of {job.title}",
            instrument=step,
            object=action,
            actionStatus=action["actionStatus"],
        )
        self.actions.append(action)
        self.controls.append(control)

    def _action(self, job: Job, tool: Entity, values: list[Entity]) -> Entity:
        record = job.record
        return self.graph.add(
            local("job", job.stage, job.label),
            "CreateAction",
            name=f"Run of eopipe {job.title}",
            description=job.command,
            identifier=record.place.job,
            instrument=tool,
            agent=self.agent,
            object=[self.things.of(data) for data in record.inputs] + values,
            result=[self.things.of(data) for data in record.outputs],
            startTime=record.start,
            endTime=record.end,
            actionStatus=FAILED if job.failed else COMPLETED,
            error=job.error if job.failed else None,
            location=self._place(job),
            resourceUsage=self._usage(job),
        )

    def _place(self, job: Job) -> Entity:
        name = job.record.place.name
        return self.graph.add(local("machine", name), "Place", name=name)

    def _usage(self, job: Job) -> list[Entity]:
        """What the job used; jobs with the same figure share it."""
        found = []
        for name, value in sorted(job.record.usage.items()):
            words = {"propertyID": f"{HOME}#{name}", "unitCode": USAGE.get(name), "value": value}
            found.append(self.graph.add(local("usage", name, str(value)), "PropertyValue", name=name, **words))
        return found

    def _tool(self, job: Job) -> Entity:
        """The command of a stage, in the version and commit that ran and with the libraries that it had."""
        version, commit = job.record.version, job.record.software.get("git", "")
        source = f"{HOME}/blob/v{version}/eopipe/stages/{job.stage}.py"
        alike = self.tools.setdefault(source, [])
        if job.record.software not in alike:
            alike.append(job.record.software)
        number = alike.index(job.record.software) + 1
        tool = self.graph.add(
            f"{source}#{number}" if number > 1 else source,
            "SoftwareApplication",
            name=f"eopipe {job.stage}",
            description=summary(job.stage) if job.stage in STAGES else None,
            softwareVersion=version,
            identifier=commit_words(commit),
            url=source,
        )
        for name, release in sorted(job.record.software.items()):
            if name in HOMES:
                tool.append_to("softwareRequirements", self._library(name, release))
        self.workflow.append_to("hasPart", tool)
        return tool

    def _library(self, name: str, version: str) -> Entity:
        words = {"name": name, "softwareVersion": version, "url": HOMES[name]}
        return self.graph.add(f"{HOMES[name]}#{version}", "SoftwareApplication", **words)

    def _step(self, job: Job, tool: Entity) -> Entity:
        step = self.graph.add(
            local("step", job.stage),
            "HowToStep",
            name=job.stage,
            description=tool.get("description"),
            position=str(self.stages.index(job.stage) + 1),
            buildInstructions=self.lock,
        )
        step.append_to("workExample", tool)
        self.workflow.append_to("step", step)
        return step

    def _flow(self, step: Entity, job: Job, data: Data) -> None:
        """Say which output of a stage, or which input of the workflow, an input of this stage was."""
        maker = self.makers.get(data.key) or self.makers.get(self.things.folder_of(data))
        target = local("parameter", job.stage, data.port)
        if maker:
            self.connect(step, local("parameter", *maker), target)
            return
        thing = self.things.of(data)
        parameter = self.parameters.tie("workflow-in", data.port, thing, kind_of(data))
        self.workflow.append_to("input", parameter)
        self.connect(step, parameter.id, target)
        self.given.append(thing)

    def connect(self, owner: Entity, source: str, target: str) -> None:
        """Let what came out of one parameter go into another."""
        ends = (end.removeprefix("#parameter/").replace("/", ".") for end in (source, target))
        identifier = local("connection", *ends)
        words = {"sourceParameter": {"@id": source}, "targetParameter": {"@id": target}}
        owner.append_to("connection", self.graph.add(identifier, "ParameterConnection", **words))
