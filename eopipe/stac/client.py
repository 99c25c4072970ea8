"""pystac-client's reader, made patient, bounded, and faithful to one host."""

import json
import time
from collections import Counter
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from pystac_client.stac_api_io import StacApiIO

from eopipe.errors import BadInputError, RefusedError
from eopipe.fetch.http import HostAuth
from eopipe.fetch.retry import FetchSession, RetryBudget, TransientError, guard_rate, retry_after

RETRY_CODES = (408, 425, 429, 500, 502, 503, 504)
# One answer, unpacked; a compressed bomb ends here.
MOST = 1 << 28
BLOCK = 1 << 16
# What urllib3 says, and what it means.
REASONS = {
    "Failed to resolve": "no host of this name",
    "timed out": "no answer in time",
    "refused": "connection refused",
    "reset": "connection reset",
    "IncompleteRead": "the answer broke off",
    "Remote end closed": "connection closed",
}


class Faithful(requests.Session):
    """A session that follows no redirect to another host; the user's login goes only to the own one."""

    def __init__(self, home: str) -> None:
        super().__init__()
        self.home, self.auth = home, HostAuth()

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Where an answer leads. Raises RefusedError when that is another host."""
        target = super().get_redirect_target(resp)
        if target:
            insist_home(self.home, urljoin(resp.url, target))
        return target


class Reader(StacApiIO):
    """Reads JSON for pystac-client, only from the host of `home`, again and again for `deadline` seconds.

    Raises RefusedError for an address elsewhere, so that a login goes nowhere else; UpstreamError when the
    server does not answer; BadInputError when it refuses.
    """

    def __init__(self, home: str, deadline: float) -> None:
        super().__init__()
        self.home, self.session = home, Faithful(home)
        self.pages: Counter[str] = Counter()
        self.terms, self.ends = FetchSession(deadline=deadline), time.monotonic() + deadline

    def request(
        self,
        href: str,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> str:
        """The text of an answer."""
        href = secured(self.home, href)
        insist_home(self.home, href)
        path = urlsplit(href).path
        self.pages[path] += 1
        where = f"page {self.pages[path]} of {path}"
        budget = RetryBudget(where, urlsplit(href).hostname or "", self.terms, self.ends)
        verb = (method or "GET").upper()
        told = {"json" if verb == "POST" else "params": parameters, "headers": headers}
        while True:
            try:
                return _attempt(self.session, budget, verb, href, **told)
            except TransientError as error:
                budget.back_off(error, progressed=False)


def _attempt(session: requests.Session, budget: RetryBudget, verb: str, href: str, **told: Any) -> str:
    """The text of an answer. Raises TransientError where the next try may be better."""
    tries = f"{budget.failures + 1} tries"
    try:
        with session.request(verb, href, stream=True, timeout=budget.timeout(), **told) as response:
            code = response.status_code
            if code in RETRY_CODES:
                raise TransientError(f"status {code}, {tries}", retry_after(response.headers.get("Retry-After", "")))
            body = _body(response, budget)
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.TooManyRedirects) as error:
        raise BadInputError(f"{budget.host} cannot be asked: {type(error).__name__}") from error
    except requests.RequestException as error:
        raise TransientError(f"{_reason(error)}, {tries}") from error
    if code >= 400:
        raise BadInputError(f"{budget.host} refused the search with status {code}: {body[:200]}")
    return _whole(body, tries)


def _whole(body: str, tries: str) -> str:
    """A response as it is. Raises TransientError for JSON that is cut: without a length nothing else shows it."""
    if body.lstrip()[:1] in ("{", "["):
        try:
            json.loads(body)
        except ValueError as error:
            raise TransientError(f"the answer is cut in the middle of JSON, {tries}") from error
    return body


def _body(response: requests.Response, budget: RetryBudget) -> str:
    """The text of an answer of bearable size."""
    body = bytearray()
    for block in guard_rate(response.iter_content(BLOCK), budget):
        body += block
        if len(body) > MOST:
            raise RefusedError(f"{budget.host} answers the search with more than {MOST >> 20} MiB in one piece")
    return body.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    """What went wrong in a few words, without the address."""
    return next((told for word, told in REASONS.items() if word in str(error)), type(error).__name__)


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
