"""Scenes of a STAC API, or of a static catalog on the web; requests go only to the host that the user named."""

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from eopipe.errors import BadInputError, EopipeError, RefusedError, UpstreamError
from eopipe.scenes.item import Item, as_collection, as_item, scheme
from eopipe.stac.client import RetryingStacIO
from eopipe.stac.query import Query
from eopipe.stac.static import add_credits, hrefs, resolve_assets, walk, without_secrets
from eopipe.tiles.globe import Geometry, split, unwrap

PAGE = 100
# Each scene is a file of the results, and is compared with the area.
MAX_ITEMS = 20_000
# Collections that a message lists.
MAX_NAMES = 60
# Degrees: longitudes from here on are nearer to 180 than a scene is wide; how tall a scene is; how wide a line.
NEAR_180, SCENE_HEIGHT, LINE_WIDTH = 170.0, 3.0, 0.001
CLOUD = {"property": "eo:cloud_cover"}


def from_url(url: str, query: Query, deadline: float) -> list[Item]:
    """The scenes that a STAC API finds for a query, or all of a static catalog over http.

    Raises UpstreamError when the server does not answer within `deadline` seconds, BadInputError when it
    is not a STAC API, RefusedError when it leads to another host.
    """
    from pystac import STACError
    from pystac_client.errors import ClientTypeError
    from pystac_client.exceptions import APIError
    from pystac_client.warnings import PystacClientWarning

    if scheme(url) not in ("http", "https"):
        raise RefusedError(f"search.url {url!r} is not an http(s) address")
    stac_io = RetryingStacIO(url, deadline)
    try:
        if hrefs(stac_io.read_json(url), url, "search"):
            items = _from_api(url, query, stac_io)
        else:
            items = walk(url, stac_io.read_json, urljoin)
        scenes = [resolve_assets(item, address, urljoin) for address, item in islice(items, MAX_ITEMS + 1)]
    except (ValueError, KeyError, TypeError, STACError, APIError, ClientTypeError, PystacClientWarning) as error:
        raise BadInputError(f"{without_secrets(url)} is not a STAC API: {error}") from error
    if len(scenes) > MAX_ITEMS:
        raise BadInputError(
            f"{without_secrets(url)} has more than {MAX_ITEMS:,} scenes for this search; narrow its dates, area or "
            "max_cloud, or make a run for each part"
        )
    return scenes


def _from_api(url: str, query: Query, stac_io: RetryingStacIO) -> Iterator[tuple[str, Item]]:
    from pystac_client import Client

    client = Client.open(url, stac_io=stac_io)
    search = client.search(
        collections=list(query.collections) or None,
        intersects=_query_geometry(query.geometry),
        datetime=query.datetime,
        ids=list(query.ids) or None,
        limit=PAGE,
        **_cloud_filter(client, query.max_cloud),
    )
    collections: dict[str, dict[str, Any]] = {}
    for item in _items(search.pages_as_dicts(), without_secrets(url)):
        name = str(item.get("collection") or "")
        if name not in collections:
            collections[name] = _collection(url, name, stac_io)
        yield (hrefs(item, url, "self") or [url])[0], add_credits(item, collections[name])


def _query_geometry(geometry: Geometry | None) -> Geometry | None:
    """The area for a query: near the antimeridian with lines that every footprint across it touches.

    A server takes degrees as numbers on a plane. There a footprint that jumps from 180 to -180 takes the long way
    round, over longitude 0, and one that continues to 181 is on one side only. Other scenes on the lines are
    dropped by the query itself.
    """
    import shapely

    if geometry is None:
        return None
    area = unwrap(geometry)
    west, south, east, north = area.bounds
    if west > -NEAR_180 and east < NEAR_180:
        return geometry
    # A footprint can cross the line further north or south than where it meets the area.
    low, high = max(south - SCENE_HEIGHT, -90), min(north + SCENE_HEIGHT, 90)
    longitudes = (LINE_WIDTH - 180, 0, 180 - LINE_WIDTH)
    lines = [shapely.box(x - LINE_WIDTH, low, x + LINE_WIDTH, high) for x in longitudes]
    return dict(shapely.geometry.mapping(shapely.union_all([split(area), *lines])))


def _cloud_filter(client: Any, max_cloud: float) -> dict[str, Any]:
    """The filter by cloud cover, in CQL2 or in the older query language, whichever the server has."""
    if max_cloud >= 100:
        return {}
    if client.conforms_to("FILTER"):
        # A scene without a cloud cover is kept, as it is in a static catalog.
        unknown = {"op": "isNull", "args": [CLOUD]}
        return {"filter": {"op": "or", "args": [{"op": "<=", "args": [CLOUD, max_cloud]}, unknown]}}
    return {"query": {"eo:cloud_cover": {"lte": max_cloud}}} if client.conforms_to("QUERY") else {}


def _items(pages: Iterator[dict[str, Any]], address: str) -> Iterator[Item]:
    """The items of all pages. Raises BadInputError when a page is repeated."""
    earlier: set[tuple[str, ...]] = set()
    for page in pages:
        items = [as_item(item, address) for item in page["features"]]
        ids = tuple(item["id"] for item in items)
        if ids in earlier:
            raise UpstreamError(
                f"{address} has a pagination loop: the page that starts with scene {ids[0]} came before"
            )
        earlier.add(ids)
        yield from items


def collection_names(url: str, query: Query, deadline: float) -> list[str]:
    """The collections of a server that lacks one of the query's; none where it has them, or lists none."""
    stac_io = RetryingStacIO(url, deadline)
    parts = urlsplit(url)
    try:
        value = stac_io.read_json(parts._replace(path=f"{parts.path.rstrip('/')}/collections").geturl())
        names = sorted(str(collection["id"]) for collection in value["collections"])
    except (EopipeError, KeyError, TypeError, ValueError):
        return []
    return names[:MAX_NAMES] if set(query.collections) - set(names) else []


def _collection(url: str, name: str, stac_io: RetryingStacIO) -> dict[str, Any]:
    """The collection of an item, for its credits; empty where the server has none."""
    if not name:
        return {}
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/')}/collections/{quote(name, safe='')}"
    try:
        value = stac_io.read_json(parts._replace(path=path).geturl())
    except (BadInputError, ValueError):
        return {}
    return as_collection(value, without_secrets(url)) if isinstance(value, dict) else {}
