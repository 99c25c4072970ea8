"""The jobs of a run, read from their run records: in the order of the stages, each with a name of its own."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from eopipe.contract import STAGES
from eopipe.errors import BadInputError
from eopipe.provenance.redact import redact_argument, redact_command, redact_paths
from eopipe.publish import read_json

FROZEN = ConfigDict(frozen=True, extra="ignore")
# A job that reads many files names these many of them in its command; all stand among what it read.
SHOWN = 12


class Data(BaseModel):
    """A file or folder that a job read or made; sha256 is empty for a folder that was not published."""

    model_config = FROZEN

    port: str
    name: str
    folder: bool
    bytes: int
    files: int
    sha256: str

    @property
    def key(self) -> str:
        """What tells that two jobs mean the same thing: equal content."""
        return self.sha256 or f"{self.name}/{self.files}/{self.bytes}"


class Place(BaseModel):
    """The class of machine a job ran on, and the scheduler's id of the job."""

    model_config = FROZEN

    system: str
    machine: str
    cores: int | None
    job: str
    processor: str = ""
    accelerators: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The class of machine in words."""
        cards = [f"{many} x {card}" for card, many in sorted(Counter(self.accelerators).items())]
        words = [f"{self.system} {self.machine}", self.processor, f"{self.cores or 'unknown'} cores", *cards]
        return ", ".join(filter(None, words))


class Record(BaseModel):
    """A run record, as `eopipe.provenance.record` writes it."""

    model_config = FROZEN

    stage: str
    version: str
    status: Literal["completed", "failed"]
    error: str
    start: str
    end: str
    arguments: tuple[str, ...]
    settings: dict[str, Any]
    inputs: tuple[Data, ...]
    outputs: tuple[Data, ...]
    usage: dict[str, float]
    place: Place
    software: dict[str, str]
    project: str = ""
    engine: str = ""


@dataclass(frozen=True)
class Job:
    """One run of a stage; `label` tells it from the stage's other jobs and is empty where there are none."""

    record: Record
    label: str

    @property
    def stage(self) -> str:
        """The stage that the job ran."""
        return self.record.stage

    @property
    def title(self) -> str:
        """Stage and label."""
        return f"{self.stage} {self.label}".strip()

    @property
    def failed(self) -> bool:
        """Whether the job ended with an error."""
        return self.record.status == "failed"

    @property
    def error(self) -> str:
        """Why it failed, without paths of the machine."""
        return redact_paths(self.record.error, self.record.arguments)

    @property
    def command(self) -> str:
        """The command line, without paths of the machine and credentials; of many words in a row the first few."""
        return redact_command(_first(self.record.arguments))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that have a value, without paths of the machine and without credentials."""
        return {k: _shown(v) for k, v in sorted(self.record.settings.items()) if v not in (None, "", [])}


def _first(words: Sequence[str]) -> list[str]:
    """The words of a command, but of those behind one option no more than `SHOWN`, and how many there are."""
    found: list[str] = []
    for option, given in groupby(words, key=lambda word: word.startswith("--")):
        many = list(given)
        found += many if option or len(many) <= SHOWN else [*many[:SHOWN], f"(and {len(many) - SHOWN} more)"]
    return found


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(one) for one in value]
    return redact_argument(value) if isinstance(value, str) else value


def read_jobs(records: Sequence[Path]) -> tuple[Job, ...]:
    """Read run records; the order in which they are given does not matter, nor that one comes twice.

    Raises BadInputError that lists every file that is no run record.
    """
    unique: dict[str, Record] = {}
    wrong = []
    for path in records:
        value = read_json(path)
        try:
            unique[json.dumps(value, sort_keys=True)] = Record.model_validate(value)
        except ValidationError as error:
            wrong.append(f"{path} ({'.'.join(map(str, error.errors()[0]['loc'])) or 'no object'})")
    if wrong:
        raise BadInputError(f"not run records as eopipe {', '.join(STAGES[:3])} … write them: {'; '.join(wrong)}")
    return _named([unique[text] for text in sorted(unique)])


def _named(records: list[Record]) -> tuple[Job, ...]:
    stages = sorted({r.stage for r in records}, key=lambda s: (STAGES.index(s) if s in STAGES else len(STAGES), s))
    jobs = []
    for stage in stages:
        same = [r for r in records if r.stage == stage]
        jobs += sorted(map(Job, same, _labels(same)), key=lambda job: (job.label, job.record.start))
    return tuple(jobs)


def _labels(records: list[Record]) -> list[str]:
    """What tells jobs of a stage apart: the first input whose name differs from job to job, else their number."""
    if len(records) == 1:
        return [""]
    for port in dict.fromkeys(d.port for d in records[0].inputs):
        names = [next((d.name for d in r.inputs if d.port == port), "") for r in records]
        if "" not in names and len(set(names)) == len(names):
            return [name.removesuffix(".zarr").removesuffix(".geojson") for name in names]
    order = sorted(range(len(records)), key=lambda number: (records[number].start, number))
    return [str(order.index(number) + 1) for number in range(len(records))]
