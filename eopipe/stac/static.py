"""Static STAC catalogs: every item below a catalog, on disk or on the web, with the credits of its collection."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eopipe.errors import BadInputError, RefusedError
from eopipe.scenes.item import Item, as_collection, as_item, scheme
from eopipe.text_files import read_json

# From a document and an href in it to the address of what the href leads to.
Resolve = Callable[[str, str], str]
CREDITS = ("license", "providers", "sci:citation", "sci:doi")
CREDIT_LINKS = ("license", "cite-as")
SCIENTIFIC = "https://stac-extensions.github.io/scientific/v1.0.0/schema.json"


def from_folder(catalog: Path) -> list[Item]:
    """Every scene of a catalog on disk; asset paths become relative to its folder.

    Raises BadInputError for what is not a catalog or has a broken link, RefusedError for a link that leads outside.
    """
    root = catalog.resolve()

    def resolve(document: str, href: str) -> str:
        target = (Path(document).parent / href).resolve()
        # A path outside becomes absolute, which is refused if the asset is selected.
        return str(target.relative_to(root) if target.is_relative_to(root) else target)

    return [resolve_assets(item, str(path), resolve) for path, item in scan(catalog)]


def scan(catalog: Path) -> Iterator[tuple[Path, Item]]:
    """Every item of a catalog on disk with its file, unchanged.

    Raises BadInputError for what is not a catalog or has a broken link, RefusedError for a link that leads outside.
    """
    root = catalog.resolve()
    start = root / "catalog.json"
    if root.is_file():
        raise BadInputError(f"{catalog} is a file; give the folder of a static STAC catalog, or a .parquet file")
    if not start.is_file():
        raise BadInputError(f"{catalog} has no catalog.json; give the folder of a static STAC catalog")

    def resolve(document: str, href: str) -> str:
        target = (Path(document).parent / href).resolve()
        if scheme(href) or not target.is_relative_to(root):
            raise RefusedError(f"{document} links to {href!r}, outside the catalog; make the catalog self-contained")
        if not target.is_file():
            raise BadInputError(f"{document} links to {href!r}, which is not there; add the file or remove the link")
        return str(target)

    for path, item in walk(str(start), lambda path: read_json(Path(path)), resolve):
        yield Path(path), item


def walk(start: str, read: Callable[[str], Any], resolve: Resolve) -> Iterator[tuple[str, Item]]:
    """Every item below a catalog with its address, credits of its collection included.

    A catalog that links to itself ends.
    """
    visited: set[str] = set()
    pending: list[tuple[str, dict[str, Any]]] = [(start, {})]
    while pending:
        address, collection = pending.pop()
        if address in visited:
            continue
        visited.add(address)
        value = read(address)
        if isinstance(value, dict) and value.get("type") == "Feature":
            yield address, add_credits(as_item(value, without_secrets(address)), collection)
            continue
        if isinstance(value, dict) and value.get("type") == "Collection":
            collection = as_collection(value, without_secrets(address))
        pending += [(resolve(address, href), collection) for href in hrefs(value, address, "child", "item")]


def without_secrets(address: str) -> str:
    """An address without its query and login, for messages; a path as it is."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else address


def hrefs(value: Any, address: str, *relations: str) -> list[str]:
    """The hrefs of links with these relations. Raises BadInputError for what is not STAC."""
    try:
        return [str(link["href"]) for link in value.get("links", []) if link["rel"] in relations]
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInputError(f"{without_secrets(address)} is not STAC: it has no valid links") from error


def resolve_assets(item: Item, address: str, resolve: Resolve) -> Item:
    """Resolve relative hrefs of assets against the address of the item."""
    for asset in item["assets"].values():
        href = asset["href"]
        # What cannot be a path is refused if the asset is selected.
        if href.isprintable() and not (scheme(href) or href.startswith("/") or "<" in href):
            asset["href"] = resolve(address, href)
    return item


def add_credits(item: Item, collection: dict[str, Any]) -> Item:
    """The item with licence, providers and citation of its collection, where it states none itself."""
    inherited = {key: collection[key] for key in CREDITS if collection.get(key)}
    links = list(item.get("links") or [])
    for relation in CREDIT_LINKS:
        if not any(link.get("rel") == relation for link in links):
            links += [link for link in collection.get("links") or [] if link.get("rel") == relation]
    schemas = list(item.get("stac_extensions") or [])
    if any(key.startswith("sci:") for key in inherited) and not any("/scientific/" in schema for schema in schemas):
        schemas.append(SCIENTIFIC)
    return item | {"properties": inherited | item["properties"], "links": links, "stac_extensions": schemas}
