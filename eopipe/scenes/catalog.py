"""Find scenes: in a static STAC catalog (folder or http) or through a STAC API."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from eopipe.errors import BadInputError, EopipeError, RefusedError, UpstreamError
from eopipe.publish import read_json
from eopipe.scenes.interval import interval, is_within
from eopipe.scenes.item import Item, checked, safe_href, scene_name, scheme

TIMEOUT = (10.0, 60.0)
ATTEMPTS = 6
BACKOFF = 0.5
MAX_WAIT = 120
RETRY_CODES = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Query:
    """What scenes are wanted; `geometry` is GeoJSON in degrees, `datetime` a STAC interval."""

    collections: tuple[str, ...] = ()
    geometry: dict[str, Any] | None = None
    datetime: str | None = None
    max_cloud: float = 100.0
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a wrong date before a server is asked."""
        interval(self.datetime or "")

    def __str__(self) -> str:
        told = [
            ", ".join(self.collections) or "any collection",
            self.datetime or "any date",
            f"the area {self._box()}" if self.geometry else "anywhere",
            f"cloud cover up to {self.max_cloud:g} %",
            f"ids {', '.join(self.ids)}" if self.ids else "",
        ]
        return ", ".join(filter(None, told))

    def _box(self) -> str:
        from shapely.geometry import shape

        return " ".join(f"{edge:.6g}" for edge in shape(self.geometry).bounds)


def from_folder(catalog: Path, query: Query) -> list[Item]:
    """Scenes of a static catalog on disk; asset paths become relative to its folder."""
    root = catalog.resolve()
    start = root / "catalog.json"
    if not start.is_file():
        raise BadInputError(f"{catalog} holds no catalog.json; give the folder of a static STAC catalog")

    def follow(here: str, href: str) -> str:
        target = (Path(here).parent / href).resolve()
        if scheme(href) or not target.is_relative_to(root):
            raise RefusedError(f"{here} links to {href!r}, outside the catalog; make the catalog self-contained")
        return str(target)

    def anchor(here: str, href: str) -> str:
        target = (Path(here).parent / href).resolve()
        # What leads outside becomes an absolute path, which is refused when the asset is wanted.
        return str(target.relative_to(root) if target.is_relative_to(root) else target)

    found = _walk(str(start), lambda path: read_json(Path(path)), follow)
    return _select([_anchored(item, here, anchor) for here, item in found], query)


def _walk(start: str, read: Callable[[str], Any], follow: Callable[[str, str], str]) -> Iterator[tuple[str, Item]]:
    """Every item below a static catalog with where it was read; a catalog that links to itself ends."""
    seen, todo = set(), [start]
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        value = read(here)
        if isinstance(value, dict) and value.get("type") == "Feature":
            yield here, checked(value, _shown(here))
        else:
            todo += [follow(here, href) for href in _links(value, here, "child", "item")]


