"""One request to a web server: sent to checked addresses only, with the login of its own host only."""

import ipaddress
import netrc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, NewConnectionError

from eopipe.errors import BadInputError, RefusedError, UsageError
from eopipe.fetch.retry import BLOCK, Again, Changed, FetchSession, Patience, Reply, paced, retry_after
from eopipe.fetch.signing import Address

HOPS = 8
TRANSIENT = (408, 425, 429)
PORTS = {"http": 80, "https": 443}
Origin = tuple[str, int]
# The places that items name; a redirect leads nowhere else inside this network.
_named: set[Origin] = set()


class WebSource:
    """A file on a web server."""

    def __init__(self, href: str, terms: FetchSession) -> None:
        self.address = Address(href, terms)
        self.host = self.address.host

    @contextmanager
    def ask(self, first: int, stop: int | None, tag: str, patience: Patience) -> Iterator[Reply]:
        """Ask for the bytes from `first` up to `stop`, or up to the end, of the version with this tag."""
        headers = {}
        if first or stop is not None:
            headers["Range"] = f"bytes={first}-{'' if stop is None else stop - 1}"
        if tag:
            # A part that has changed is useless, a whole file that has changed is not.
            headers["If-Range" if stop is None else "If-Match"] = tag
        try:
            with _answer(self.address.url(patience), headers, patience) as response:
                self.address.check(response)
                yield _reply(response, first, tag, patience)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema):
            raise RefusedError(f"{patience.where} has an address that cannot be asked") from None
        except (requests.RequestException, HTTPError) as error:
            raise Again(type(error).__name__) from None


def _reply(response: requests.Response, first: int, tag: str, patience: Patience) -> Reply:
    """What an answer brings, if it is the part of the version that was asked for."""
    code, told = response.status_code, response.headers
    if code >= 500 or code in TRANSIENT:
        raise Again(f"status {code}", retry_after(told.get("Retry-After", "")))
    found, changed = told.get("ETag", tag), told.get("Last-Modified", "")
    strong = found if found.startswith('"') else ""
    if code == 416 and found == tag and told.get("Content-Range") == f"bytes */{first}":
        return Reply(first, first, strong, changed, iter(()))
    if code in (412, 416) or (code == 206 and tag and found != tag):
        raise Changed
    if code not in (200, 206):
        raise _not_had(response, patience)
    start, total = _span(told.get("Content-Range", "")) if code == 206 else (0, _number(told.get("Content-Length", "")))
    if code == 206 and start != first:
        raise Changed
    pieces = iter(lambda: response.raw.read1(BLOCK), b"")
    return Reply(start, total, strong, changed, paced(pieces, patience))


def _span(told: str) -> tuple[int, int | None]:
    """First byte and whole length of a Content-Range; -1 where it says none."""
    span, _, total = told.removeprefix("bytes ").partition("/")
    first = _number(span.partition("-")[0])
    return -1 if first is None else first, _number(total)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


@contextmanager
def _answer(url: str, headers: dict[str, str], patience: Patience) -> Iterator[requests.Response]:
    """Ask for an address and follow its redirects; give the answer before its body is read.

    Raises RefusedError when a redirect leads into this network or the body comes compressed.
    """
    _named.add(_origin(url))
    with patience.terms.turn(urlsplit(url).hostname or ""), _last(url, headers, patience) as response:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            told = response.headers["Content-Encoding"]
            raise RefusedError(
                f"{patience.where} comes compressed as {told}, which was not asked for and can be a bomb"
            )
        yield response


def _last(url: str, headers: dict[str, str], patience: Patience) -> requests.Response:
    """The answer after all redirects."""
    told = headers | {"Accept-Encoding": "identity"}
    for _ in range(HOPS):
        response = _session().get(
            url, headers=told, stream=True, allow_redirects=False, timeout=patience.timeout(), auth=Login()
        )
        if not response.is_redirect:
            return response
        response.close()
        there = urljoin(url, response.headers["Location"])
        _check_redirect(url, there, patience.where)
        url = there
    raise BadInputError(f"{patience.where} cannot be had: {patience.host} redirects more than {HOPS} times")


