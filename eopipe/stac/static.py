"""Static STAC catalogs: every item below a catalog, on disk or wherever a reader reads."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eopipe.errors import BadInputError, RefusedError
from eopipe.publish import read_json
from eopipe.scenes.item import Item, as_item, scheme

Follow = Callable[[str, str], str]


def from_folder(catalog: Path) -> list[Item]:
    """Every scene of a catalog on disk; asset paths become relative to its folder.

    Raises BadInputError for what is no catalog or has a broken link, RefusedError for a link that leads outside.
    """
    root = catalog.resolve()

    def anchor(here: str, href: str) -> str:
        target = (Path(here).parent / href).resolve()
        # What leads outside becomes an absolute path, which is refused when the asset is wanted.
        return str(target.relative_to(root) if target.is_relative_to(root) else target)

    return [anchored(item, str(here), anchor) for here, item in scan(catalog)]


def scan(catalog: Path) -> Iterator[tuple[Path, Item]]:
    """Every item of a catalog on disk with its file, as it stands there.

    Raises BadInputError for what is no catalog or has a broken link, RefusedError for a link that leads outside.
    """
    root = catalog.resolve()
    start = root / "catalog.json"
    if not start.is_file():
        raise BadInputError(f"{catalog} holds no catalog.json; give the folder of a static STAC catalog")

    def follow(here: str, href: str) -> str:
        target = (Path(here).parent / href).resolve()
        if scheme(href) or not target.is_relative_to(root):
            raise RefusedError(f"{here} links to {href!r}, outside the catalog; make the catalog self-contained")
        if not target.is_file():
            raise BadInputError(f"{here} links to {href!r}, which is not there; bring the file or remove the link")
        return str(target)

    for here, item in walk(str(start), lambda path: read_json(Path(path)), follow):
        yield Path(here), item


def walk(start: str, read: Callable[[str], Any], follow: Follow) -> Iterator[tuple[str, Item]]:
    """Every item below a catalog with where it was read, credits of its collection included.

    A catalog that links to itself ends.
    """
    seen: set[str] = set()
    todo: list[tuple[str, dict[str, Any]]] = [(start, {})]
    while todo:
        here, collection = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        value = read(here)
        if isinstance(value, dict) and value.get("type") == "Feature":
            yield here, credit(as_item(value, shown(here)), collection)
            continue
        if isinstance(value, dict) and value.get("type") == "Collection":
            collection = value
        todo += [(follow(here, href), collection) for href in links(value, here, "child", "item")]


def shown(address: str) -> str:
    """An address without what may be secret in it; a path as it is."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else address


def links(value: Any, where: str, *kinds: str) -> list[str]:
    """Where the links of these kinds lead. Raises BadInputError for what is not STAC."""
    try:
        return [str(link["href"]) for link in value.get("links", []) if link["rel"] in kinds]
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInputError(f"{shown(where)} is not STAC: it has no proper links") from error


def anchored(item: Item, here: str, anchor: Follow) -> Item:
    """Tie relative paths of assets to where the item was read."""
    for asset in item["assets"].values():
        href = asset["href"]
        if not (scheme(href) or href.startswith("/") or "<" in href):
            asset["href"] = anchor(here, href)
    return item


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
