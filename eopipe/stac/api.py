"""Scenes of a STAC API, or of a static catalog on the web; requests go only to the host that the user named.

They go through pystac-client's reader with retries, and with limits on size and time.
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import requests
from pystac_client.stac_api_io import StacApiIO
from urllib3.exceptions import HTTPError

from eopipe.errors import BadInputError, EopipeError, RefusedError, UpstreamError
from eopipe.fetch.addresses import PORTS, AddressGuard, GuardedSession
from eopipe.fetch.http import follow
from eopipe.fetch.retry import CHUNK, FetchSession, RetryBudget, TransientError, guard_rate, retry, retry_after
from eopipe.scenes.item import Item, as_collection, as_item, scheme
from eopipe.stac.query import Query
from eopipe.stac.read import add_credits, hrefs, resolve_assets, walk, without_secrets
from eopipe.tiles.globe import Geometry, split, unwrap

PAGE = 100
# Each scene is a file of the results, and is compared with the area.
MAX_ITEMS = 20_000
# Collections that a message lists.
MAX_NAMES = 60
# Degrees: longitudes from here on are nearer to 180 than a scene is wide; how tall a scene is; how wide a line.
NEAR_180, SCENE_HEIGHT, LINE_WIDTH = 170.0, 3.0, 0.001
CLOUD = {"property": "eo:cloud_cover"}
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
# Bytes of one response, decompressed; a compressed bomb ends here.
MAX_BYTES = 1 << 28
# What urllib3 says, and what it means.
REASONS = {
    "Failed to resolve": "host not found",
    "timed out": "no response in time",
    "refused": "connection refused",
    "reset": "connection reset",
    "IncompleteRead": "the response broke off",
    "Remote end closed": "connection closed",
}


class RetryingStacIO(StacApiIO):
    """Reads JSON for pystac-client, only from the host of `home`, with retries for `deadline` seconds.

    Raises RefusedError for an address elsewhere, which would learn a login; UpstreamError when the server does not
    answer; BadInputError when it refuses.
    """

    def __init__(self, home: str, deadline: float) -> None:
        super().__init__()
        # The user named this host, and no other is queried.
        self.home, self.guarded = home, GuardedSession(AddressGuard([urlsplit(home).hostname or ""]))
        self.session = self.guarded
        self.pages: Counter[str] = Counter()
        self.limits = FetchSession(deadline=deadline)
        self.deadline = self.limits.clock.now() + deadline

    def request(
        self,
        href: str,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> str:
        href = self.on_host(href)
        path = urlsplit(href).path
        self.pages[path] += 1
        label = f"page {self.pages[path]} of {path}"
        budget = RetryBudget(label, urlsplit(href).hostname or "", self.limits, self.deadline)
        verb = (method or "GET").upper()
        content = {"json" if verb == "POST" else "params": parameters, "headers": headers}
        return retry(lambda: self._attempt(budget, verb, href, **content), lambda: 0, budget)

    def _attempt(self, budget: RetryBudget, verb: str, href: str, **content: Any) -> str:
        """The text of a response. Raises TransientError where the next attempt may succeed."""
        attempts = f"{budget.failures + 1} attempts"
        try:
            with follow(self.guarded, verb, href, budget, lambda _, url: self.on_host(url), **content) as response:
                code = response.status_code
                if code in TRANSIENT:
                    wait = retry_after(response.headers.get("Retry-After", ""))
                    raise TransientError(f"status {code}, {attempts}", wait)
                body = _body(response, budget)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
            raise BadInputError(f"{budget.host} cannot be queried: {type(error).__name__}") from error
        except (requests.RequestException, HTTPError) as error:
            budget.remaining()
            # The cause in a few words, without the address.
            reason = next((words for text, words in REASONS.items() if text in str(error)), type(error).__name__)
            raise TransientError(f"{reason}, {attempts}") from error
        if code >= 400:
            raise BadInputError(f"{budget.host} refused the search with status {code}: {body[:200]}")
        return _whole(body, attempts)

    def on_host(self, href: str) -> str:
        """An address on the host that the user named, over https where the catalog was opened over https.

        Servers behind a proxy forget that. Raises RefusedError for another host, which would learn query and login.
        """
        home, actual = _origin(self.home), _origin(href)
        if actual == ("http", home[1], 80) and home[0] == "https":
            href = urlsplit(href)._replace(scheme="https", netloc=urlsplit(self.home).netloc).geturl()
            actual = _origin(href)
        is_upgrade = (home, actual) == (("http", home[1], 80), ("https", home[1], 443))
        if actual != home and not is_upgrade:
            raise RefusedError(
                f"the catalog at {home[1]}:{home[2]} leads to another host, {actual[1]}:{actual[2]}; "
                "only the host of search.url is queried"
            )
        return href


def _whole(body: str, attempts: str) -> str:
    """A response as it is. Raises TransientError for JSON that is cut: without a length nothing else shows it."""
    if body.lstrip()[:1] in ("{", "["):
        try:
            json.loads(body)
        except RecursionError as error:
            raise BadInputError("the JSON response is nested too deeply to be STAC") from error
        except ValueError as error:
            raise TransientError(f"the JSON response is truncated, {attempts}") from error
    return body


def _body(response: requests.Response, budget: RetryBudget) -> str:
    """The text of a response of limited size."""
    body = bytearray()
    # As the bytes arrive, since a large chunk of a body that trickles would never come.
    chunks = iter(lambda: response.raw.read1(CHUNK, decode_content=True) or b"", b"")
    for chunk in guard_rate(chunks, budget):
        body += chunk
        if len(body) > MAX_BYTES:
            raise RefusedError(f"{budget.host} answers the search with more than {MAX_BYTES >> 20} MiB in one response")
    return body.decode("utf-8", "replace")


def _origin(address: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(address)
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None


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
    try:
        value = stac_io.read_json(_endpoint(url, "collections"))
        names = sorted(str(collection["id"]) for collection in value["collections"])
    except (EopipeError, KeyError, TypeError, ValueError):
        return []
    return names[:MAX_NAMES] if set(query.collections) - set(names) else []


def _endpoint(url: str, path: str) -> str:
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{path}").geturl()


def _collection(url: str, name: str, stac_io: RetryingStacIO) -> dict[str, Any]:
    """The collection of an item, for its credits; empty where the server has none."""
    if not name:
        return {}
    try:
        value = stac_io.read_json(_endpoint(url, f"collections/{quote(name, safe='')}"))
    except (BadInputError, ValueError):
        return {}
    return as_collection(value, without_secrets(url)) if isinstance(value, dict) else {}
