"""The graph of an RO-Crate: entities by id, written so that the same entities give the same bytes."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

# rocrate has no types; an entity is a mapping of its properties with an id.
Entity = Any

METADATA = "ro-crate-metadata.json"
CRATE_VERSION = "1.1"
WORKFLOW_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
RUN_TERMS = "https://w3id.org/ro/terms/workflow-run#"
# The context of RO-Crate 1.1 lacks these; spelled out here, a reader needs no second context.
TERMS = {
    "ParameterConnection": f"{RUN_TERMS}ParameterConnection",
    "buildInstructions": "https://codemeta.github.io/terms/buildInstructions",
    "connection": f"{RUN_TERMS}connection",
    "creditText": "http://schema.org/creditText",
    "resourceUsage": f"{RUN_TERMS}resourceUsage",
    "sha256": f"{RUN_TERMS}sha256",
    "sourceParameter": f"{RUN_TERMS}sourceParameter",
    "targetParameter": f"{RUN_TERMS}targetParameter",
}


class Graph:
    """Entities of one crate; what is added twice under one id is one entity."""

    def __init__(self) -> None:
        from rocrate.rocrate import ROCrate

        # rocrate's own default is newer than what the run crate profiles are made for.
        self.crate = ROCrate(version=CRATE_VERSION)
        self.crate.metadata.extra_terms.update(TERMS)
        self.crate.metadata.append_to("conformsTo", {"@id": WORKFLOW_CRATE})

    @property
    def root(self) -> Entity:
        """The crate itself."""
        return self.crate.root_dataset

    def at(self, path: str) -> Entity:
        """The file or folder at a path of the crate."""
        return self.crate.get(quote(path))

    def add(self, identifier: str, kind: str | list[str], /, **properties: Any) -> Entity:
        """Describe something that the crate does not hold; None, empty text and empty lists are left out."""
        from rocrate.model import ContextEntity

        if identifier not in self.crate:
            self.crate.add(ContextEntity(self.crate, identifier, {"@type": kind} | _given(properties)))
        return self.crate.get(identifier)

    def add_file(self, path: str, kind: str | list[str] = "File", /, **properties: Any) -> Entity:
        """Describe a file of the crate by its path in it."""
        return self.crate.add_file(None, path, properties={"@type": kind} | _given(properties))

    def add_folder(self, path: str, /, **properties: Any) -> Entity:
        """Describe a folder of the crate by its path in it."""
        return self.crate.add_dataset(None, path, properties=_given(properties))

    def write(self, folder: Path) -> None:
        """Write the metadata file; the files it tells of are there already."""
        told = self.value()
        # One entity a line: half the size of what rocrate writes, and a diff still tells which entity changed.
        lines = ",\n".join(_text(entity) for entity in told["@graph"])
        text = f'{{"@context":{_text(told["@context"])},\n"@graph":[\n{lines}\n]}}\n'
        (folder / METADATA).write_text(text, encoding="utf-8", newline="\n")

    def value(self) -> Any:
        """The metadata themselves."""
        self._settle()
        return self.crate.metadata.generate()

    def _settle(self) -> None:
        for entity in self.crate.get_entities():
            _compact(entity.properties())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _given(properties: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in properties.items() if v is not None and v not in ("", [])}


def _compact(properties: dict[str, Any]) -> None:
    """RO-Crate 1.1 wants a list of one as the one; a reference stands once."""
    for key, value in properties.items():
        if isinstance(value, list):
            unique = list({str(v): v for v in value}.values())
            properties[key] = unique[0] if len(unique) == 1 else unique


def local(*parts: str) -> str:
    """An id inside the crate's own metadata.

    >>> local("job", "fetch", "a b")
    '#job/fetch/a%20b'
    """
    return "#" + "/".join(quote(part, safe="") for part in parts if part)
