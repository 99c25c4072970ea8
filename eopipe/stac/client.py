"""pystac-client's reader with retries, limits on size and time, and requests to one host only."""

import json
from collections import Counter
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from pystac_client.stac_api_io import StacApiIO
from urllib3.exceptions import HTTPError

from eopipe.errors import BadInputError, RefusedError
from eopipe.fetch.addresses import PORTS, AddressGuard, GuardedSession
from eopipe.fetch.http import MAX_REDIRECTS, HostAuth, end_in_time
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


class RetryingStacIO(StacApiIO):
    """Reads JSON for pystac-client, only from the host of `home`, with retries for `deadline` seconds.

    Raises RefusedError for an address elsewhere, which would learn a login; UpstreamError when the server does not
    answer; BadInputError when it refuses.
    """

    def __init__(self, home: str, deadline: float) -> None:
        super().__init__()
        # The user named this host, and no other is queried.
        self.home, self.session = home, GuardedSession(AddressGuard([urlsplit(home).hostname or ""]))
        self.session.auth = HostAuth()
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
                return self._attempt(budget, verb, href, **content)
            except TransientError as error:
                budget.back_off(error, progressed=False)

    def _attempt(self, budget: RetryBudget, verb: str, href: str, **content: Any) -> str:
        """The text of a response. Raises TransientError where the next attempt may succeed."""
        attempts = f"{budget.failures + 1} attempts"
        try:
            with self._follow(budget, verb, href, **content) as response, end_in_time(response, budget):
                code = response.status_code
                if code in TRANSIENT:
                    wait = retry_after(response.headers.get("Retry-After", ""))
                    raise TransientError(f"status {code}, {attempts}", wait)
                body = _body(response, budget)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
            raise BadInputError(f"{budget.host} cannot be queried: {type(error).__name__}") from error
        except (requests.RequestException, HTTPError) as error:
            budget.remaining()
            raise TransientError(f"{_reason(error)}, {attempts}") from error
        if code >= 400:
            raise BadInputError(f"{budget.host} refused the search with status {code}: {body[:200]}")
        return _whole(body, attempts)

    def _follow(self, budget: RetryBudget, verb: str, href: str, **content: Any) -> requests.Response:
        """The response after all redirects, whose bodies are not read."""
        for _ in range(MAX_REDIRECTS):
            response = self.session.request(
                verb, href, stream=True, allow_redirects=False, timeout=budget.timeout(), **content
            )
            if not response.is_redirect:
                return response
            response.close()
            href = keep_https(self.home, urljoin(href, response.headers["Location"]))
            check_same_host(self.home, href)
            becomes_get = response.status_code == 303 or (verb == "POST" and response.status_code in (301, 302))
            verb = "GET" if becomes_get else verb
            # The address of a redirect has its parameters.
            content = {key: value for key, value in content.items() if key == "headers" or verb == "POST"}
        raise BadInputError(f"{budget.host} cannot be queried: it redirects more than {MAX_REDIRECTS} times")


def _whole(body: str, attempts: str) -> str:
    """A response as it is. Raises TransientError for JSON that is cut: without a length nothing else shows it."""
    if body.lstrip()[:1] in ("{", "["):
        try:
            json.loads(body)
        except RecursionError as error:
            raise BadInputError("the JSON response is nested too deeply to be STAC") from error
        except ValueError as error:
            raise TransientError(f"the JSON response is truncated, {attempts}") from error
    return body


def _body(response: requests.Response, budget: RetryBudget) -> str:
    """The text of a response of limited size."""
    body = bytearray()
    # As the bytes arrive, since a large chunk of a body that trickles would never come.
    chunks = iter(lambda: response.raw.read1(CHUNK, decode_content=True) or b"", b"")
    for chunk in guard_rate(chunks, budget):
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
