"""Validates STAC documents against the schemas of STAC and of its extensions, without a network."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pystac
from jsonschema import Draft7Validator
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

CORE = Path(pystac.__file__).parent / "validation/jsonschemas"
EXTENSIONS = Path(__file__).parent / "schemas"
# What version 1.1 of the classification extension requires of classes: a description, which version 2.0 does not.
OLDER, CLASSES = "https://stac-extensions.github.io/classification/v1.1.0/schema.json", "classification:classes"
DRAFT = "http://json-schema.org/draft-07/schema#"
TEXT, HEX = {"type": "string"}, {"type": "string", "pattern": "^[0-9A-Fa-f]{6}$"}
OLDER_CLASSES = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["value", "description"],
        "properties": {"value": {"type": "integer"}, "description": TEXT, "name": TEXT, "color_hint": HEX},
    },
}
KIND = {"Feature": "item", "Collection": "collection", "Catalog": "catalog"}


@cache
def registry() -> "Registry[Any]":
    files = [*CORE.rglob("*.json"), *EXTENSIONS.glob("*.json")]
    schemas = [json.loads(path.read_text()) for path in files]
    known = [(value["$id"].rstrip("#"), Resource.from_contents(value, DRAFT7)) for value in schemas]
    # STAC 1.1.0 misspells the name of one of its own schemas.
    corrected = [(uri.replace("commonjson", "common.json"), value) for uri, value in known]
    classes = {"$schema": DRAFT, "definitions": {"fields": {"properties": {CLASSES: OLDER_CLASSES}}}}
    older = Resource.from_contents(classes, DRAFT7)
    return REGISTRY.with_resources([*corrected, (OLDER, older), *known])


def schema_errors(document: dict[str, Any]) -> list[str]:
    """The errors of a document by the schema of STAC and those of its extensions."""
    version, kind = document["stac_version"], KIND[document["type"]]
    core = f"https://schemas.stacspec.org/v{version}/{kind}-spec/json-schema/{kind}.json"
    errors = []
    for uri in (core, *document.get("stac_extensions", [])):
        validator = Draft7Validator(registry().contents(uri), registry=registry())
        errors += [f"{uri}: {error.json_path}: {error.message[:300]}" for error in validator.iter_errors(document)]
    return errors
