"""Read a crate back: what it holds, and the jobs that its metadata tell of."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from eopipe.contract import STAGES, Input, Output, stage
from eopipe.errors import BadInputError
from eopipe.provenance.contextual_entities import HOME
from eopipe.provenance.create_actions import FAILED, HOMES
from eopipe.provenance.graph import CRATE_VERSION, METADATA
from eopipe.provenance.jobs import Data, Job, Place, Record
from eopipe.publish import MANIFEST, Damage, read_json

PROFILE_VERSION = "0.5"
RUN = "https://w3id.org/ro/wfrun/"
KNOWN = {
    "RO-Crate": (r"https://w3id\.org/ro/crate/(\d+(?:\.\d+)*)", CRATE_VERSION),
    "Provenance Run Crate": (r"https://w3id\.org/ro/wfrun/provenance/(\d+(?:\.\d+)*)", PROFILE_VERSION),
}
Entities = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Crate:
    """A crate on disk: its entities by id, and the jobs of its run in the order of the stages."""

    folder: Path
    entities: Entities
    jobs: tuple[Job, ...]

    def held(self) -> Iterator[tuple[str, Data]]:
        """Path and content of every file and folder that is in the crate and has a checksum."""
        for identifier, entity in self.entities.items():
            if identifier.startswith(("#", "./")) or "://" in identifier or "sha256" not in entity:
                continue
            if _types(entity) & {"File", "Dataset"}:
                yield unquote(identifier).rstrip("/"), _data(entity, "")

    @property
    def places(self) -> dict[str, Path]:
        """Where the crate holds what, by its content."""
        return {data.key: self.folder / path for path, data in self.held()}

    @property
    def commits(self) -> set[str]:
        """The commits that the jobs ran from, with + where files were changed; empty where none is told."""
        main = self.entities["./"].get("mainEntity", {}).get("@id", "")
        told = str(self.entities.get(main, {}).get("version", ""))
        return {words[1] for one in told.split(", ") if len(words := one.split()) == 2}

    @property
    def config(self) -> Path | None:
        """The config file of the run, if the crate holds one."""
        return next(iter(sorted((self.folder / "config").glob("*.y*ml"))), None)


def is_crate(path: Path) -> bool:
    """Whether a folder calls itself the crate of a run; that of a workflow alone, as a checkout is, does not."""
    return (path / METADATA).is_file() and RUN in (path / METADATA).read_text(encoding="utf-8", errors="replace")


def read_crate(folder: Path) -> Crate:
    """Read a crate that `eopipe crate` made.

    Raises BadInputError where there is none, where it is not of eopipe, or of a newer profile than is known here.
    """
    if not is_crate(folder):
        raise BadInputError(
            f"{folder} is no crate of a run: it has no {METADATA} that says so; give the folder that eopipe crate made"
        )
    try:
        entities = {str(entity["@id"]): entity for entity in read_json(folder / METADATA)["@graph"]}
        _known(folder, entities)
        jobs = tuple(_job(i, e, entities) for i, e in entities.items() if i.startswith("#job/"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{folder / METADATA} is not as eopipe writes it: {error!r}") from error
    order = {name: number for number, name in enumerate(STAGES)}
    return Crate(folder, entities, tuple(sorted(jobs, key=lambda j: (order.get(j.stage, len(order)), j.label))))


def _known(folder: Path, entities: Entities) -> None:
    said = [*_ids(entities[METADATA].get("conformsTo")), *_ids(entities["./"].get("conformsTo"))]
    for name, (pattern, known) in KNOWN.items():
        versions = [found[1] for one in said if (found := re.fullmatch(pattern, one))]
        if not versions:
            raise BadInputError(f"{folder} is no {name}, so no run of eopipe can be read from it")
        if known not in versions:
            raise BadInputError(
                f"{folder} follows {name} {', '.join(versions)}, and this eopipe reads {known}; "
                "use the eopipe that made it, or a newer one"
            )
    if not any(identifier.startswith(f"{HOME}/blob/") for identifier in entities):
        raise BadInputError(f"{folder} is a {name}, but not one of an eopipe run")


def _job(identifier: str, action: dict[str, Any], entities: Entities) -> Job:
    _, name, *rest = identifier.split("/")
    tool = entities[_ids(action["instrument"])[0]]
    objects = [entities[one] for one in _ids(action.get("object"))]
    record = Record(
        stage=name,
        version=tool["softwareVersion"],
        status="failed" if action["actionStatus"] == FAILED else "completed",
        error=str(action.get("error", "")),
        start=action["startTime"],
        end=action["endTime"],
        arguments=(),
        settings={e["name"]: _setting(name, e) for e in objects if e["@id"].startswith("#value/")},
        inputs=tuple(data for e in objects for data in _through(e, name, Input)),
        outputs=tuple(data for i in _ids(action.get("result")) for data in _through(entities[i], name, Output)),
        usage={},
        place=Place(system="", machine="", cores=None, job=str(action.get("identifier", ""))),
        software=_libraries(tool, entities),
    )
    return Job(record, " ".join(_plain(unquote(one)) for one in rest))


def _through(entity: dict[str, Any], name: str, kind: type[Input | Output]) -> Iterator[Data]:
    """A thing once for each port of a stage that it went through, of one kind."""
    ports = [port.name for port in stage(name).of(kind)] if name in STAGES else []
    for one in _ids(entity.get("exampleOfWork")):
        owner, _, port = one.removeprefix("#parameter/").partition("/")
        if owner == name and port in ports:
            yield _data(entity, port)


def _data(entity: dict[str, Any], port: str) -> Data:
    """What an entity tells of a file or folder; one without a checksum is known by name, files and bytes."""
    _plain(str(entity["name"]))
    many = unquote(entity["@id"]).split("/")[2] if entity["@id"].startswith("#data/") else "1"
    return Data(
        port=port,
        name=str(entity["name"]),
        folder="Dataset" in _types(entity),
        bytes=int(entity.get("contentSize", 0)),
        files=int(many),
        sha256=str(entity.get("sha256", "")),
    )


def _plain(name: str) -> str:
    """A name that can be that of a new file: it leads nowhere else."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file")
    return name


