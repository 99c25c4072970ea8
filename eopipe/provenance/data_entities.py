"""Data entities of a crate: files and folders of the run under their names in the crate, and what jobs refer to.

The payload is hard-linked where the file system allows; the user's own files are copied, since an editor may write
into them.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from eopipe.errors import BadInputError
from eopipe.provenance.graph import CrateGraph, Entity, local_id
from eopipe.provenance.jobs import RecordedData, RecordedJob
from eopipe.provenance.redact import redact_argument
from eopipe.publish import digest, link_or_copy, manifest_rows, published_digest, size, write_manifest

# A folder with more files is described as one entity, without its files.
LISTED_FILES = 32
MEDIA_TYPES = {
    ".cff": "application/yaml",
    ".csv": "text/csv",
    ".cwl": "application/cwl",
    ".fgb": "application/vnd.flatgeobuf",
    ".geojson": "application/geo+json",
    ".gpkg": "application/geopackage+sqlite3",
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".onnx": "application/onnx",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".py": "text/x-python",
    ".safetensors": "application/vnd.safetensors",
    ".smk": "text/x-python",
    ".svg": "image/svg+xml",
    ".tif": "image/tiff",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


@dataclass(frozen=True)
class CratePart:
    """A file or folder of the crate: its path there, its content, its files' content, and what to know of it."""

    path: str
    content: RecordedData
    files: tuple["CratePart", ...] = ()
    note: str = ""


def crate_paths(payload: Sequence[Path], jobs: Sequence[RecordedJob], reserved: Collection[str]) -> dict[str, Path]:
    """Map paths in the crate to the files and folders of the payload.

    A path is the file's own name, prefixed by the job that made it where two names are equal or the name is in
    `reserved`; it does not depend on where an engine stages the files. Raises BadInputError for different files
    that would have the same path.
    """
    same_name = defaultdict(list)
    for path in sorted(set(payload)):
        same_name[path.name].append(path)
    sources: dict[str, Path] = {}
    for name, paths in sorted(same_name.items()):
        for path in paths:
            target = name if len(paths) == 1 and name not in reserved else f"{_job_folder(path, jobs)}/{name}"
            if target in sources and _identity(path) != _identity(sources[target]):
                raise BadInputError(f"{sources[target]} and {path} would be the same file of the crate; rename one")
            sources[target] = path
    return sources


def _identity(path: Path) -> str:
    """The identity of a content; an unpublished folder is identical only to itself."""
    return published_digest(path) or str(path)


def _job_folder(path: Path, jobs: Sequence[RecordedJob]) -> str:
    """The folder for the outputs of the job that made a file, `other` if none of the jobs made it."""
    content = _identity(path)
    job = next((job for job in jobs for data in job.record.outputs if data.sha256 == content), None)
    return "/".join(filter(None, (job.stage, job.label))) if job else "other"


def add_files(sources: Sequence[Path], folder: Path) -> None:
    """Put files into one folder of the crate and write its manifest."""
    for source in sources:
        link_or_copy(source, folder / source.name)
    write_manifest(folder)


def read_part(crate: Path, path: str, maximum: int = LISTED_FILES) -> CratePart:
    """Describe a file or folder of the crate; of a folder also its files, unless there are more than `maximum`."""
    location = crate / path
    bytes_, count = size(location)
    folder = location.is_dir()
    content = _content(location, count, bytes_, digest(location), folder=folder)
    return CratePart(path, content, _read_files(location, path, maximum) if folder else ())


def _read_files(folder: Path, path: str, maximum: int) -> tuple[CratePart, ...]:
    """The files of a published folder; none of a Zarr store or of a folder with more than `maximum` files."""
    rows = manifest_rows(folder)
    if (folder / "zarr.json").exists() or len(rows) > maximum:
        return ()
    return tuple(CratePart(f"{path}/{name}", _content(Path(name), 1, *row)) for name, row in rows.items())


def _content(path: Path, files: int, bytes_: int, sha256: str, *, folder: bool = False) -> RecordedData:
    return RecordedData(port="", name=path.name, folder=folder, bytes=bytes_, files=files, sha256=sha256)


def media_type(name: str) -> str:
    """The media type of a file by its name."""
    suffix = PurePosixPath(name).suffix.lower()
    return MEDIA_TYPES.get(suffix, "text/x-python" if name == "Snakefile" else "application/octet-stream")


class DataEntities:
    """The data entity of every file and folder in the crate or in a run record; equal content is one entity."""

    def __init__(self, graph: CrateGraph, parts: Sequence[CratePart]) -> None:
        self.graph = graph
        self.entities: dict[str, Entity] = {}
        self.folders: dict[str, str] = {}
        for part in parts:
            self._add(part)

    def _add(self, part: CratePart) -> Entity:
        content = part.content
        if content.folder:
            entity = self.graph.add_folder(part.path, **_properties(content))
            for file in part.files:
                entity.append_to("hasPart", self._add(file))
            self.folders |= {file.content.key: content.key for file in part.files}
        else:
            properties = _properties(content) | ({"description": part.note} if part.note else {})
            entity = self.graph.add_file(part.path, encodingFormat=media_type(content.name), **properties)
        self.entities.setdefault(content.key, entity)
        return entity

    def of(self, data: RecordedData) -> Entity:
        """The entity of what a job read or wrote; if it is not in the crate, its id is made of its content."""
        if data.key not in self.entities:
            # A prefix of the checksum is a sufficient id; the entity holds the whole checksum.
            identifier = local_id("sha256", data.sha256[:16]) if data.sha256 else local_id("data", *data.key.split("/"))
            kind, form = ("Dataset", None) if data.folder else ("File", media_type(data.name))
            properties = _properties(data) | ({"alternateName": redact_argument(data.path)} if data.path else {})
            self.entities[data.key] = self.graph.add(identifier, kind, encodingFormat=form, **properties)
        return self.entities[data.key]

    def folder_of(self, data: RecordedData) -> str:
        """The key of the folder that contains a file, if the crate lists its files; else empty."""
        return self.folders.get(data.key, "")


def _properties(data: RecordedData) -> dict[str, str]:
    properties = {"name": data.name, "contentSize": str(data.bytes), "sha256": data.sha256}
    if data.folder:
        properties["description"] = f"{data.files} file{'s' if data.files != 1 else ''}"
    return properties
