"""Licence, providers and citation of a scene, which STAC mostly tells once for the whole collection."""

from typing import Any

from eopipe.scenes.item import Item

CARRIED = ("license", "providers", "sci:citation", "sci:doi")
LINKS = ("license", "cite-as")
SCIENTIFIC = "https://stac-extensions.github.io/scientific/v1.0.0/schema.json"


def credit(item: Item, collection: dict[str, Any]) -> Item:
    """The item with what its collection says of licence, providers and citation, where it says nothing itself."""
    told = {key: collection[key] for key in CARRIED if collection.get(key)}
    properties = told | item["properties"]
    known = list(item.get("links") or [])
    for rel in LINKS:
        if not any(link.get("rel") == rel for link in known):
            known += [link for link in collection.get("links") or [] if link.get("rel") == rel]
    schemas = list(item.get("stac_extensions") or [])
    if any(key.startswith("sci:") for key in told) and not any("/scientific/" in schema for schema in schemas):
        schemas.append(SCIENTIFIC)
    return item | {"properties": properties, "links": known, "stac_extensions": schemas}
