"""The scenes of a run as remote entities: where they come from, under which licence, what they cover."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError
from eopipe.provenance.graph import Entity, Graph, local
from eopipe.provenance.redact import url_without_credentials
from eopipe.scenes.item import Item, read_item, scene_name

ORCID = r"\(?(?:https://orcid\.org/)?(\d{4}-\d{4}-\d{4}-\d{3}[\dX])\)?"
HOME = "https://github.com/eopipe/eopipe"


@dataclass(frozen=True)
class About:
    """What a person says of a crate; `license` is an SPDX id or an address, the ids of people may be bare."""

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
        """The names of all authors."""
        return [*filter(None, [self.author]), *(_person(one)[0] for one in self.coauthors)]


def organization(graph: Graph, about: About) -> Entity | None:
    """The organization, if one is named."""
    if not about.organization:
        return None
    address = f"https://ror.org/{_last(about.ror)}" if about.ror else None
    identifier = address or local("organization", about.organization)
    return graph.add(identifier, "Organization", name=about.organization, url=address)


def author(graph: Graph, about: About) -> Entity:
    """The person, or the organization where none is named, or a stand-in for somebody unnamed."""
    group = organization(graph, about)
    if about.author:
        address = f"https://orcid.org/{_last(about.orcid)}" if about.orcid else None
        return graph.add(address or local("author"), "Person", name=about.author, url=address, affiliation=group)
    said = "Whoever ran the pipeline; crate.author and crate.organization in the config name them."
    return group or graph.add(local("user"), "Organization", name="eopipe user", url=HOME, description=said)


def coauthors(graph: Graph, about: About) -> list[Entity]:
    """The other persons: each a name, maybe an ORCID, and behind a semicolon the organization."""
    found = []
    for one in about.coauthors:
        name, orcid, of = _person(one)
        address = f"https://orcid.org/{orcid}" if orcid else None
        own = of == about.organization
        group = organization(graph, about if own else About("", "", "", organization=of))
        told = {"name": name, "url": address, "affiliation": group}
        found.append(graph.add(address or local("author", name), "Person", **told))
    return found


def _person(text: str) -> tuple[str, str, str]:
    """Name, ORCID and organization."""
    person, of = (part.strip() for part in (*text.split(";", 1), "")[:2])
    name, _, last = person.rpartition(" ")
    known = re.fullmatch(ORCID, last)
    return (name.strip(" ,("), known[1], of) if known and name else (person, "", of)


def funders(graph: Graph, about: About) -> list[Entity]:
    """Who paid, each with its grants; what stands behind a colon is the grant."""
    grants: dict[str, list[str]] = {}
    for one in about.funding:
        name, _, grant = one.partition(": ")
        grants.setdefault(name.strip(), []).append(grant.strip())
    found = []
    for name, of in grants.items():
        address = name if name.startswith("https://") else None
        told = f"Grant {', '.join(filter(None, of))}." if any(of) else None
        identifier = address or local("funder", name)
        found.append(graph.add(identifier, "Organization", name=name, url=address, description=told))
    return found


def _last(identifier: str) -> str:
    return identifier.rstrip("/").rpartition("/")[2]


def licence(graph: Graph, name: str, title: str = "") -> Entity:
    """A licence by its SPDX id or address."""
    address = name if name.startswith(("http://", "https://")) else f"https://spdx.org/licenses/{name}"
    last = _last(address)
    return graph.add(address, "CreativeWork", name=title or last, url=address, description=f"Licence: {title or last}.")


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
    name, home = str(provider["name"]), url_without_credentials(str(provider["url"]))
    roles = ", ".join(map(str, provider.get("roles") or []))
    return graph.add(home, "Organization", name=name, url=home, description=roles and f"Role: {roles}.")


def _links(item: Item, relation: str) -> list[tuple[str, str]]:
    """Address and title of the links that lead into the web."""
    links = [link for link in item.get("links", []) if link.get("rel") == relation]
    # Access tokens stand in the query.
    web = [
        (url_without_credentials(link["href"]), link)
        for link in links
        if str(link.get("href")).startswith(("http://", "https://"))
    ]
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
