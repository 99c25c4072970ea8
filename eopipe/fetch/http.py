"""HTTP requests for assets: only to addresses that were checked, only with the login of their own host.

Internals of other packages that this module uses; `check_urllib3` looks for them before the first request:

| what | why | versions |
|---|---|---|
| `HTTPConnection._new_conn` of urllib3 is overridden | to check addresses before a connection | 2.3 to 2.x |
| `HTTPConnection._dns_host` is set meanwhile | to connect to what was checked (DNS rebinding) | 2.3 to 2.x |
"""

import ipaddress
import netrc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
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
from eopipe.fetch.retry import (
    CHUNK,
    ChangedError,
    FetchSession,
    RangeResponse,
    RetryBudget,
    TransientError,
    guard_rate,
    retry_after,
)
from eopipe.fetch.signing import SignedUrl

MAX_REDIRECTS = 8
TRANSIENT = (408, 425, 429)
PORTS = {"http": 80, "https": 443}
Origin = tuple[str, int]


def check_urllib3() -> None:
    """Raise UsageError where urllib3 lacks the internals in the table above."""
    probe, connect = HTTPConnection("host.invalid"), getattr(HTTPConnection, "_new_conn", None)
    is_used = connect is not None and "_dns_host" in connect.__code__.co_names
    if not is_used or getattr(probe, "_dns_host", None) != "host.invalid":
        raise UsageError(
            f"urllib3 {version('urllib3')} does not let eopipe check the address of a connection; "
            "install urllib3>=2.3,<3"
        )


class HttpFile:
    """A file on a web server."""

    def __init__(self, href: str, session: FetchSession) -> None:
        self.url = SignedUrl(href, session)
        self.host = self.url.host

    @contextmanager
    def request(self, first: int, stop: int | None, tag: str, budget: RetryBudget) -> Iterator[RangeResponse]:
        """Request the bytes from `first` up to `stop`, or up to the end, of the version with this ETag."""
        headers = {}
        if first or stop is not None:
            headers["Range"] = f"bytes={first}-{'' if stop is None else stop - 1}"
        if tag:
            # A range of a file that has changed is useless, a whole file that has changed is not.
            headers["If-Range" if stop is None else "If-Match"] = tag
        client = budget.session.resource(HttpClient)
        try:
            with client.get(self.url.signed(budget), headers, budget) as response:
                self.url.check(response)
                yield _range_response(response, first, tag, budget)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema):
            raise RefusedError(f"{budget.label} has an invalid URL") from None
        except (requests.RequestException, HTTPError) as error:
            raise TransientError(type(error).__name__) from None


def _range_response(response: requests.Response, first: int, tag: str, budget: RetryBudget) -> RangeResponse:
    """The body of a response, if it is the requested range of the requested version."""
    code, headers = response.status_code, response.headers
    if code >= 500 or code in TRANSIENT:
        raise TransientError(f"status {code}", retry_after(headers.get("Retry-After", "")))
    current, modified = headers.get("ETag", tag), headers.get("Last-Modified", "")
    strong = current if current.startswith('"') else ""
    if code == 416 and current == tag and headers.get("Content-Range") == f"bytes */{first}":
        return RangeResponse(first, first, strong, modified, iter(()))
    if code in (412, 416) or (code == 206 and tag and current != tag):
        raise ChangedError
    if code not in (200, 206):
        raise _not_fetched(response, budget)
    if code == 206:
        start, total = _content_range(headers.get("Content-Range", ""))
    else:
        start, total = 0, _number(headers.get("Content-Length", ""))
    if code == 206 and start != first:
        raise ChangedError
    chunks = iter(lambda: response.raw.read1(CHUNK), b"")
    return RangeResponse(start, total, strong, modified, guard_rate(chunks, budget))


def _content_range(header: str) -> tuple[int, int | None]:
    """First byte and whole length of a Content-Range header; -1 where it has no first byte."""
    span, _, total = header.removeprefix("bytes ").partition("/")
    first = _number(span.partition("-")[0])
    return -1 if first is None else first, _number(total)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _not_fetched(response: requests.Response, budget: RetryBudget) -> BadInputError:
    """The error for a response that no retry changes."""
    code, host = response.status_code, urlsplit(response.url).hostname or ""
    needs_login = f"; if it needs a login, set {token_variable(host)} or name the host in ~/.netrc"
    hint = needs_login if code in (401, 403) else ""
    return BadInputError(f"{budget.label} could not be fetched: {host} answered {code} {response.reason}{hint}")


