"""HTTP requests for assets: only to addresses that were checked, only with the login of their own origin."""

import ipaddress
import netrc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from eopipe.errors import BadInputError, MissingFileError, RefusedError, UsageError
from eopipe.fetch.addresses import (
    PORTS,
    AddressGuard,
    GuardedSession,
    call_after,
    check_urllib3,
    host_and_port,
    stop_of,
)
from eopipe.fetch.retry import (
    CHUNK,
    TRANSIENT,
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


class HttpFile:
    """A file on a web server."""

    def __init__(self, href: str, session: FetchSession) -> None:
        self.url = SignedUrl(href, session)
        self.host = self.url.host

    @contextmanager
    def request(self, first: int, stop: int | None, tag: str, budget: RetryBudget) -> Iterator[RangeResponse]:
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
            budget.remaining()
            raise TransientError(type(error).__name__) from None


def _range_response(response: requests.Response, first: int, tag: str, budget: RetryBudget) -> RangeResponse:
    """The body of a response, if it is the requested range of the requested version."""
    code, headers = response.status_code, response.headers
    if code >= 500 or code in TRANSIENT:
        raise TransientError(f"status {code}", retry_after(headers.get("Retry-After", "")))
    current, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
    strong = current if current.startswith('"') else ""
    weak = "" if strong else f"{current} {modified}".strip()
    if code == 416 and tag and strong == tag and headers.get("Content-Range") == f"bytes */{first}":
        return RangeResponse(first, first, strong, weak, iter(()))
    # A range that does not name its version may be of another one (RFC 9110, section 15.3.7, requires its ETag).
    if code in (412, 416) or (code == 206 and tag and strong != tag):
        raise ChangedError
    if code not in (200, 206):
        raise _not_fetched(response, budget)
    start, length = 0, headers.get("Content-Length", "")
    if code == 206:
        span, _, length = headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        start = first
        if _number(span.partition("-")[0]) != first:
            raise ChangedError
    chunks = iter(lambda: response.raw.read1(CHUNK) or b"", b"")
    return RangeResponse(start, _number(length), strong, weak, guard_rate(chunks, budget))


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _not_fetched(response: requests.Response, budget: RetryBudget) -> BadInputError:
    """The error for a response that no retry changes."""
    code, host = response.status_code, urlsplit(response.url).hostname or ""
    needs_login = (
        f"; if it needs a login, set {token_variable(response.url)} or name {_machine(response.url)} in ~/.netrc"
    )
    hint = needs_login if code in (401, 403) else ""
    kind = MissingFileError if code in (404, 410) else BadInputError
    return kind(f"{budget.label} could not be fetched: {host} answered {code} {response.reason}{hint}")


class HttpClient:
    """The connections of one fetch session, which all its downloads use again."""

    def __init__(self, fetch_session: FetchSession) -> None:
        check_urllib3()
        self.guard = AddressGuard(fetch_session.private_hosts)
        self.session = GuardedSession(self.guard)

    @contextmanager
    def get(self, url: str, headers: dict[str, str], budget: RetryBudget) -> Iterator[requests.Response]:
        """Request a URL and follow its redirects; yield the response before its body is read.

        Raises RefusedError for an address inside this network that the user did not name, also of a redirect, and
        for a compressed body.
        """
        if get_environ_proxies(url):
            self.guard.check(url)
        slot = budget.session.connection_slot(urlsplit(url).hostname or "")
        with slot, self._follow(url, headers, budget) as response, end_in_time(response, budget):
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
        self.session.close()


@contextmanager
def end_in_time(response: requests.Response, budget: RetryBudget) -> Iterator[None]:
    """Break a connection at the deadline, also where a server keeps it busy with what is not the body."""
    with call_after(budget.remaining(), stop_of(response.raw)):
        yield


def token_variable(url: str) -> str:
    """The environment variable that holds the bearer token of an origin; its port only where it is not the usual one.

    >>> token_variable("https://data.cloud-host.org/a.tif"), token_variable("https://data.org:8443/a.tif")
    ('EOPIPE_TOKEN_DATA_CLOUD__HOST_ORG', 'EOPIPE_TOKEN_DATA_ORG_8443')
    """
    return "EOPIPE_TOKEN_" + _machine(url).upper().replace("-", "__").replace(".", "_").replace(":", "_")


def _machine(url: str) -> str:
    """How an origin is named where logins are kept: its host, with a port that is not the usual one."""
    host, port = host_and_port(url)
    return host if port == PORTS.get(urlsplit(url).scheme) else f"{host}:{port}"


class HostAuth(AuthBase):
    """The user's login for exactly the origin of a request (scheme, host, port), and none for any other."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the header of the login."""
        url, parts = str(request.url), urlsplit(request.url or "")
        if parts.scheme != "https" and not _is_loopback(str(parts.hostname or "")):
            return request
        if token := os.environ.get(token_variable(url)):
            request.headers["Authorization"] = f"Bearer {token}"
        elif login := _netrc_logins().get(_machine(url)):
            requests.auth.HTTPBasicAuth(login[0], login[2])(request)
        return request


def _netrc_logins() -> dict[str, tuple[str, str, str]]:
    # Only for hosts in the file, since its `default` entry would send a password to every server.
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