def _setting(name: str, entity: dict[str, Any]) -> Any:
    """The value of a setting; lists are JSON in the metadata."""
    ports = {port.name: port for port in stage(name).ports} if name in STAGES else {}
    port, value = ports.get(entity["name"]), entity["value"]
    return json.loads(value) if port and port.is_list and isinstance(value, str) else value


def _libraries(tool: dict[str, Any], entities: Entities) -> dict[str, str]:
    found = [entities[i] for i in _ids(tool.get("softwareRequirements"))]
    return {e["name"]: e["softwareVersion"] for e in found if e["name"] in HOMES}


def _types(entity: dict[str, Any]) -> set[str]:
    kinds = entity["@type"]
    return set(kinds) if isinstance(kinds, list) else {kinds}


def _ids(value: Any) -> list[str]:
    """The ids that a property refers to."""
    many = value if isinstance(value, list) else [value] if value else []
    return [str(one["@id"]) for one in many if isinstance(one, dict)]


Rows = dict[str, str]


def crate_damages(folder: Path) -> list[Damage]:
    """Where metadata, folders and manifest of a crate say different things; its files are held against the manifest.

    So each file is read once, by whoever checks the manifest. Raises BadInputError for what is no crate of eopipe.
    """
    crate = read_crate(folder)
    try:
        rows = _checksums(folder)
    except BadInputError:
        # Whoever checks the manifest tells it.
        return []
    return [Damage(what) for path, data in crate.held() for what in _held(crate, rows, path, data.folder, data.sha256)]


def _held(crate: Crate, rows: Rows, path: str, folder: bool, sha256: str) -> Iterator[str]:
    found = rows.get(f"{path}/{MANIFEST}" if folder else path)
    if found is None:
        yield f"{path} is in the metadata, but not in {MANIFEST}"
    elif found != sha256:
        yield f"{path} has other content than the metadata say"
    elif folder:
        yield from _inside(crate.folder, rows, path)


def _inside(root: Path, rows: Rows, path: str) -> Iterator[str]:
    """A folder that keeps its own manifest was published before it came into the crate; both have to agree."""
    try:
        known = _checksums(root / path)
    except BadInputError:
        return
    listed = {f"{path}/{name}": sha256 for name, sha256 in known.items()}
    here = {name: sha256 for name, sha256 in rows.items() if name.startswith(f"{path}/")}
    for name in sorted((listed.items() ^ here.items()) - {(f"{path}/{MANIFEST}", here[f"{path}/{MANIFEST}"])}):
        yield f"{name[0]} is not what the {MANIFEST} of {path} tells"


def _checksums(folder: Path) -> Rows:
    try:
        return {row["path"]: row["sha256"] for row in read_json(folder / MANIFEST)["files"]}
    except (KeyError, TypeError) as error:
        raise BadInputError(f"{folder / MANIFEST} is damaged") from error
