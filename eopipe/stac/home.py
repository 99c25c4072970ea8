"""The host that the user named, and whether an address still leads there."""

from urllib.parse import urlsplit

from eopipe.errors import RefusedError

PORTS = {"http": 80, "https": 443}


def insist_home(home: str, href: str) -> None:
    """Refuse an address of another host, which would learn the query and the login."""
    here, there = _origin(home), _origin(href)
    safer = (("http", here[1], 80), ("https", here[1], 443))
    if there != here and (here, there) != safer:
        raise RefusedError(
            f"the catalog at {here[1]}:{here[2]} leads to another host, {there[1]}:{there[2]}; "
            "only the host of search.url is asked"
        )


def _origin(address: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(address)
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None


def secured(home: str, href: str) -> str:
    """The same address over https where the catalog was asked over https; servers behind a proxy forget it."""
    plain = _origin(href) == ("http", urlsplit(home).hostname, 80) and home.startswith("https:")
    return urlsplit(href)._replace(scheme="https", netloc=urlsplit(home).netloc).geturl() if plain else href
