"""Who made a crate and under which licence it stands."""

from dataclasses import dataclass

from eopipe.provenance.graph import Entity, Graph, local

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


def organization(graph: Graph, about: About) -> Entity | None:
    """The organization, if one is named."""
    if not about.organization:
        return None
    address = f"https://ror.org/{_last(about.ror)}" if about.ror else None
    return graph.add(address or local("organization"), "Organization", name=about.organization, url=address)


def author(graph: Graph, about: About) -> Entity:
    """The person, or the organization where none is named, or a stand-in for somebody unnamed."""
    group = organization(graph, about)
    if about.author:
        address = f"https://orcid.org/{_last(about.orcid)}" if about.orcid else None
        return graph.add(address or local("author"), "Person", name=about.author, url=address, affiliation=group)
    said = "Whoever ran the pipeline; crate.author and crate.organization in the config name them."
    return group or graph.add(local("user"), "Organization", name="eopipe user", url=HOME, description=said)


def _last(identifier: str) -> str:
    return identifier.rstrip("/").rpartition("/")[2]


def licence(graph: Graph, name: str, title: str = "") -> Entity:
    """A licence by its SPDX id or address."""
    address = name if name.startswith(("http://", "https://")) else f"https://spdx.org/licenses/{name}"
    last = _last(address)
    return graph.add(address, "CreativeWork", name=title or last, url=address, description=f"Licence: {title or last}.")
