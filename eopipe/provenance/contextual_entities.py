"""Contextual entities of a crate: its authors, organizations, funders and licence, and the scenes that it cites."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError
from eopipe.provenance.graph import CrateGraph, Entity, local_id
from eopipe.provenance.redact import url_without_credentials
from eopipe.scenes.item import Item, read_item, scene_name

ORCID = r"\(?(?:https://orcid\.org/)?(\d{4}-\d{4}-\d{4}-\d{3}[\dX])\)?"
REPOSITORY = "https://github.com/eopipe/eopipe"
UNNAMED = "The person or group that ran the pipeline; crate.author and crate.organization in the config name them."
UNLICENSED = "No licence is stated, so no rights are granted: ask the authors. crate.license in the config states one."


@dataclass(frozen=True)
class CrateDescription:
    """What the user says about a crate; `license` is an SPDX id, a URL or empty, ORCID and ROR ids may be bare."""

    title: str
    description: str
    license: str
    author: str = ""
    orcid: str | None = None
    organization: str = ""
    ror: str | None = None
    coauthors: Sequence[str] = ()
    funding: Sequence[str] = ()

    @property
    def people(self) -> list[str]:
        return [*filter(None, [self.author]), *(_parse_person(person)[0] for person in self.coauthors)]


def organization(graph: CrateGraph, description: CrateDescription) -> Entity | None:
    """The author's organization, if one is named."""
    if not description.organization:
        return None
    url = f"https://ror.org/{_last_segment(description.ror)}" if description.ror else None
    return _organization(graph, description.organization, url)


def _organization(graph: CrateGraph, name: str, url: str | None = None) -> Entity:
    return graph.add(url or local_id("organization", name), "Organization", name=name, url=url)


def author(graph: CrateGraph, description: CrateDescription) -> Entity:
    """The author, or the organization if no author is named, or a placeholder if neither is."""
    affiliation = organization(graph, description)
    if description.author:
        url = f"https://orcid.org/{_last_segment(description.orcid)}" if description.orcid else None
        identifier = url or local_id("author")
        return graph.add(identifier, "Person", name=description.author, url=url, affiliation=affiliation)
    # RO-Crate recommends an address of an organization; this one explains what is missing.
    explanation = f"{REPOSITORY}/blob/main/docs/provenance.md"
    return affiliation or graph.add(
        local_id("author"), "Organization", name="not stated", url=explanation, description=UNNAMED
    )


def coauthors(graph: CrateGraph, description: CrateDescription) -> list[Entity]:
    """The other authors, each from `Name ORCID; Organization`, the last two optional."""
    entities = []
    for person in description.coauthors:
        name, orcid, group = _parse_person(person)
        url = f"https://orcid.org/{orcid}" if orcid else None
        if group == description.organization:
            affiliation = organization(graph, description)
        else:
            affiliation = _organization(graph, group) if group else None
        identifier = url or local_id("author", name)
        entities.append(graph.add(identifier, "Person", name=name, url=url, affiliation=affiliation))
    return entities


def _parse_person(text: str) -> tuple[str, str, str]:
    """Name, ORCID and organization."""
    person, group = (part.strip() for part in (*text.split(";", 1), "")[:2])
    name, _, last = person.rpartition(" ")
    orcid = re.fullmatch(ORCID, last)
    return (name.strip(" ,("), orcid[1], group) if orcid and name else (person, "", group)


def funders(graph: CrateGraph, description: CrateDescription) -> list[Entity]:
    """The funders, each with its grants, from `Name or ROR URL: grant`."""
    grants: dict[str, list[str]] = {}
    for entry in description.funding:
        name, _, grant = entry.partition(": ")
        grants.setdefault(name.strip(), []).append(grant.strip())
    entities = []
    for name, numbers in grants.items():
        url = name if name.startswith("https://") else None
        text = f"Grant {', '.join(filter(None, numbers))}." if any(numbers) else None
        entities.append(
            graph.add(url or local_id("funder", name), "Organization", name=name, url=url, description=text)
        )
    return entities


