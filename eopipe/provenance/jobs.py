"""The jobs of a run, read from their run records: in the order of the stages, each with a unique label."""

import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from eopipe import contract
from eopipe.arguments import SETTINGS, parse
from eopipe.contract import STAGES, Input
from eopipe.errors import BadInputError, EopipeError, IntegrityError
from eopipe.provenance.redact import redact_argument, redact_command, redact_paths
from eopipe.publish import RECORD
from eopipe.text_files import read_json

IMMUTABLE = ConfigDict(frozen=True, extra="ignore")
# The command of a job that reads many files lists this many of them per option; its inputs list them all.
LISTED_ARGUMENTS = 12
# Stages of earlier versions, which records and crates name: the stage that has their ports now, and its options.
EARLIER_STAGES: dict[str, tuple[str, dict[str, str]]] = {
    "describe": ("report", {}),
    "promote": ("choose", {"reducer": "halving"}),
    "combine": ("choose", {"reducer": "mean"}),
}


def current_stage(name: str) -> tuple[str, dict[str, str]]:
    """The stage that has the ports of one that a record names, and the options that this name stands for."""
    return EARLIER_STAGES.get(name, (name, {}))


class RecordedData(BaseModel, **IMMUTABLE):
    """A file or folder that a job read or wrote; `sha256` is empty for a folder that was not published.

    `path` leads to a file in a folder that the command names, or to a store in an output; else it is empty.
    """

    port: str
    name: str
    folder: bool
    bytes: int
    files: int
    sha256: str
    path: str = ""

    @property
    def key(self) -> str:
        """The identity of the content: two jobs with the same key read or wrote equal data."""
        return self.sha256 or f"{self.name}/{self.files}/{self.bytes}"

    @property
    def text(self) -> str:
        """What identifies the content, for a person."""
        return f"sha256 {self.sha256}" if self.sha256 else f"a folder of {self.files} files, {self.bytes} bytes"


class HostClass(BaseModel, **IMMUTABLE):
    """The class of machine that a job ran on, and the scheduler's id of the job."""

    system: str
    machine: str
    cores: int | None
    job: str
    processor: str = ""
    accelerators: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        accelerators = [f"{count} x {model}" for model, count in sorted(Counter(self.accelerators).items())]
        parts = [f"{self.system} {self.machine}", self.processor, f"{self.cores or 'unknown'} cores", *accelerators]
        return ", ".join(filter(None, parts))


class RunRecord(BaseModel, **IMMUTABLE):
    """A run record, as `eopipe.provenance.record` writes it; of a stage of before it is one of the present stage."""

    stage: str
    version: str
    status: Literal["completed", "failed"]
    error: str
    start: str
    end: str
    arguments: tuple[str, ...]
    settings: dict[str, Any]
    inputs: tuple[RecordedData, ...]
    outputs: tuple[RecordedData, ...]
    usage: dict[str, float]
    place: HostClass
    software: dict[str, str]
    project: str = ""
    engine: str = ""
    container: str = ""

    @property
    def code(self) -> str:
        """The version of eopipe, and its commit where it is known."""
        return " ".join(filter(None, (self.version, self.software.get("git", ""))))

    @model_validator(mode="before")
    @classmethod
    def _of_present_stage(cls, values: Any) -> Any:
        match values:
            case {"stage": str(name), "settings": dict(settings)}:
                name, options = current_stage(name)
                return values | {"stage": name, "settings": settings | options}
        return values


