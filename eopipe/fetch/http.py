"""Requests for assets: of web servers, only to addresses that were checked and with the login of their own origin.

Of S3 buckets, with credentials, region and endpoint from the usual AWS_* variables.
"""

import ipaddress
import netrc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import obstore
import requests
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import S3Store
from requests.auth import AuthBase
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from eopipe.errors import BadInputError, EopipeError, MissingFileError, RefusedError, UsageError
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
    TIMEOUT,
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
STATUS = re.compile(r"status code: (\d{3})")
# Any of these gives obstore credentials; without one, requests are anonymous.
CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


class HttpFile:
    """A file on a web server."""

    def __init__(self, href: str, session: FetchSession) -> None:
        self.url = SignedUrl(href, session)
        self.host = self.url.host

    @contextmanager
    def request(self, first: int, stop: int | None, tag: str, budget: RetryBudget) -> Iterator[RangeResponse]:
        """Request the bytes from `first` up to `stop`, or up to the end, of the version with this ETag.

        Raises TransientError when another attempt may succeed, ChangedError for another version, BadInputError when
        the file could not be fetched, RefusedError when the response is not safe.
        """
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

        def check(url: str, target: str) -> str:
            self.guard.check_redirect(url, target, budget.label)
            return target

        plain = headers | {"Accept-Encoding": "identity"}
        with slot, follow(self.session, "GET", url, budget, check, headers=plain) as response:
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise RefusedError(
                    f"{budget.label} arrives compressed as {encoding}, which was not requested (decompression bomb?)"
                )
            yield response

    def close(self) -> None:
        self.session.close()


@contextmanager
def follow(
    session: GuardedSession, verb: str, url: str, budget: RetryBudget, check: Callable[[str, str], str], **content: Any
) -> Iterator[requests.Response]:
    """The response after all redirects, whose bodies are not read; `check` refuses where one leads, or changes it.

    The connection breaks at the deadline, also where a server keeps it busy with what is not the body.
    """
    for _ in range(MAX_REDIRECTS):
        response = session.request(
            verb, url, stream=True, allow_redirects=False, timeout=budget.timeout(), auth=HostAuth(), **content
        )
        if not response.is_redirect:
            break
        response.close()
        url = check(url, urljoin(url, response.headers["Location"]))
        becomes_get = response.status_code == 303 or (verb == "POST" and response.status_code in (301, 302))
        verb = "GET" if becomes_get else verb
        # The address of a redirect has its parameters.
        content = {key: value for key, value in content.items() if key == "headers" or verb == "POST"}
    else:
        raise BadInputError(
            f"{budget.label} could not be fetched: {budget.host} redirects more than {MAX_REDIRECTS} times"
        )
    with response, call_after(budget.remaining(), stop_of(response.raw)):
        yield response


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


class S3File:
    """An object in a bucket."""

    def __init__(self, href: str, label: str, session: FetchSession) -> None:
        parts = urlsplit(href)
        # A key may contain ? and #, which mean nothing in an s3 address.
        self.host, self.key, self.label = parts.netloc, href.partition("://")[2].partition("/")[2], label
        if not self.key:
            raise BadInputError(f"{label} points to the bucket {self.host}, not to a file in it")
        self.store = _store(self.host, session.deadline)

    @contextmanager
    def request(self, first: int, stop: int | None, tag: str, budget: RetryBudget) -> Iterator[RangeResponse]:
        options: dict[str, Any] = {"if_match": tag} if tag else {}
        if stop is not None:
            options["range"] = (first, stop)
        elif first:
            options["range"] = {"offset": first}
        with budget.session.connection_slot(self.host), _translated_errors(self.label, self.host):
            budget.remaining()
            result = obstore.get(self.store, self.key, options=options)  # type: ignore[arg-type]
            current = result.meta["e_tag"] or ""
            if tag and current != tag:
                raise ChangedError
            # As the bytes arrive, since a large chunk of a body that trickles would never come.
            body = guard_rate(map(bytes, result.stream(min_chunk_size=1)), budget)
            modified = "" if current else str(result.meta["last_modified"])
            yield RangeResponse(result.range[0], result.meta["size"], current, modified, body)


RemoteFile = HttpFile | S3File


def _store(bucket: str, deadline: float) -> S3Store:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    anonymous: dict[str, Any] = {} if any(map(os.environ.get, CREDENTIALS)) else {"skip_signature": True}
    try:
        return S3Store(
            bucket,
            # Rate and deadline are checked here; the timeout ends responses that never come to their body.
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": f"{TIMEOUT[0]:g}s",
                "read_timeout": f"{TIMEOUT[1]:g}s",
                "timeout": f"{max(1, round(deadline * 1000))}ms",
            },
            retry_config={"max_retries": 0},
            **anonymous,
        )
    except (BaseError, ValueError) as error:
        raise UsageError(f"the AWS_* variables do not name an S3 server for {bucket}: {type(error).__name__}") from None


@contextmanager
def _translated_errors(label: str, bucket: str) -> Iterator[None]:
    """Translate obstore's errors; none of their text is shown, since it can contain signatures."""
    try:
        yield
    except EopipeError:
        raise
    except FileNotFoundError:
        raise MissingFileError(f"{label} could not be fetched: there is no such file in the bucket {bucket}") from None
    except (PermissionDeniedError, UnauthenticatedError):
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REQUEST_PAYER=requester if the requester pays"
        raise BadInputError(f"{label} could not be fetched: the bucket {bucket} denies access; {hint}") from None
    except PreconditionError:
        raise ChangedError from None
    except BaseError as error:
        raise _by_status(str(error), label, bucket) from None


def _by_status(text: str, label: str, bucket: str) -> Exception:
    """The error that the HTTP status in a text of obstore means."""
    match = STATUS.search(text)
    code = int(match[1]) if match else 0
    # A server without ranges gives the whole file when it is not asked for a range.
    if code == 416 or "non-partial response" in text:
        return ChangedError()
    if "incorrectly configured region" in text or code == 301:
        return BadInputError(
            f"{label} could not be fetched: the bucket {bucket} is in another region; set AWS_REGION to it"
        )
    if code >= 500 or code in TRANSIENT or not code:
        return TransientError(f"status {code}" if code else "the connection broke")
    return BadInputError(f"{label} could not be fetched: the bucket {bucket} answered {code}")
