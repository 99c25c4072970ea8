"""The graph of an RO-Crate: entities by `@id`, serialised so that equal entities give equal bytes."""

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
# Terms that the JSON-LD context of RO-Crate 1.1 lacks; defined here, a reader needs no second context.
TERMS = {
    "ContainerImage": f"{RUN_TERMS}ContainerImage",
    "ParameterConnection": f"{RUN_TERMS}ParameterConnection",
    "buildInstructions": "https://codemeta.github.io/terms/buildInstructions",
    "connection": f"{RUN_TERMS}connection",
    "containerImage": f"{RUN_TERMS}containerImage",
    "creditText": "http://schema.org/creditText",
    "registry": f"{RUN_TERMS}registry",
    "resourceUsage": f"{RUN_TERMS}resourceUsage",
    "sha256": f"{RUN_TERMS}sha256",
    "sourceParameter": f"{RUN_TERMS}sourceParameter",
    "tag": f"{RUN_TERMS}tag",
    "targetParameter": f"{RUN_TERMS}targetParameter",
}


class CrateGraph:
    """The entities of one crate; adding an id a second time returns the entity that exists."""

    def __init__(self) -> None:
        from rocrate.rocrate import ROCrate

        # rocrate's default is newer than the version that the run crate profiles are defined on.
        self.crate = ROCrate(version=CRATE_VERSION)
        self.crate.metadata.extra_terms.update(TERMS)
        self.crate.metadata.append_to("conformsTo", {"@id": WORKFLOW_CRATE})

    @property
    def root(self) -> Entity:
        return self.crate.root_dataset

    def data_entity(self, path: str) -> Entity:
        return self.crate.get(quote(path))

    def add(self, identifier: str, kind: str | list[str], /, **properties: Any) -> Entity:
        """Add a contextual entity; properties that are None, empty text or an empty list are omitted."""
        from rocrate.model import ContextEntity

        if identifier not in self.crate:
            self.crate.add(ContextEntity(self.crate, identifier, {"@type": kind} | _without_empty(properties)))
        return self.crate.get(identifier)

    def add_file(self, path: str, kind: str | list[str] = "File", /, **properties: Any) -> Entity:
        return self.crate.add_file(None, path, properties={"@type": kind} | _without_empty(properties))

    def add_folder(self, path: str, /, **properties: Any) -> Entity:
        return self.crate.add_dataset(None, path, properties=_without_empty(properties))

    def write(self, folder: Path) -> None:
        """Write the metadata file; the files that it describes exist already."""
        metadata = self.metadata()
        # One entity per line: half the size of what rocrate writes, and a diff still shows which entity changed.
        lines = ",\n".join(_compact_json(entity) for entity in metadata["@graph"])
        text = f'{{"@context":{_compact_json(metadata["@context"])},\n"@graph":[\n{lines}\n]}}\n'
        (folder / METADATA).write_text(text, encoding="utf-8", newline="\n")

    def metadata(self) -> Any:
        """The content of the metadata file, as JSON-LD."""
        for entity in self.crate.get_entities():
            _unwrap_lists(entity.properties())
        return self.crate.metadata.generate()


def _compact_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _without_empty(properties: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in properties.items() if v is not None and v not in ("", [])}


def _unwrap_lists(properties: dict[str, Any]) -> None:
    """RO-Crate 1.1 writes a list of one element as that element, and a reference only once."""
    for key, value in properties.items():
        if isinstance(value, list):
            unique = list({str(v): v for v in value}.values())
            properties[key] = unique[0] if len(unique) == 1 else unique


def as_list(value: Any) -> list[Any]:
    """The values of a JSON-LD property, which is a list only where it has several values."""
    return value if isinstance(value, list) else [] if value is None else [value]


def local_id(*parts: str) -> str:
    """The `@id` of an entity that exists only in the crate's own metadata.

    >>> local_id("job", "fetch", "a b")
    '#job/fetch/a%20b'
    """
    return "#" + "/".join(quote(part, safe="") for part in parts if part)
