"""pystac-client's reader with retries, limits on size and time, and requests to one host only."""

import json
from collections import Counter
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from pystac_client.stac_api_io import StacApiIO

from eopipe.errors import BadInputError, RefusedError
from eopipe.fetch.http import PORTS, HostAuth
from eopipe.fetch.retry import CHUNK, FetchSession, RetryBudget, TransientError, guard_rate, retry_after

TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
# Bytes of one response, decompressed; a compressed bomb ends here.
MAX_BYTES = 1 << 28
# What urllib3 says, and what it means.
REASONS = {
    "Failed to resolve": "host not found",
    "timed out": "no response in time",
    "refused": "connection refused",
    "reset": "connection reset",
    "IncompleteRead": "the response broke off",
    "Remote end closed": "connection closed",
}


class OneHostSession(requests.Session):
    """A session that follows no redirect to another host; the user's login is sent only to its own host."""

    def __init__(self, home: str) -> None:
        super().__init__()
        self.home, self.auth = home, HostAuth()

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """The target of a redirect. Raises RefusedError when that is on another host."""
        target = super().get_redirect_target(resp)
        if target:
            try:
                check_same_host(self.home, urljoin(resp.url, target))
            except RefusedError:
                # Its socket would stay open until it is collected.
                resp.close()
                raise
        return target


class RetryingStacIO(StacApiIO):
    """Reads JSON for pystac-client, only from the host of `home`, with retries for `deadline` seconds.

    Raises RefusedError for an address elsewhere, which would learn a login; UpstreamError when the server does not
    answer; BadInputError when it refuses.
    """

    def __init__(self, home: str, deadline: float) -> None:
        super().__init__()
        self.home, self.session = home, OneHostSession(home)
        self.pages: Counter[str] = Counter()
        self.limits = FetchSession(deadline=deadline)
        self.deadline = self.limits.clock.now() + deadline

    def request(
        self,
        href: str,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> str:
        """The text of a response."""
        href = keep_https(self.home, href)
        check_same_host(self.home, href)
        path = urlsplit(href).path
        self.pages[path] += 1
        label = f"page {self.pages[path]} of {path}"
        budget = RetryBudget(label, urlsplit(href).hostname or "", self.limits, self.deadline)
        verb = (method or "GET").upper()
        content = {"json" if verb == "POST" else "params": parameters, "headers": headers}
        while True:
            try:
                return _attempt(self.session, budget, verb, href, **content)
            except TransientError as error:
                budget.back_off(error, progressed=False)


def _attempt(session: requests.Session, budget: RetryBudget, verb: str, href: str, **content: Any) -> str:
    """The text of a response. Raises TransientError where the next attempt may succeed."""
    attempts = f"{budget.failures + 1} attempts"
    try:
        with session.request(verb, href, stream=True, timeout=budget.timeout(), **content) as response:
            code = response.status_code
            if code in TRANSIENT:
                raise TransientError(f"status {code}, {attempts}", retry_after(response.headers.get("Retry-After", "")))
            body = _body(response, budget)
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.TooManyRedirects) as error:
        raise BadInputError(f"{budget.host} cannot be queried: {type(error).__name__}") from error
    except requests.RequestException as error:
        raise TransientError(f"{_reason(error)}, {attempts}") from error
    if code >= 400:
        raise BadInputError(f"{budget.host} refused the search with status {code}: {body[:200]}")
    return _whole(body, attempts)


def _whole(body: str, attempts: str) -> str:
    """A response as it is. Raises TransientError for JSON that is cut: without a length nothing else shows it."""
    if body.lstrip()[:1] in ("{", "["):
        try:
            json.loads(body)
        except ValueError as error:
            raise TransientError(f"the JSON response is truncated, {attempts}") from error
    return body


def _body(response: requests.Response, budget: RetryBudget) -> str:
    """The text of a response of limited size."""
    body = bytearray()
    for chunk in guard_rate(response.iter_content(CHUNK), budget):
        body += chunk
        if len(body) > MAX_BYTES:
            raise RefusedError(f"{budget.host} answers the search with more than {MAX_BYTES >> 20} MiB in one response")
    return body.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    """The cause of an error in a few words, without the address."""
    return next((reason for text, reason in REASONS.items() if text in str(error)), type(error).__name__)


def check_same_host(home: str, href: str) -> None:
    """Raise RefusedError for an address of another host, which would learn the query and the login."""
    expected, actual = _origin(home), _origin(href)
    is_upgrade = (expected, actual) == (("http", expected[1], 80), ("https", expected[1], 443))
    if actual != expected and not is_upgrade:
        raise RefusedError(
            f"the catalog at {expected[1]}:{expected[2]} leads to another host, {actual[1]}:{actual[2]}; "
            "only the host of search.url is queried"
        )


def _origin(address: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(address)
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None


def keep_https(home: str, href: str) -> str:
    """The same address over https where the catalog was opened over https; servers behind a proxy forget it."""
    is_plain = _origin(href) == ("http", urlsplit(home).hostname, 80) and home.startswith("https:")
    return urlsplit(href)._replace(scheme="https", netloc=urlsplit(home).netloc).geturl() if is_plain else href
