"""Who made a crate and under which licence it stands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from eopipe.provenance.graph import Entity, Graph, local

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
