"""Find scenes: in a static STAC catalog (folder or http) or through a STAC API."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eopipe.errors import BadInputError, RefusedError, UpstreamError
from eopipe.scenes.item import Item, safe_href, scene_name

TIMEOUT = (10.0, 60.0)
RETRY_CODES = (429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Query:
    """What scenes are wanted; `geometry` is GeoJSON in degrees, `datetime` a STAC interval."""

    collections: tuple[str, ...] = ()
    geometry: dict[str, Any] | None = None
    datetime: str | None = None
    max_cloud: float = 100.0
    ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = {
            "collections": ", ".join(self.collections) or "any collection",
            "dates": self.datetime or "any date",
            "area": "the area" if self.geometry else "anywhere",
            "cloud": f"cloud cover up to {self.max_cloud:g} %",
        }
        return ", ".join(told.values())


def from_folder(catalog: Path, query: Query) -> list[Item]:
    """Scenes of a static catalog on disk; asset paths become relative to its folder."""
    import pystac

    root = catalog.resolve()
    start = root / "catalog.json"
    if not start.is_file():
        raise BadInputError(f"{catalog} holds no catalog.json; give the folder of a static STAC catalog")
    try:
        found = [item.to_dict(transform_hrefs=False) | {"_self": item.self_href} for item in _walk(start)]
    except (OSError, ValueError, KeyError, pystac.STACError) as error:
        raise BadInputError(f"{catalog} cannot be read as a STAC catalog: {error}") from error
    for item in found:
        _relative(item, root)
    return _select(found, query)


def _walk(start: Path | str) -> Iterator[Any]:
    import pystac

    return pystac.Catalog.from_file(str(start), stac_io=_static_io()).get_items(recursive=True)


def _static_io() -> Any:
    """pystac's reader, over http with a time limit and retries."""
    from pystac.stac_io import DefaultStacIO

    class Reader(DefaultStacIO):
        def read_text_from_href(self, href: str) -> str:
            if urlsplit(href).scheme in ("http", "https"):
                return str(_stac_io().read_text_from_href(href))
            return str(super().read_text_from_href(href))

    return Reader()


def _relative(item: Item, root: Path) -> None:
    folder = Path(item.pop("_self")).parent
    for name, asset in item["assets"].items():
        if not urlsplit(asset["href"]).scheme and not asset["href"].startswith("/"):
            target = (folder / asset["href"]).resolve()
            if not target.is_relative_to(root):
                raise RefusedError(
                    f"scene {item['id']}, asset {name} points to {asset['href']!r}, outside the catalog"
                )
            asset["href"] = target.relative_to(root).as_posix()


def from_url(url: str, query: Query) -> list[Item]:
    """Scenes of a STAC API, or of a static catalog over http."""
    import requests
    from pystac_client.exceptions import APIError

    if urlsplit(url).scheme not in ("http", "https"):
        raise RefusedError(f"search.url {url!r} is not an http(s) address")
    try:
        head = _stac_io().read_json(url)
        if any(link.get("rel") == "search" for link in head.get("links", [])):
            return _select(_from_api(url, query), query)
        items = [i.to_dict() | {"_self": i.self_href} for i in _walk(url)]
    except (requests.RequestException, APIError, OSError) as error:
        host = urlsplit(url).hostname
        raise UpstreamError(f"{host} did not answer the search ({type(error).__name__}); try again later") from error
    for item in items:
        item.pop("_self")
    return _select(items, query)


def _from_api(url: str, query: Query) -> list[Item]:
    from pystac_client import Client

    client = Client.open(url, stac_io=_stac_io())
    found = client.search(
        collections=list(query.collections) or None,
        intersects=query.geometry,
        datetime=query.datetime,
        ids=list(query.ids) or None,
    )
    return list(found.items_as_dicts())


def _stac_io() -> Any:
    """pystac-client's reader with a time limit and retries, which by default it has not."""
    from pystac_client.stac_api_io import StacApiIO
    from urllib3.util import Retry

    retry = Retry(total=5, backoff_factor=0.5, status_forcelist=RETRY_CODES, allowed_methods=None)

    class Reader(StacApiIO):
        def __init__(self) -> None:
            super().__init__(max_retries=retry, timeout=TIMEOUT)

        def update(self, *args: Any, **kwargs: Any) -> None:
            # Client.open would set the time limit back to none.
            super().update(*args, **(kwargs | {"timeout": TIMEOUT}))

    return Reader()


def _select(items: list[Item], query: Query) -> list[Item]:
    """Filter, drop duplicates, sort by name; the order of the server does not matter."""
    unique = {scene_name(item["id"]): item for item in items if _matches(item, query)}
    return [unique[name] for name in sorted(unique)]


def _matches(item: Item, query: Query) -> bool:
    cloud = item["properties"].get("eo:cloud_cover")
    return (
        (not query.collections or item.get("collection") in query.collections)
        and (not query.ids or item["id"] in query.ids)
        and (cloud is None or cloud <= query.max_cloud)
        and _in_interval(item, query.datetime)
        and _touches(item, query.geometry)
    )


def _in_interval(item: Item, interval: str | None) -> bool:
    """Compare with a STAC interval; a plain end date includes its whole day."""
    if not interval:
        return True
    start, _, end = interval.partition("/")
    day = str(item["properties"].get("datetime") or item["properties"].get("start_datetime"))
    end = end or start
    return (start in ("", "..") or day >= start) and (end in ("", "..") or day[: len(end)] <= end)


def _touches(item: Item, geometry: dict[str, Any] | None) -> bool:
    from shapely.geometry import shape

    return geometry is None or bool(shape(item["geometry"]).intersects(shape(geometry)))


def keep_assets(items: list[Item], assets: tuple[str, ...]) -> list[Item]:
    """Leave only the wanted assets in each item; every scene that lacks one is named."""
    lacking = {i["id"]: [a for a in assets if a not in i["assets"]] for i in items}
    wrong = [f"{name} has no {', '.join(gone)}" for name, gone in lacking.items() if gone]
    if wrong:
        have = ", ".join(sorted(items[0]["assets"]))
        raise BadInputError(f"{len(wrong)} of {len(items)} scenes lack assets: {'; '.join(wrong)} ({items[0]['id']} has {have})")
    return [_pruned(item, assets) for item in items]


def _pruned(item: Item, assets: tuple[str, ...]) -> Item:
    kept = {name: item["assets"][name] for name in assets}
    for name, asset in kept.items():
        safe_href(asset["href"], f"scene {item['id']}, asset {name}")
    links = [link for link in item.get("links", []) if link["rel"] in ("license", "derived_from", "via")]
    return item | {"assets": kept, "links": links}
