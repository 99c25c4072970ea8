"""Ports of stages as formal parameters, and the values they had."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from eopipe.contract import STAGES, Input, Output, Port, stage
from eopipe.provenance.graph import Entity, Graph, local
from eopipe.provenance.jobs import Data, Job
from eopipe.provenance.things import Things

PROFILE = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
KINDS = {bool: "Boolean", int: "Integer", float: "Float"}


class Parameters:
    """The formal parameters of all stages and of the workflow, tied to the data and values that they took."""

    def __init__(self, graph: Graph, things: Things, jobs: Sequence[Job]) -> None:
        self.graph, self.things = graph, things
        self.profile = graph.add(PROFILE, "CreativeWork", name="Bioschemas FormalParameter", version="1.0-RELEASE")
        self.values = _all_values(jobs)

    def add(self, owner: str, name: str, kinds: Iterable[str], **told: Any) -> Entity:
        """A formal parameter of a stage or of the workflow."""
        words = {"additionalType": sorted(kinds), "conformsTo": self.profile, "name": name}
        return self.graph.add(local("parameter", owner, name), "FormalParameter", **words, **told)

    def of_port(self, job: Job, data: Data) -> Entity:
        """The parameter of a stage that a file or folder went through; both point to each other."""
        port = _port(job.stage, data.port)
        told = _documentation(port) | ({"multipleValues": True} if port and port.many else {})
        return tie(self.add(job.stage, data.port, [_kind(data)], **told), self.things.of(data), _kind(data))

    def of_setting(self, job: Job, name: str) -> Entity:
        """The parameter of a stage that a setting stands for."""
        return self.add(job.stage, name, [self._type(job, name)], **_documentation(_port(job.stage, name)))

    def value(self, job: Job, name: str) -> Entity:
        """The value that a setting had in a job; jobs with the same value share it."""
        text, same = _text(job.settings[name]), self.values[job.stage, name]
        number = str(same.index(text) + 1) if len(same) > 1 else ""
        given = job.settings[name]
        shown = text if isinstance(given, list) else given
        entity = self.graph.add(local("value", job.stage, name, number), "PropertyValue", name=name)
        entity["value"] = shown
        tie(self.of_setting(job, name), entity, self._type(job, name))
        return entity

    @staticmethod
    def _type(job: Job, name: str) -> str:
        return KINDS.get(type(job.settings[name]), "Text")


def tie(parameter: Entity, example: Entity, kind: str) -> Entity:
    """Let a parameter and what it took point to each other."""
    for entity, key, other in ((parameter, "workExample", example), (example, "exampleOfWork", parameter)):
        entity.append_to(key, other)
    parameter.append_to("additionalType", kind)
    return parameter


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


def _kind(data: Data) -> str:
    return "Dataset" if data.folder else "File"


def _port(name: str, port: str) -> Port | None:
    """The port as the installed version defines it; a record of another version may have others."""
    ports = stage(name).ports if name in STAGES else ()
    return next((p for p in ports if p.name == port), None)


def _documentation(port: Port | None) -> dict[str, Any]:
    if port is None:
        return {}
    told: dict[str, Any] = {"description": port.mark.doc, "valueRequired": port.required}
    default = None if port.required or isinstance(port.mark, (Input, Output)) else port.default
    if default not in (None, (), ""):
        told["defaultValue"] = _text(default) if isinstance(default, tuple) else default
    return told
