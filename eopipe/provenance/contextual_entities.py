"""The scenes of a run as remote entities: where they come from, under which licence, what they cover."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError
from eopipe.provenance.graph import Entity, Graph, local
from eopipe.provenance.people import licence
from eopipe.provenance.redact import address
from eopipe.scenes.item import Item, read_item, scene_name


@dataclass(frozen=True)
class Source:
    """A scene: the STAC Item, and the entity that stands for it."""

    item: Item
    entity: Entity


def read_sources(graph: Graph, items: Sequence[Path], folder: str) -> tuple[Source, ...]:
    """Describe the scenes of STAC Item files, in the order of their names; the crate holds them in a folder."""
    found = []
    for path in sorted(items, key=lambda path: path.name):
        item = read_item(path)
        entity = _scene(graph, item)
        graph.at(f"{folder}/{path.name}")["about"] = entity
        found.append(Source(item, entity))
    return tuple(found)


def _scene(graph: Graph, item: Item) -> Entity:
    own = _links(item, "self")
    told = item["properties"]
    entity = graph.add(
        own[0][0] if own else local("scene", scene_name(item["id"])),
        # No data entity, or a validator would try to download every scene.
        "CreativeWork",
        name=item["id"],
        description=f"STAC Item of the collection {item.get('collection') or '(none)'}.",
        temporalCoverage=_interval(told),
        license=_licence(graph, item),
        creditText=_credit(told),
        citation=_citation(graph, told),
        provider=[_provider(graph, one) for one in _providers(told) if _has_site(one)],
    )
    for relation, key in (("derived_from", "isBasedOn"), ("via", "subjectOf")):
        found = [graph.add(link, "CreativeWork", name=title, url=link) for link, title in _links(item, relation)]
        if found:
            entity[key] = found
    return entity


def _citation(graph: Graph, told: dict[str, Any]) -> Entity | None:
    """How the data ask to be cited (STAC extension scientific)."""
    words, doi = told.get("sci:citation"), told.get("sci:doi")
    if not (words or doi):
        return None
    link = f"https://doi.org/{str(doi).removeprefix('https://doi.org/')}" if doi else None
    title = str(words or doi)
    return graph.add(link or local("citation", title), "CreativeWork", name=title, url=link)


def _providers(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in told.get("providers") or [] if isinstance(one, dict) and one.get("name")]


def _has_site(provider: dict[str, Any]) -> bool:
    return str(provider.get("url")).startswith(("http://", "https://"))


def _credit(told: dict[str, Any]) -> str:
    """The credit line, and the providers without a site, which cannot be entities of their own."""
    names = [str(one["name"]) for one in _providers(told) if not _has_site(one)]
    return "; ".join(filter(None, [str(told.get("attribution") or ""), *names]))


def _provider(graph: Graph, provider: dict[str, Any]) -> Entity:
    name, home = str(provider["name"]), address(str(provider["url"]))
    roles = ", ".join(map(str, provider.get("roles") or []))
    return graph.add(home, "Organization", name=name, url=home, description=roles and f"Role: {roles}.")


def _links(item: Item, relation: str) -> list[tuple[str, str]]:
    """Address and title of the links that lead into the web."""
    links = [link for link in item.get("links", []) if link.get("rel") == relation]
    # Access tokens stand in the query.
    web = [(address(link["href"]), link) for link in links if str(link.get("href")).startswith(("http://", "https://"))]
    return [(href, str(link.get("title") or href.rstrip("/").rpartition("/")[2])) for href, link in web]


def _licence(graph: Graph, item: Item) -> Entity | None:
    links = _links(item, "license")
    if links:
        return licence(graph, *links[0])
    name = item["properties"].get("license")
    known = isinstance(name, str) and name not in ("other", "proprietary", "various")
    return licence(graph, str(name)) if known else None


def _interval(told: dict[str, Any]) -> str:
    start, end = told.get("start_datetime"), told.get("end_datetime")
    return f"{start}/{end}" if start and end else str(told.get("datetime") or "")


def cover(graph: Graph, sources: Sequence[Source]) -> dict[str, Any]:
    """Time and place that all scenes cover together, as properties of the crate."""
    times = sorted(t for s in sources for t in str(s.entity.get("temporalCoverage", "")).split("/") if t)
    found: dict[str, Any] = {"temporalCoverage": f"{times[0]}/{times[-1]}"} if times else {}
    bounds = [_bounds(s.item) for s in sources if s.item["geometry"]]
    if bounds:
        west, south = (min(b[n] for b in bounds) for n in (0, 1))
        east, north = (max(b[n] for b in bounds) for n in (2, 3))
        box = graph.add(local("area", "box"), "GeoShape", box=f"{south:.6f},{west:.6f} {north:.6f},{east:.6f}")
        found["spatialCoverage"] = graph.add(local("area"), "Place", name="area of the scenes", geo=box)
    return found


def _bounds(item: Item) -> tuple[float, float, float, float]:
    from shapely.errors import ShapelyError
    from shapely.geometry import shape

    try:
        west, south, east, north = shape(item["geometry"]).bounds
    except (AttributeError, KeyError, TypeError, ValueError, ShapelyError) as error:
        raise BadInputError(f"scene {item['id']} has a broken geometry: {error}") from error
    return west, south, east, north
