"""The data of a run as entities: equal content is one entity, whichever job or folder names it."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from eopipe.provenance.data_entities import Part
from eopipe.provenance.graph import Entity, Graph, local
from eopipe.provenance.jobs import Data

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