def _shown(address: str) -> str:
    """An address without what may be secret in it; a path as it is."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else address


def _links(value: Any, where: str, *kinds: str) -> list[str]:
    try:
        return [str(link["href"]) for link in value.get("links", []) if link["rel"] in kinds]
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInputError(f"{_shown(where)} is not STAC: it has no proper links") from error


def _anchored(item: Item, here: str, anchor: Callable[[str, str], str]) -> Item:
    """Tie relative paths of assets to where the item was read."""
    for asset in item["assets"].values():
        href = asset["href"]
        if not (scheme(href) or href.startswith("/") or "<" in href):
            asset["href"] = anchor(here, href)
    return item


def from_url(url: str, query: Query) -> list[Item]:
    """Scenes of a STAC API, or of a static catalog over http."""
    from pystac import STACError
    from pystac_client.errors import ClientTypeError
    from pystac_client.exceptions import APIError
    from pystac_client.warnings import PystacClientWarning

    if scheme(url) not in ("http", "https"):
        raise RefusedError(f"search.url {url!r} is not an http(s) address")
    reader, place = _reader(), _shown(url)
    try:
        if _links(reader.read_json(url), url, "search"):
            found = _from_api(url, query, reader)
        else:
            found = _walk(url, reader.read_json, urljoin)
        return _select([_anchored(item, here, urljoin) for here, item in found], query)
    except APIError as error:
        raise _told(place, error) from error
    except (ValueError, KeyError, TypeError, STACError, ClientTypeError, PystacClientWarning) as error:
        raise BadInputError(f"{place} does not answer in STAC: {error}") from error


def _told(place: str, error: Exception) -> EopipeError:
    """The error for a server that failed, which says whether to try again."""
    code = getattr(error, "status_code", None)
    if code and 400 <= code < 500 and code not in RETRY_CODES:
        return BadInputError(f"{place} refused the search with status {code}: {str(error)[:200]}")
    known = re.search(r"too many \d+ error responses|Failed to resolve|timed out|refused|reset", str(error))
    reason = f"status {code}" if code else known[0].lower() if known else str(error)[-120:]
    return UpstreamError(f"{place} did not answer the search ({reason}); try again later")


def _from_api(url: str, query: Query, reader: Any) -> Iterator[tuple[str, Item]]:
    from pystac_client import Client

    found = Client.open(url, stac_io=reader).search(
        collections=list(query.collections) or None,
        intersects=query.geometry,
        datetime=query.datetime,
        ids=list(query.ids) or None,
        limit=100,
    )
    pages: set[tuple[str, ...]] = set()
    for page in found.pages_as_dicts():
        items = [checked(item, _shown(url)) for item in page["features"]]
        ids = tuple(item["id"] for item in items)
        if ids in pages:
            raise BadInputError(
                f"{_shown(url)} pages in a circle: the page that starts with scene {ids[0]} came before"
            )
        pages.add(ids)
        yield from (((_links(item, url, "self") or [url])[0], item) for item in items)


def _reader() -> Any:
    """pystac-client's reader with a time limit and retries, which by default it has not."""
    import requests
    from pystac_client.exceptions import APIError
    from pystac_client.stac_api_io import StacApiIO
    from urllib3.util import Retry

    class Patience(Retry):
        def get_retry_after(self, response: Any) -> float | None:
            told = super().get_retry_after(response)
            return None if told is None else min(told, MAX_WAIT)

    class Reader(StacApiIO):
        def __init__(self) -> None:
            retry = Patience(
                total=ATTEMPTS - 1, backoff_factor=BACKOFF, status_forcelist=RETRY_CODES, allowed_methods=None
            )
            super().__init__(max_retries=retry, timeout=TIMEOUT)

        def update(self, *args: Any, **kwargs: Any) -> None:
            # Client.open would set the time limit back to none.
            super().update(*args, **(kwargs | {"timeout": TIMEOUT}))

        def request(self, *args: Any, **kwargs: Any) -> str:
            # urllib3 does not retry an answer that breaks off.
            for _ in range(ATTEMPTS - 1):
                try:
                    return super().request(*args, **kwargs)
                except APIError as error:
                    if not isinstance(error.__context__, requests.exceptions.ChunkedEncodingError):
                        raise
            return super().request(*args, **kwargs)

    return Reader()


def _select(items: list[Item], query: Query) -> list[Item]:
    """Filter, drop duplicates, sort by name; the order of the server does not matter."""
    # Of two versions of a scene the one that was updated last stays.
    wanted = sorted((item for item in items if _matches(item, query)), key=_age)
    unique = {scene_name(item["id"]): item for item in wanted}
    return [unique[name] for name in sorted(unique)]


def _age(item: Item) -> tuple[str, str]:
    told = item["properties"]
    return str(told.get("updated") or told.get("created") or ""), json.dumps(item, sort_keys=True)


def _matches(item: Item, query: Query) -> bool:
    cloud = item["properties"].get("eo:cloud_cover")
    return (
        (not query.collections or item.get("collection") in query.collections)
        and (not query.ids or item["id"] in query.ids)
        and (cloud is None or cloud <= query.max_cloud)
        and is_within(item, query.datetime)
        and _touches(item, query.geometry)
    )


def _touches(item: Item, geometry: dict[str, Any] | None) -> bool:
    from shapely.errors import ShapelyError
    from shapely.geometry import shape

    if geometry is None or item["geometry"] is None:
        return geometry is None
    try:
        return bool(shape(item["geometry"]).intersects(shape(geometry)))
    except (AttributeError, KeyError, TypeError, ValueError, ShapelyError) as error:
        raise BadInputError(f"scene {item['id']} has a broken geometry: {error}") from error


def keep_assets(items: list[Item], assets: tuple[str, ...]) -> list[Item]:
    """Leave only the wanted assets in each item; every scene that lacks one is named."""
    lacking = {i["id"]: [a for a in assets if a not in i["assets"]] for i in items}
    wrong = [f"{name} has no {', '.join(gone)}" for name, gone in lacking.items() if gone]
    if wrong:
        have = ", ".join(sorted(set().union(*(item["assets"] for item in items))))
        raise BadInputError(f"{len(wrong)} of {len(items)} scenes lack assets: {'; '.join(wrong)} (there are {have})")
    return [_pruned(item, assets) for item in items]


def _pruned(item: Item, assets: tuple[str, ...]) -> Item:
    kept = {name: item["assets"][name] for name in assets}
    for name, asset in kept.items():
        safe_href(asset["href"], f"scene {item['id']}, asset {name}")
    links = [link for link in item.get("links", []) if _is_kept(link)]
    return item | {"assets": kept, "links": links}


def _is_kept(link: dict[str, Any]) -> bool:
    """Links that say where a scene comes from and under which licence; a path of this machine does not."""
    known = link.get("rel") in ("license", "derived_from", "via", "self")
    return known and urlsplit(str(link.get("href"))).scheme in ("http", "https")
