"""Read a crate of eopipe: its data entities, and the jobs of its run; check its files against its metadata."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from eopipe.contract import STAGES, Input, Output, stage
from eopipe.errors import BadInputError, IntegrityError
from eopipe.provenance.create_actions import FAILED
from eopipe.provenance.graph import CRATE_VERSION, METADATA, REPOSITORY, as_list
from eopipe.provenance.jobs import HostClass, RecordedData, RecordedJob, RunRecord, current_stage
from eopipe.publish import MANIFEST, Damage, manifest_rows
from eopipe.text_files import read_json

RUN_PROFILES = "https://w3id.org/ro/wfrun/"
# The pattern of each profile's identifier, and the versions of both that are read: each profile of runs builds on one
# RO-Crate, and the JSON of both pairs has the same terms.
PROFILES = {
    "RO-Crate": r"https://w3id\.org/ro/crate/(\d+(?:\.\d+)*)",
    "Provenance Run Crate": r"https://w3id\.org/ro/wfrun/provenance/(\d+(?:\.\d+)*)",
}
READABLE = ((CRATE_VERSION, "0.5"), ("1.3", "0.6"))
Entities = dict[str, dict[str, Any]]
# Size and sha256 of files by path, as manifests have them.
Rows = dict[str, tuple[int, str]]


@dataclass(frozen=True)
class RunCrate:
    """A crate on disk: its entities by id, and the jobs of its run in the order of the stages.

    `commits` are those that the jobs ran from, with `+` where files were changed; empty where none is recorded.
    """

    folder: Path
    entities: Entities
    jobs: tuple[RecordedJob, ...]
    commits: frozenset[str]

    def data_entities(self) -> Iterator[tuple[str, RecordedData]]:
        """Path and content of every file and folder that is in the crate and has a checksum."""
        for identifier, entity in self.entities.items():
            if identifier.startswith(("#", "./")) or "://" in identifier or "sha256" not in entity:
                continue
            if _types(entity) & {"File", "Dataset"}:
                yield unquote(identifier).rstrip("/"), _recorded_data(entity, "")

    @property
    def paths(self) -> dict[str, Path]:
        """The paths of the crate's files and folders on disk, by the key of their content."""
        return {data.key: self.folder / path for path, data in self.data_entities()}

    @property
    def config(self) -> Path | None:
        return next(iter(sorted((self.folder / "config").glob("*.y*ml"))), None)


def is_crate(path: Path) -> bool:
    """Whether a folder is the crate of a run by its own metadata; the crate of a workflow, as a checkout, is not."""
    metadata = path / METADATA
    return metadata.is_file() and RUN_PROFILES in metadata.read_text(encoding="utf-8", errors="replace")


def read_crate(folder: Path) -> RunCrate:
    """Read a crate that `eopipe crate` made.

    Raises BadInputError for a folder that is not a crate of eopipe, and for a profile version that is newer than
    this code.
    """
    if not is_crate(folder):
        raise BadInputError(
            f"{folder} is not the crate of a run: it has no {METADATA} of one; give the folder that eopipe crate made"
        )
    order = {name: number for number, name in enumerate(STAGES)}
    try:
        entities = {str(entity["@id"]): entity for entity in read_json(folder / METADATA)["@graph"]}
        _check_profiles(folder, entities)
        jobs = tuple(_job(i, e, entities) for i, e in entities.items() if i.startswith("#job/"))
        jobs = tuple(sorted(jobs, key=lambda j: (order.get(j.stage, len(order)), j.label)))
        crate = RunCrate(folder, entities, jobs, _commits(entities))
        # A mistake in an entity is reported here, not where it is used.
        _ = [*crate.data_entities()]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadInputError(
            f"{folder / METADATA} has another structure than the metadata that eopipe writes: {error!r}"
        ) from error
    return crate


def _check_profiles(folder: Path, entities: Entities) -> None:
    profiles = [*_ids(entities[METADATA].get("conformsTo")), *_ids(entities["./"].get("conformsTo"))]
    versions = {
        name: [match[1] for profile in profiles if (match := re.fullmatch(pattern, profile))]
        for name, pattern in PROFILES.items()
    }
    for name in PROFILES:
        if not versions[name]:
            raise BadInputError(f"{folder} is not a {name}, so no run of eopipe can be read from it")
    if not set(product(*versions.values())) & set(READABLE):
        text = " with ".join(f"{name} {', '.join(numbers)}" for name, numbers in versions.items())
        raise BadInputError(
            f"{folder} follows {text}, and this eopipe reads {' or '.join(map(' with '.join, READABLE))}; "
            "use the eopipe that made it, or a newer one"
        )
    if not any(identifier.startswith(f"{REPOSITORY}/blob/") for identifier in entities):
        raise BadInputError(f"{folder} is a {name}, but not one of an eopipe run")


def _commits(entities: Entities) -> frozenset[str]:
    main = entities["./"].get("mainEntity", {}).get("@id", "")
    versions = str(entities.get(main, {}).get("version", "")).split(", ")
    return frozenset(parts[1] for version in versions if len(parts := version.split()) == 2)