@dataclass(frozen=True)
class RecordedJob:
    """One run of a stage; `label` distinguishes it from the stage's other jobs and is empty if it has none."""

    record: RunRecord
    label: str

    @property
    def stage(self) -> str:
        return self.record.stage

    @property
    def title(self) -> str:
        return f"{self.stage} {self.label}".strip()

    @property
    def failed(self) -> bool:
        return self.record.status == "failed"

    @property
    def error(self) -> str:
        """Why it failed, without paths of the machine."""
        return redact_paths(self.record.error, self.record.arguments)

    @property
    def command(self) -> str:
        """The command line without paths of the machine and credentials; long lists of arguments are shortened."""
        return redact_command(_shorten(self.record.arguments))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that have a value, without paths of the machine and credentials."""
        return {k: _redact_setting(v) for k, v in sorted(self.record.settings.items()) if v not in (None, "", [])}


def named_inputs(
    root: Path, records: Mapping[Path, RunRecord], known: Collection[Path], folders: Sequence[Path]
) -> Iterator[tuple[Path, str, Path]]:
    """Inputs at or below a path that are gone, and inputs of a crate beside it, with their digests and the output.

    `known` ones, and what is in them or in `folders`, are checked otherwise. Inputs of a user elsewhere may be gone,
    and what other jobs than the crate read may have been rebuilt since.
    """
    top, published, named = root.absolute(), {path.absolute() for path in (*known, *folders)}, {*known}
    outputs = {file.with_name(file.name.removesuffix(RECORD)): record for file, record in records.items()}
    placed = {output: list(_input_paths(record, output)) for output, record in outputs.items()}
    # What a folder under another name lacks was not copied with the rest, unless most of it is there.
    renamed = {path for rows in placed.values() for path, _, is_renamed in rows if is_renamed}
    is_whole = 2 * sum(path.exists() for path in renamed) > len(renamed)
    for output, rows in placed.items():
        for absolute, sha256, is_renamed in rows:
            path = root / absolute.relative_to(top) if absolute.is_relative_to(top) else None
            if path is None or path in named or not published.isdisjoint(absolute.parents):
                continue
            is_of_crate = outputs[output].stage == "crate" and sha256 and path.is_relative_to(output.parent)
            if (is_whole or not is_renamed) and (is_of_crate or not path.exists()):
                named.add(path)
                yield path, sha256, output


def recorded_command(arguments: Sequence[str]) -> tuple[contract.Stage, dict[str, Any]]:
    """The stage of a command in a run record, and its values by port, without options that this version does not have.

    Raises IntegrityError for no command of a stage, BadInputError for one that asks for help only.
    """
    name, options = current_stage(arguments[1]) if len(arguments) > 1 else ("", {})
    if name not in STAGES:
        raise IntegrityError("there is no run record with its command; run the stage again")
    definition, words, is_known = contract.stage(name), list[str](), True
    flags = {port.flag for port in definition.ports} | {SETTINGS}
    for word in arguments[2:]:
        is_known = word.partition("=")[0] in flags if contract.is_option(word) else is_known
        words += [word] * is_known
    try:
        return definition, parse(definition, words) | options
    except SystemExit as error:
        raise BadInputError("the command in its run record asks for help only; run the stage again") from error


def _input_paths(record: RunRecord, output: Path) -> Iterator[tuple[Path, str, bool]]:
    """The absolute paths of what a recorded command reads, by where its output is now, and their digests.

    The last value says whether the folder of results had another name, in which case only its own files are known.
    Nothing if the output was moved to another depth, if the job failed, or if the command is another one's.
    """
    if not record.outputs:
        return
    try:
        definition, values = recorded_command(record.arguments)
    except EopipeError:
        return
    parts = output.absolute().parts
    targets = definition.outputs(values)
    # The folder of results may have another name now.
    tails = (parts[-len(path.parts) :] for path in targets)
    is_of_output = (
        path.is_absolute() or path.parts == tail or (len(tail) > 1 and path.parts[1:] == tail[1:])
        for path, tail in zip(targets, tails, strict=True)
    )
    if target := next((path for path, chosen in zip(targets, is_of_output, strict=True) if chosen), None):
        folder = Path() if target.is_absolute() else Path(*parts[: -len(target.parts)])
        now = target if target.is_absolute() else Path(*parts[-len(target.parts) :])
        is_renamed = target.parts[0] != now.parts[0]
        for port in definition.of(Input):
            value = values[port.name]
            paths = value if isinstance(value, tuple) else (value,)
            digests = [data.sha256 for data in record.inputs if data.port == port.name and not data.path]
            # A row is missing for what did not exist.
            digests = digests if len(digests) == len(paths) else [""] * len(paths)
            # A record keeps the name alone of what had an absolute path, so nobody knows where a bare name was.
            placed = ((path, sha256) for path, sha256 in zip(paths, digests, strict=True) if path and path.parts[1:])
            for path, sha256 in placed:
                if not is_renamed or path.parts[0] == target.parts[0]:
                    inside = Path(now.parts[0], *path.parts[1:]) if is_renamed else path
                    yield Path(os.path.normpath(folder / inside)), sha256, is_renamed


def _shorten(arguments: Sequence[str]) -> list[str]:
    """A command line with at most `LISTED_ARGUMENTS` values per option, and the number of those omitted."""
    shortened: list[str] = []
    for is_option, group in groupby(arguments, key=lambda argument: argument.startswith("--")):
        values = list(group)
        omitted = len(values) - LISTED_ARGUMENTS
        shortened += values if is_option or omitted <= 0 else [*values[:LISTED_ARGUMENTS], f"(and {omitted} more)"]
    return shortened


def _redact_setting(value: Any) -> Any:
    if isinstance(value, list):
        return [_redact_setting(element) for element in value]
    return redact_argument(value) if isinstance(value, str) else value


def read_jobs(records: Sequence[Path]) -> tuple[RecordedJob, ...]:
    """Read run records; their order does not matter, and duplicates count once.

    Raises BadInputError that lists every file that is not a run record.
    """
    unique: dict[str, RunRecord] = {}
    invalid = []
    for path in records:
        value = read_json(path)
        try:
            unique[json.dumps(value, sort_keys=True)] = RunRecord.model_validate(value)
        except ValidationError as error:
            invalid.append(f"{path} ({'.'.join(map(str, error.errors()[0]['loc'])) or 'not a JSON object'})")
    if invalid:
        raise BadInputError(f"not run records as eopipe {', '.join(STAGES[1:4])} … write them: {'; '.join(invalid)}")
    return _label_jobs([unique[text] for text in sorted(unique)])


def _label_jobs(records: list[RunRecord]) -> tuple[RecordedJob, ...]:
    stages = sorted({r.stage for r in records}, key=lambda s: (STAGES.index(s) if s in STAGES else len(STAGES), s))
    jobs = []
    for stage in stages:
        of_stage = [record for record in records if record.stage == stage]
        jobs += sorted(map(RecordedJob, of_stage, _labels(of_stage)), key=lambda job: (job.label, job.record.start))
    return tuple(jobs)


def _labels(records: list[RunRecord]) -> list[str]:
    """Unique labels for the jobs of a stage: the first input whose name differs from job to job, else a number."""
    if len(records) == 1:
        return [""]
    for port in dict.fromkeys(data.port for data in records[0].inputs):
        names = [next((data.name for data in record.inputs if data.port == port), "") for record in records]
        if "" not in names and len(set(names)) == len(names):
            return [name.removesuffix(".zarr").removesuffix(".geojson") for name in names]
    order = sorted(range(len(records)), key=lambda number: (records[number].start, number))
    return [str(order.index(number) + 1) for number in range(len(records))]
