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
OWN = Path(__file__).parent / "schemas"
KIND = {"Feature": "item", "Collection": "collection", "Catalog": "catalog"}


@cache
def registry() -> "Registry[Any]":
    files = [*CORE.rglob("*.json"), *OWN.glob("*.json")]
    read = [json.loads(path.read_text()) for path in files]
    known = [(value["$id"].rstrip("#"), Resource.from_contents(value, DRAFT7)) for value in read]
    # STAC 1.1.0 misspells the name of one of its own schemas.
    corrected = [(uri.replace("commonjson", "common.json"), value) for uri, value in known]
    older = [(uri.replace("classification/v2.0.0", "classification/v1.1.0"), value) for uri, value in known]
    return REGISTRY.with_resources([*corrected, *older, *known])


def wrong(document: dict[str, Any]) -> list[str]:
    """What the schema of STAC and those of the document's extensions have against it."""
    version, kind = document["stac_version"], KIND[document["type"]]
    core = f"https://schemas.stacspec.org/v{version}/{kind}-spec/json-schema/{kind}.json"
    found = []
    for uri in (core, *document.get("stac_extensions", [])):
        validator = Draft7Validator(registry().contents(uri), registry=registry())
        found += [f"{uri}: {error.json_path}: {error.message[:300]}" for error in validator.iter_errors(document)]
    return found