def _last_segment(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


def licence(graph: CrateGraph, name: str, title: str = "") -> Entity:
    """A licence by its SPDX id or URL; for none an entity that says so, since RO-Crate 1.1 requires the property."""
    if not name:
        return graph.add(local_id("licence"), "CreativeWork", name="none stated", description=UNLICENSED)
    url = name if name.startswith(("http://", "https://")) else f"https://spdx.org/licenses/{name}"
    title = title or _last_segment(url)
    return graph.add(url, "CreativeWork", name=title, url=url, description=f"Licence: {title}.")


@dataclass(frozen=True)
class SceneEntity:
    """A scene: its STAC Item and the contextual entity that cites it."""

    item: Item
    entity: Entity


def add_scenes(graph: CrateGraph, items: Sequence[Path], folder: str) -> tuple[SceneEntity, ...]:
    """Cite the scenes of STAC Item files, in the order of their file names; the files are in a folder of the crate."""
    scenes = []
    for path in sorted(items, key=lambda path: path.name):
        item = read_item(path)
        entity = _scene(graph, item)
        graph.data_entity(f"{folder}/{path.name}")["about"] = entity
        scenes.append(SceneEntity(item, entity))
    return tuple(scenes)


def _scene(graph: CrateGraph, item: Item) -> Entity:
    self_links = _web_links(item, "self")
    properties = item["properties"]
    entity = graph.add(
        self_links[0][0] if self_links else local_id("scene", scene_name(item["id"])),
        # Not a data entity, or a validator would try to download every scene.
        "CreativeWork",
        name=item["id"],
        description=f"STAC Item of the collection {item.get('collection') or '(none)'}.",
        temporalCoverage=_interval(properties),
        license=_scene_licence(graph, item),
        creditText=_credit(properties),
        citation=_citation(graph, properties),
        provider=[_provider(graph, provider) for provider in _providers(properties) if _has_site(provider)],
    )
    for relation, key in (("derived_from", "isBasedOn"), ("via", "subjectOf")):
        links = _web_links(item, relation)
        if links:
            entity[key] = [graph.add(url, "CreativeWork", name=title, url=url) for url, title in links]
    return entity


def _citation(graph: CrateGraph, properties: dict[str, Any]) -> Entity | None:
    """The citation that the data ask for (STAC extension `scientific`)."""
    text, doi = properties.get("sci:citation"), properties.get("sci:doi")
    if not (text or doi):
        return None
    url = f"https://doi.org/{str(doi).removeprefix('https://doi.org/')}" if doi else None
    title = str(text or doi)
    return graph.add(url or local_id("citation", title), "CreativeWork", name=title, url=url)


def _providers(properties: dict[str, Any]) -> list[dict[str, Any]]:
    providers = properties.get("providers") or []
    return [provider for provider in providers if isinstance(provider, dict) and provider.get("name")]


def _has_site(provider: dict[str, Any]) -> bool:
    return str(provider.get("url")).startswith(("http://", "https://"))


def _credit(properties: dict[str, Any]) -> str:
    """The credit line, and the providers without a site, which cannot be entities of their own."""
    names = [str(provider["name"]) for provider in _providers(properties) if not _has_site(provider)]
    return "; ".join(filter(None, [str(properties.get("attribution") or ""), *names]))


def _provider(graph: CrateGraph, provider: dict[str, Any]) -> Entity:
    name, url = str(provider["name"]), url_without_credentials(str(provider["url"]))
    roles = ", ".join(map(str, provider.get("roles") or []))
    return graph.add(url, "Organization", name=name, url=url, description=roles and f"Role: {roles}.")


def _web_links(item: Item, relation: str) -> list[tuple[str, str]]:
    """URL and title of the http links of one relation, without the queries, which may hold access tokens."""
    links = [link for link in item.get("links", []) if link.get("rel") == relation]
    web = [link for link in links if str(link.get("href")).startswith(("http://", "https://"))]
    titles = [(url_without_credentials(link["href"]), link.get("title")) for link in web]
    return [(url, str(title or _last_segment(url))) for url, title in titles]


def _scene_licence(graph: CrateGraph, item: Item) -> Entity | None:
    links = _web_links(item, "license")
    if links:
        return licence(graph, *links[0])
    name = item["properties"].get("license")
    is_spdx = isinstance(name, str) and name not in ("other", "proprietary", "various")
    return licence(graph, str(name)) if is_spdx else None


def _interval(properties: dict[str, Any]) -> str:
    start, end = properties.get("start_datetime"), properties.get("end_datetime")
    return f"{start}/{end}" if start and end else str(properties.get("datetime") or "")


def coverage(graph: CrateGraph, scenes: Sequence[SceneEntity]) -> dict[str, Any]:
    """Temporal and spatial coverage of all scenes together, as properties of the root entity."""
    times = sorted(t for scene in scenes for t in str(scene.entity.get("temporalCoverage", "")).split("/") if t)
    properties: dict[str, Any] = {"temporalCoverage": f"{times[0]}/{times[-1]}"} if times else {}
    bounds = [_bounds(scene.item) for scene in scenes if scene.item["geometry"]]
    if bounds:
        west, south = (min(b[n] for b in bounds) for n in (0, 1))
        east, north = (max(b[n] for b in bounds) for n in (2, 3))
        box = graph.add(local_id("area", "box"), "GeoShape", box=f"{south:.6f} {west:.6f} {north:.6f} {east:.6f}")
        properties["spatialCoverage"] = graph.add(local_id("area"), "Place", name="area of the scenes", geo=box)
    return properties


def _bounds(item: Item) -> tuple[float, float, float, float]:
    """West, south, east, north in degrees; raises BadInputError for a geometry that is not valid GeoJSON."""
    from shapely.errors import ShapelyError
    from shapely.geometry import shape

    try:
        west, south, east, north = shape(item["geometry"]).bounds
    except (AttributeError, KeyError, TypeError, ValueError, ShapelyError) as error:
        raise BadInputError(f"scene {item['id']} has an invalid geometry: {error}") from error
    return west, south, east, north
