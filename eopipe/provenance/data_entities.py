"""What a crate holds: the files and folders of a run under names of the crate, hard-linked where that works.

A hard link costs no space, and the crate stays a snapshot: eopipe never writes into a published file but puts
a new one in its place. The user's own files are copied, since an editor may write into them.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from eopipe.errors import BadInputError, UsageError
from eopipe.provenance.graph import METADATA, Entity, Graph, local
from eopipe.provenance.jobs import Data, Job
from eopipe.publish import MANIFEST, digest, link_or_copy, read_json, size, write_manifest

# A folder with more files is a store: it is one thing, not its chunks.
LISTED = 32


@dataclass(frozen=True)
class Part:
    """A file or folder of the crate: its path there, its content, and the content of the files in it."""

    path: str
    content: Data
    files: tuple["Part", ...] = ()


def places(payload: Sequence[Path], jobs: Sequence[Job], taken: Collection[str]) -> dict[str, Path]:
    """Give every file and folder its name in the crate: its own, below the job that made it where two are alike.

    The names do not depend on where an engine puts the files. `taken` are names that the crate needs itself.
    Raises BadInputError for different things that no job tells apart.
    """
    alike = defaultdict(list)
    for path in sorted(set(payload)):
        alike[path.name].append(path)
    found: dict[str, Path] = {}
    for name, paths in sorted(alike.items()):
        for path in paths:
            place = name if len(paths) == 1 and name not in taken else f"{_maker(path, jobs)}/{name}"
            if place in found and _content(path) != _content(found[place]):
                raise BadInputError(f"{found[place]} and {path} would be one file of the crate; give one another name")
            found[place] = path
    return found


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError for a folder that holds anything but a crate, which a new one would replace."""
    known = {METADATA, MANIFEST}
    inside = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if inside - {".snakemake_timestamp"} and not inside & known:
        raise UsageError(f"{folder} exists and is no crate; choose a folder that is not there yet")


def _content(path: Path) -> str:
    """What tells whether two things are equal; an unpublished folder equals only itself."""
    return digest(path) if path.is_file() or (path / MANIFEST).is_file() else str(path)


def _maker(path: Path, jobs: Sequence[Job]) -> str:
    content = _content(path)
    job = next((job for job in jobs for data in job.record.outputs if data.sha256 == content), None)
    return "/".join(filter(None, (job.stage, job.label))) if job else "other"


def bring_all(sources: Sequence[Path], folder: Path) -> None:
    """Put files into one folder of the crate, with a manifest: that of the folder they come from, if all came."""
    for source in sources:
        link_or_copy(source, folder / source.name)
    write_manifest(folder)


def part(crate: Path, path: str, most: int = LISTED) -> Part:
    """Describe what the crate holds at a path; the files of a folder too, unless they are more than `most`."""
    place = crate / path
    bytes_, count = size(place)
    folder = place.is_dir()
    content = Data(port="", name=place.name, folder=folder, bytes=bytes_, files=count, sha256=digest(place))
    return Part(path, content, _listed(place, path, most) if folder else ())


def _listed(place: Path, path: str, most: int) -> tuple[Part, ...]:
    rows = read_json(place / MANIFEST)["files"]
    if (place / "zarr.json").exists() or len(rows) > most:
        return ()
    return tuple(Part(f"{path}/{row['path']}", _file(row["path"], row["size"], row["sha256"])) for row in rows)


def _file(path: str, bytes_: int, sha256: str) -> Data:
    return Data(port="", name=Path(path).name, folder=False, bytes=bytes_, files=1, sha256=sha256)


FORMATS = {
    ".csv": "text/csv",
    ".cwl": "application/cwl",
    ".fgb": "application/vnd.flatgeobuf",
    ".geojson": "application/geo+json",
    ".gpkg": "application/geopackage+sqlite3",
    ".html": "text/html",
    ".json": "application/json",
    ".md": "text/markdown",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".py": "text/x-python",
    ".smk": "text/x-python",
    ".svg": "image/svg+xml",
    ".tif": "image/tiff",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def media_type(name: str) -> str:
    """The media type of a file by its name."""
    suffix = PurePosixPath(name).suffix.lower()
    return FORMATS.get(suffix, "text/x-python" if name == "Snakefile" else "application/octet-stream")


class Things:
    """Every file and folder that the crate holds or a job names."""

    def __init__(self, graph: Graph, parts: Sequence[Part]) -> None:
        self.graph = graph
        self.entities: dict[str, Entity] = {}
        self.folders: dict[str, str] = {}
        for part in parts:
            self._hold(part)

    def _hold(self, part: Part) -> Entity:
        content = part.content
        if content.folder:
            entity = self.graph.add_folder(part.path, **_told(content))
            for file in part.files:
                entity.append_to("hasPart", self._hold(file))
            self.folders |= {file.content.key: content.key for file in part.files}
        else:
            entity = self.graph.add_file(part.path, encodingFormat=media_type(content.name), **_told(content))
        self.entities.setdefault(content.key, entity)
        return entity

    def of(self, data: Data) -> Entity:
        """The entity of what a job read or made; one that the crate does not hold is named by its content."""
        if data.key not in self.entities:
            # A part of the checksum tells things apart; the whole one is said once.
            identifier = local("sha256", data.sha256[:16]) if data.sha256 else local("data", *data.key.split("/"))
            kind, form = ("Dataset", None) if data.folder else ("File", media_type(data.name))
            self.entities[data.key] = self.graph.add(identifier, kind, encodingFormat=form, **_told(data))
        return self.entities[data.key]

    def folder_of(self, data: Data) -> str:
        """The key of the folder that holds a file, where the crate shows it."""
        return self.folders.get(data.key, "")


def _told(data: Data) -> dict[str, str]:
    told = {"name": data.name, "contentSize": str(data.bytes), "sha256": data.sha256}
    if data.folder:
        told["description"] = f"{data.files} file{'s' if data.files != 1 else ''}"
    return told
