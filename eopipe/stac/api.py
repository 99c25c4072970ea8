"""Scenes of a STAC API, or of a static catalog on the web; only the host that the user named is asked."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from eopipe.errors import BadInputError, RefusedError
from eopipe.scenes.item import Item, as_item, scheme
from eopipe.stac.antimeridian import Geometry, split, unwrap
from eopipe.stac.client import Reader
from eopipe.stac.query import Query
from eopipe.stac.static import anchored, credit, links, shown, walk

PAGE = 100
# Nearer to 180 degrees than a scene is wide, also far in the north; how tall one is; how wide a line.
NEAR, TALL, THIN = 170.0, 3.0, 0.001
CLOUD = {"property": "eo:cloud_cover"}


def from_url(url: str, query: Query, deadline: float) -> list[Item]:
    """Scenes of a STAC API that it finds for a query, or all of a static catalog over http.

    Raises UpstreamError when the server does not answer within `deadline` seconds, BadInputError when it
    does not answer in STAC, RefusedError when it leads to another host.
    """
    from pystac import STACError
    from pystac_client.errors import ClientTypeError
    from pystac_client.exceptions import APIError
    from pystac_client.warnings import PystacClientWarning

    if scheme(url) not in ("http", "https"):
        raise RefusedError(f"search.url {url!r} is not an http(s) address")
    reader, place = Reader(url, deadline), shown(url)
    try:
        if links(reader.read_json(url), url, "search"):
            found = _from_api(url, query, reader)
        else:
            found = walk(url, reader.read_json, urljoin)
        return [anchored(item, here, urljoin) for here, item in found]
    except (ValueError, KeyError, TypeError, STACError, APIError, ClientTypeError, PystacClientWarning) as error:
        raise BadInputError(f"{place} does not answer in STAC: {error}") from error


def _from_api(url: str, query: Query, reader: Any) -> Iterator[tuple[str, Item]]:
    from pystac_client import Client

    client = Client.open(url, stac_io=reader)
    found = client.search(
        collections=list(query.collections) or None,
        intersects=_asked(query.geometry),
        datetime=query.datetime,
        ids=list(query.ids) or None,
        limit=PAGE,
        **_cloud(client, query.max_cloud),
    )
    collections: dict[str, dict[str, Any]] = {}
    for item in _items(found.pages_as_dicts(), shown(url)):
        name = str(item.get("collection") or "")
        if name not in collections:
            collections[name] = _collection(url, name, reader)
        yield (links(item, url, "self") or [url])[0], credit(item, collections[name])


def _asked(geometry: Geometry | None) -> Geometry | None:
    """The area to ask a server for: near 180 degrees with lines that every footprint across them touches.

    A server takes degrees as numbers on a plane. There a footprint that jumps from 180 to -180 goes the long way
    round, over longitude 0, and one that goes on to 181 lies on one side only. What else lies on the lines is left
    out here.
    """
    import shapely

    if geometry is None:
        return None
    place = unwrap(geometry)
    west, south, east, north = place.bounds
    if west > -NEAR and east < NEAR:
        return geometry
    # A footprint can cross the line further north or south than where it meets the area.
    low, high = max(south - TALL, -90), min(north + TALL, 90)
    lines = [shapely.box(x - THIN, low, x + THIN, high) for x in (THIN - 180, 0, 180 - THIN)]
    return dict(shapely.geometry.mapping(shapely.union_all([split(place), *lines])))


def _cloud(client: Any, most: float) -> dict[str, Any]:
    """What lets the server leave out cloudy scenes, in the language that it knows."""
    if most >= 100:
        return {}
    if client.conforms_to("FILTER"):
        # A scene that tells no cloud cover stays, as it does in a static catalog.
        unknown = {"op": "isNull", "args": [CLOUD]}
        return {"filter": {"op": "or", "args": [{"op": "<=", "args": [CLOUD, most]}, unknown]}}
    return {"query": {"eo:cloud_cover": {"lte": most}}} if client.conforms_to("QUERY") else {}


def _items(pages: Iterator[dict[str, Any]], place: str) -> Iterator[Item]:
    """The items of all pages. Raises BadInputError when a page comes a second time."""
    seen: set[tuple[str, ...]] = set()
    for page in pages:
        items = [as_item(item, place) for item in page["features"]]
        ids = tuple(item["id"] for item in items)
        if ids in seen:
            raise BadInputError(
                f"{place} pages in a circle (pagination loop): the page that starts with scene {ids[0]} came before"
            )
        seen.add(ids)
        yield from items


def _collection(url: str, name: str, reader: Any) -> dict[str, Any]:
    """The collection of an item, for its credits; nothing where the server has none to show."""
    if not name:
        return {}
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/')}/collections/{quote(name, safe='')}"
    try:
        value = reader.read_json(parts._replace(path=path).geturl())
    except (BadInputError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
