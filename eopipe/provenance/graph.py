"""The graph of an RO-Crate: entities by `@id`, serialised so that equal entities give equal bytes.

Its contextual entities: authors, organizations, funders and licence, and the scenes that it cites.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from eopipe.provenance.redact import url_without_credentials
from eopipe.scenes.item import Item, read_item, scene_name

# rocrate has no types; an entity is a mapping of its properties with an id.
Entity = Any

METADATA = "ro-crate-metadata.json"
CRATE_VERSION = "1.1"
WORKFLOW_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
RUN_TERMS = "https://w3id.org/ro/terms/workflow-run#"
# Terms that the JSON-LD context of RO-Crate 1.1 lacks; defined here, a reader needs no second context.
TERMS = {
    "ContainerImage": f"{RUN_TERMS}ContainerImage",
    "ParameterConnection": f"{RUN_TERMS}ParameterConnection",
    "buildInstructions": "https://codemeta.github.io/terms/buildInstructions",
    "connection": f"{RUN_TERMS}connection",
    "containerImage": f"{RUN_TERMS}containerImage",
    "creditText": "http://schema.org/creditText",
    "registry": f"{RUN_TERMS}registry",
    "resourceUsage": f"{RUN_TERMS}resourceUsage",
    "sha256": f"{RUN_TERMS}sha256",
    "sourceParameter": f"{RUN_TERMS}sourceParameter",
    "tag": f"{RUN_TERMS}tag",
    "targetParameter": f"{RUN_TERMS}targetParameter",
}
ORCID = r"\(?(?:https://orcid\.org/)?(\d{4}-\d{4}-\d{4}-\d{3}[\dX])\)?"
REPOSITORY = "https://github.com/eopipe/eopipe"
UNNAMED = "The person or group that ran the pipeline; crate.author and crate.organization in the config name them."
UNLICENSED = "No licence is stated, so no rights are granted: ask the authors. crate.license in the config states one."


class CrateGraph:
    """The entities of one crate; adding an id a second time returns the entity that exists."""

    def __init__(self) -> None:
        from rocrate.rocrate import ROCrate

        # rocrate's default is newer than the version that the run crate profiles are defined on.
        self.crate = ROCrate(version=CRATE_VERSION)
        self.crate.metadata.extra_terms.update(TERMS)
        self.crate.metadata.append_to("conformsTo", {"@id": WORKFLOW_CRATE})

    @property
    def root(self) -> Entity:
        return self.crate.root_dataset

    def data_entity(self, path: str) -> Entity:
        return self.crate.get(quote(path))

    def add(self, identifier: str, kind: str | list[str], /, **properties: Any) -> Entity:
        """Add a contextual entity; properties that are None, empty text or an empty list are omitted."""
        from rocrate.model import ContextEntity

        if identifier not in self.crate:
            self.crate.add(ContextEntity(self.crate, identifier, {"@type": kind} | _without_empty(properties)))
        return self.crate.get(identifier)

    def add_file(self, path: str, kind: str | list[str] = "File", /, **properties: Any) -> Entity:
        return self.crate.add_file(None, path, properties={"@type": kind} | _without_empty(properties))

    def add_folder(self, path: str, /, **properties: Any) -> Entity:
        return self.crate.add_dataset(None, path, properties=_without_empty(properties))

    def write(self, folder: Path) -> None:
        """Write the metadata file; the files that it describes exist already."""
        metadata = self.metadata()
        # One entity per line: half the size of what rocrate writes, and a diff still shows which entity changed.
        lines = ",\n".join(_compact_json(entity) for entity in metadata["@graph"])
        text = f'{{"@context":{_compact_json(metadata["@context"])},\n"@graph":[\n{lines}\n]}}\n'
        (folder / METADATA).write_text(text, encoding="utf-8", newline="\n")

    def metadata(self) -> Any:
        """The content of the metadata file, as JSON-LD."""
        for entity in self.crate.get_entities():
            _unwrap_lists(entity.properties())
        return self.crate.metadata.generate()


def _compact_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _without_empty(properties: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in properties.items() if v is not None and v not in ("", [])}


def _unwrap_lists(properties: dict[str, Any]) -> None:
    """RO-Crate 1.1 writes a list of one element as that element, and a reference only once."""
    for key, value in properties.items():
        if isinstance(value, list):
            unique = list({str(v): v for v in value}.values())
            properties[key] = unique[0] if len(unique) == 1 else unique


def as_list(value: Any) -> list[Any]:
    """The values of a JSON-LD property, which is a list only where it has several values."""
    return value if isinstance(value, list) else [] if value is None else [value]


def local_id(*parts: str) -> str:
    """The `@id` of an entity that exists only in the crate's own metadata.

    >>> local_id("job", "fetch", "a b")
    '#job/fetch/a%20b'
    """
    return "#" + "/".join(quote(part, safe="") for part in parts if part)


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
    return _organization(graph, description.organization, description.ror)


def _organization(graph: CrateGraph, name: str, ror: str | None) -> Entity | None:
    url = f"https://ror.org/{_last_segment(ror)}" if ror else None
    return graph.add(url or local_id("organization", name), "Organization", name=name, url=url) if name else None


def author(graph: CrateGraph, description: CrateDescription) -> Entity:
    """The author, or the organization if no author is named, or a placeholder if neither is."""
    affiliation = organization(graph, description)
    if description.author:
        return _person(
            graph, description.author, _last_segment(description.orcid or ""), affiliation, local_id("author")
        )
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
        affiliation = _organization(graph, group, description.ror if group == description.organization else None)
        entities.append(_person(graph, name, orcid, affiliation, local_id("author", name)))
    return entities


def _person(graph: CrateGraph, name: str, orcid: str, affiliation: Entity | None, identifier: str) -> Entity:
    """A person, identified by the ORCID, or else as given."""
    url = f"https://orcid.org/{orcid}" if orcid else None
    return graph.add(url or identifier, "Person", name=name, url=url, affiliation=affiliation)


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


def add_scenes(graph: CrateGraph, items: Sequence[Path], folder: str) -> list[tuple[Item, Entity]]:
    """Cite the scenes of STAC Item files, in the order of their file names; the files are in a folder of the crate.

    Returns each Item with the contextual entity that cites it.
    """
    scenes = []
    for path in sorted(items, key=lambda path: path.name):
        item = read_item(path)
        entity = _scene(graph, item)
        graph.data_entity(f"{folder}/{path.name}")["about"] = entity
        scenes.append((item, entity))
    return scenes


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


def coverage(graph: CrateGraph, scenes: Sequence[tuple[Item, Entity]]) -> dict[str, Any]:
    """Temporal and spatial coverage of all scenes together, as properties of the root entity.

    Raises BadInputError for a geometry that is not valid GeoJSON.
    """
    from shapely.geometry import shape

    from eopipe.stac.query import footprint

    times = sorted(t for _, entity in scenes for t in str(entity.get("temporalCoverage", "")).split("/") if t)
    properties: dict[str, Any] = {"temporalCoverage": f"{times[0]}/{times[-1]}"} if times else {}
    bounds = [shape(item["geometry"]).bounds for item, _ in scenes if footprint(item)]
    if bounds:
        west, south = (min(b[n] for b in bounds) for n in (0, 1))
        east, north = (max(b[n] for b in bounds) for n in (2, 3))
        box = graph.add(local_id("area", "box"), "GeoShape", box=f"{south:.6f} {west:.6f} {north:.6f} {east:.6f}")
        properties["spatialCoverage"] = graph.add(local_id("area"), "Place", name="area of the scenes", geo=box)
    return properties