def _job(identifier: str, action: dict[str, Any], entities: Entities) -> RecordedJob:
    _, recorded, *label = identifier.split("/")
    name, options = current_stage(recorded)
    tool = entities[_ids(action["instrument"])[0]]
    objects = [entities[reference] for reference in _ids(action.get("object"))]
    record = RunRecord(
        stage=recorded,
        version=tool["softwareVersion"],
        status="failed" if action["actionStatus"] == FAILED else "completed",
        error=str(action.get("error", "")),
        start=action["startTime"],
        end=action["endTime"],
        arguments=(),
        settings={e["name"]: _setting(name, e) for e in objects if e["@id"].startswith("#value/")},
        inputs=tuple(data for entity in objects for data in _data_of_ports(entity, recorded, Input)),
        outputs=tuple(
            data for i in _ids(action.get("result")) for data in _data_of_ports(entities[i], recorded, Output)
        ),
        usage={},
        place=HostClass(system="", machine="", cores=None, job=str(action.get("identifier", ""))),
        software=_libraries(tool, entities),
    )
    # Jobs of several stages of before are jobs of one now, and their labels differ.
    parts = [*([recorded] if options else []), *map(unquote, label)]
    return RecordedJob(record, " ".join(map(_safe_name, parts)))


def _data_of_ports(entity: dict[str, Any], name: str, kind: type[Input | Output]) -> Iterator[RecordedData]:
    """A file or folder, once for each port of a stage and of one kind that it was passed through."""
    current, _ = current_stage(name)
    ports = [port.name for port in stage(current).of(kind)] if current in STAGES else []
    for parameter in _ids(entity.get("exampleOfWork")):
        owner, _, port = parameter.removeprefix("#parameter/").partition("/")
        if owner == name and port in ports:
            yield _recorded_data(entity, port)


def _recorded_data(entity: dict[str, Any], port: str) -> RecordedData:
    """The file or folder of an entity; without a checksum it is identified by name, number of files and bytes."""
    files = unquote(entity["@id"]).split("/")[2] if entity["@id"].startswith("#data/") else "1"
    return RecordedData(
        port=port,
        name=_safe_name(str(entity["name"])),
        folder="Dataset" in _types(entity),
        bytes=int(entity.get("contentSize", 0)),
        files=int(files),
        sha256=str(entity.get("sha256", "")),
        path=str(entity.get("alternateName", "")),
    )


def _safe_name(name: str) -> str:
    """A name that a new file may have; raises ValueError for one that leads into another folder."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a file name")
    return name


def _setting(name: str, entity: dict[str, Any]) -> Any:
    """The value of a setting; lists are JSON in the metadata."""
    ports = {port.name: port for port in stage(name).ports} if name in STAGES else {}
    port, value = ports.get(entity["name"]), entity["value"]
    return json.loads(value) if port and port.is_list and isinstance(value, str) else value


def _libraries(tool: dict[str, Any], entities: Entities) -> dict[str, str]:
    requirements = [entities[identifier] for identifier in _ids(tool.get("softwareRequirements"))]
    return {e["name"]: e["softwareVersion"] for e in requirements}


def _types(entity: dict[str, Any]) -> set[str]:
    return set(map(str, as_list(entity["@type"])))


def _ids(value: Any) -> list[str]:
    """The ids that a property refers to."""
    return [str(reference["@id"]) for reference in as_list(value or None) if isinstance(reference, dict)]


def crate_damages(folder: Path) -> list[Damage]:
    """Contradictions between the metadata of a crate, its manifest and the manifests of its folders.

    Checksums are compared, not files: the check of the manifest reads each file, once. Raises BadInputError for a
    folder that is not a crate of eopipe.
    """
    crate = read_crate(folder)
    try:
        rows = manifest_rows(folder)
    except IntegrityError:
        # The check of the manifest reports it.
        return []
    contents = crate.data_entities()
    return [Damage(text) for path, data in contents for text in _contradictions(folder, rows, path, data)]


def _contradictions(folder: Path, rows: Rows, path: str, data: RecordedData) -> Iterator[str]:
    row = rows.get(f"{path}/{MANIFEST}" if data.folder else path)
    if row is None:
        yield f"{path} is in the metadata, but not in {MANIFEST}"
    elif row[1] != data.sha256:
        yield f"{path} has other content than the metadata say"
    elif data.folder:
        yield from _contradictions_inside(folder, rows, path)


def _contradictions_inside(crate: Path, rows: Rows, path: str) -> Iterator[str]:
    """A folder with a manifest of its own was published before it was added to the crate; both have to agree."""
    try:
        listed = {f"{path}/{name}": row for name, row in manifest_rows(crate / path).items()}
    except IntegrityError:
        return
    in_crate = {name: row for name, row in rows.items() if name.startswith(f"{path}/")}
    manifest = f"{path}/{MANIFEST}"
    different = (listed.items() ^ in_crate.items()) - {(manifest, in_crate[manifest])}
    for name in sorted({name for name, _ in different}):
        yield f"{name} is not what the {MANIFEST} of {path} says"