class HttpClient:
    """The connections of one fetch session, which all its downloads use again."""

    def __init__(self) -> None:
        check_urllib3()
        self.guard, self.session = AddressGuard(), requests.Session()
        adapter = HTTPAdapter(pool_maxsize=32)
        # A proxy keeps its own kind of connection: it looks names up itself.
        adapter.poolmanager.pool_classes_by_scheme = _guarded_pools(self.guard)
        self.session.mount("http://", adapter)
        self.session.mount("https://", adapter)

    @contextmanager
    def get(self, url: str, headers: dict[str, str], budget: RetryBudget) -> Iterator[requests.Response]:
        """Request a URL and follow its redirects; yield the response before its body is read.

        Raises RefusedError when a redirect leads into this network or the body is compressed.
        """
        self.guard.allow(url)
        slot = budget.session.connection_slot(urlsplit(url).hostname or "")
        with slot, self._follow(url, headers, budget) as response:
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise RefusedError(
                    f"{budget.label} arrives compressed as {encoding}, which was not requested (decompression bomb?)"
                )
            yield response

    def _follow(self, url: str, headers: dict[str, str], budget: RetryBudget) -> requests.Response:
        """The response after all redirects."""
        plain = headers | {"Accept-Encoding": "identity"}
        for _ in range(MAX_REDIRECTS):
            response = self.session.get(
                url, headers=plain, stream=True, allow_redirects=False, timeout=budget.timeout(), auth=HostAuth()
            )
            if not response.is_redirect:
                return response
            response.close()
            target = urljoin(url, response.headers["Location"])
            self.guard.check_redirect(url, target, budget.label)
            url = target
        raise BadInputError(
            f"{budget.label} could not be fetched: {budget.host} redirects more than {MAX_REDIRECTS} times"
        )

    def close(self) -> None:
        """Close all connections."""
        self.session.close()


def token_variable(host: str) -> str:
    """The environment variable that holds the bearer token of a host.

    >>> token_variable("data.cloud-host.org")
    'EOPIPE_TOKEN_DATA_CLOUD__HOST_ORG'
    """
    return "EOPIPE_TOKEN_" + host.upper().replace("-", "__").replace(".", "_").replace(":", "_")


class HostAuth(AuthBase):
    """The user's login for exactly the host of a request, and none for any other host."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the header of the login."""
        parts = urlsplit(request.url or "")
        host = str(parts.hostname or "")
        if parts.scheme == "https" or _is_loopback(host):
            _log_in(request, host)
        return request


def _log_in(request: requests.PreparedRequest, host: str) -> None:
    if token := os.environ.get(token_variable(host)):
        request.headers["Authorization"] = f"Bearer {token}"
    elif login := _netrc_logins().get(host):
        requests.auth.HTTPBasicAuth(login[0], login[2])(request)


def _netrc_logins() -> dict[str, tuple[str, str, str]]:
    # Of the file's hosts only, since its `default` entry would send a password to every server.
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        logins: dict[str, Any] = netrc.netrc(path).hosts if path.is_file() else {}
    except (netrc.NetrcParseError, OSError) as error:
        raise UsageError(f"cannot read the logins in {path}: {type(error).__name__}") from error
    return {host: login for host, login in logins.items() if host != "default"}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _origin(url: str) -> Origin:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)


class AddressGuard:
    """Which addresses a session connects to: public ones, and those of the hosts that its items name."""

    def __init__(self) -> None:
        self._named: set[Origin] = set()

    def allow(self, url: str) -> None:
        """Let the host of an item's asset be inside this network."""
        self._named.add(_origin(url))

    def check_redirect(self, url: str, target: str, label: str) -> None:
        """Raise RefusedError for a redirect to a host inside this network, or to another kind of address."""
        source, destination = urlsplit(url), urlsplit(target)
        redirect = f"{label}: {source.hostname} redirects to {destination.scheme}://{destination.hostname or ''}"
        if destination.scheme not in PORTS or not destination.hostname:
            raise RefusedError(f"{redirect}, which is not a web address")
        if source.scheme == "https" and destination.scheme == "http":
            raise RefusedError(f"{redirect}, which is not encrypted")
        try:
            self.resolve(*_origin(target))
        except OSError:
            # Behind a proxy, names need not resolve here; the proxy guards its own network.
            return
        except RefusedError as error:
            raise RefusedError(f"{redirect}, which is not public") from error

    def resolve(self, host: str, port: int) -> list[str]:
        """The IP addresses of a host. Raises RefusedError for one that may not be connected to."""
        addresses = [str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        for address in addresses:
            plain = ipaddress.ip_address(address.partition("%")[0])
            mapped = getattr(plain, "ipv4_mapped", None) or plain
            is_allowed = not mapped.is_link_local if self._is_named(host, port) else mapped.is_global
            if not is_allowed:
                raise RefusedError(f"{host} is {address}, which is not public")
        return addresses

    def _is_named(self, host: str, port: int) -> bool:
        return (host, port) in self._named or (port == 443 and (host, 80) in self._named)

    def connect(self, connection: HTTPConnection, connect: Callable[[], socket.socket]) -> socket.socket:
        """Connect to an address that was checked, not to what the name resolves to a moment later."""
        name = connection._dns_host
        try:
            addresses = self.resolve(name, connection.port)
        except socket.gaierror:
            return connect()
        try:
            for address in addresses[:-1]:
                connection._dns_host = address
                try:
                    return connect()
                except NewConnectionError:
                    continue
            connection._dns_host = addresses[-1]
            return connect()
        finally:
            connection._dns_host = name


def _guarded_pools(guard: AddressGuard) -> dict[str, type[HTTPConnectionPool]]:
    """Connection pools that connect only where a guard allows, by scheme."""

    class GuardedHttp(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return guard.connect(self, super()._new_conn)

    class GuardedHttps(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return guard.connect(self, super()._new_conn)

    class GuardedHttpPool(HTTPConnectionPool):
        ConnectionCls = GuardedHttp

    class GuardedHttpsPool(HTTPSConnectionPool):
        ConnectionCls = GuardedHttps

    return {"http": GuardedHttpPool, "https": GuardedHttpsPool}
