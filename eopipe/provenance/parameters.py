"""Ports of stages as formal parameters, tied to the data and values that went through them."""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from eopipe.contract import STAGES, Option, Output, Port, stage
from eopipe.provenance.graph import Entity, Graph, local
from eopipe.provenance.jobs import Data, Job
from eopipe.provenance.things import Things

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
        told = _documentation(port) | ({"multipleValues": True} if port and port.many else {})
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