def _not_had(response: requests.Response, patience: Patience) -> BadInputError:
    """Make the error for an answer that waiting does not heal."""
    code, host = response.status_code, urlsplit(response.url).hostname or ""
    hint = f"; if it wants a login, set {token_name(host)} or name the host in ~/.netrc" if code in (401, 403) else ""
    return BadInputError(f"{patience.where} cannot be had: {host} answered {code} {response.reason}{hint}")


def token_name(host: str) -> str:
    """The environment variable that holds the bearer token of a host.

    >>> token_name("data.cloud-host.org")
    'EOPIPE_TOKEN_DATA_CLOUD__HOST_ORG'
    """
    return "EOPIPE_TOKEN_" + host.upper().replace("-", "__").replace(".", "_").replace(":", "_")


class Login(AuthBase):
    """The user's login for exactly the host that is asked, and none for any other."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the header of the login."""
        parts = urlsplit(request.url or "")
        host = str(parts.hostname or "")
        if parts.scheme == "https" or _is_loopback(host):
            _log_in(request, host)
        return request


def _log_in(request: requests.PreparedRequest, host: str) -> None:
    if token := os.environ.get(token_name(host)):
        request.headers["Authorization"] = f"Bearer {token}"
    elif known := _netrc().get(host):
        requests.auth.HTTPBasicAuth(known[0], known[2])(request)


def _netrc() -> dict[str, tuple[str, str, str]]:
    # Of the file's hosts only, since its `default` entry would send a password to every server.
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        found: dict[str, Any] = netrc.netrc(path).hosts if path.is_file() else {}
    except (netrc.NetrcParseError, OSError) as error:
        raise UsageError(f"cannot read the logins in {path}: {type(error).__name__}") from error
    return {host: login for host, login in found.items() if host != "default"}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _origin(url: str) -> Origin:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)


def _check_redirect(url: str, there: str, where: str) -> None:
    """Refuse to be sent on to a host inside this network, or to another kind of address."""
    here, new = urlsplit(url), urlsplit(there)
    told = f"{where}: {here.hostname} redirects to {new.scheme}://{new.hostname or ''}"
    if new.scheme not in PORTS or not new.hostname:
        raise RefusedError(f"{told}, which is no web address")
    if here.scheme == "https" and new.scheme == "http":
        raise RefusedError(f"{told}, where others can listen and write")
    try:
        _addresses(*_origin(there))
    except OSError:
        # Behind a proxy, names need not resolve here; the proxy guards its own network.
        return
    except RefusedError as error:
        raise RefusedError(f"{told}, which is not public") from error


def _addresses(host: str, port: int) -> list[str]:
    """The addresses of a host that may be connected to. Raises RefusedError for one inside this network."""
    found = [str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in found:
        plain = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(plain, "ipv4_mapped", None) or plain
        allowed = not mapped.is_link_local if _is_named(host, port) else mapped.is_global
        if not allowed:
            raise RefusedError(f"{host} is {address}, which is not public")
    return found


def _is_named(host: str, port: int) -> bool:
    return (host, port) in _named or (port == 443 and (host, 80) in _named)


def _connect(connection: HTTPConnection, connect: Callable[[], socket.socket]) -> socket.socket:
    """Connect to an address that was checked, not to what the name means a moment later."""
    name = connection._dns_host
    try:
        found = _addresses(name, connection.port)
    except socket.gaierror:
        return connect()
    try:
        for address in found[:-1]:
            connection._dns_host = address
            try:
                return connect()
            except NewConnectionError:
                continue
        connection._dns_host = found[-1]
        return connect()
    finally:
        connection._dns_host = name


class _Plain(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self, super()._new_conn)


class _Secure(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self, super()._new_conn)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


@cache
def _session() -> requests.Session:
    """The session that all downloads share, so that connections are used again."""
    session = requests.Session()
    adapter = HTTPAdapter(pool_maxsize=32)
    # Proxies keep their own kind of connection: they look names up themselves.
    adapter.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session
