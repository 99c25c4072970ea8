"""Signed URLs: signatures of the Planetary Computer for requests, and hrefs without any secret for what is kept.

Internals of other packages that this module uses; `check_planetary_computer` looks for them before the first signature:

| what | why | versions |
|---|---|---|
| `planetary_computer.sas.TOKEN_CACHE`: entries are removed | a token that expired early is requested again | 1.x |
| `planetary_computer.sas.get_token` runs in a thread that is not waited for | it has no timeout | 1.x |
"""

import re
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from eopipe.errors import UsageError
from eopipe.fetch.retry import FetchSession, RetryBudget, TransientError

if TYPE_CHECKING:
    import requests

BLOBS = ".blob.core.windows.net"
# The Planetary Computer's own open container; all its other containers need a signature.
OPEN = "ai4edatasetspublicassets" + BLOBS
TOKEN_TIMEOUT = 60.0
# Parameters that sign a URL or let somebody in: AWS, Azure, Google, CloudFront, and plain tokens.
SIGNATURE = ("sig", "signature", "x-amz-signature", "x-goog-signature")
SECRET = ("token", "access_token", "api_key", "apikey", "api-key", "subscription-key", "key-pair-id", "policy")
AZURE = ("sv", "st", "se", "sr", "sp", "spr", "sip", "skoid", "sktid", "skt", "ske", "sks", "skv", "sdd")
WITH_SIGNATURE = (*AZURE, "expires", "awsaccesskeyid", "googleaccessid")
# The package keeps its tokens in one dictionary for the whole process.
_token_lock = threading.Lock()


class SignedUrl:
    """The URL of an asset: signed when it is requested, and never written down."""

    def __init__(self, href: str, session: FetchSession) -> None:
        self.href = href
        self.host = urlsplit(href).hostname or ""
        is_known = self.host.endswith(BLOBS) and self.host != OPEN
        self.needs_signature = session.sign == "planetary-computer" or (session.sign == "auto" and is_known)
        self.token, self.renewed = "", False

    def signed(self, budget: RetryBudget) -> str:
        """The URL to request, with a signature where it needs one.

        Raises UsageError without the package for it, UpstreamError when no signature arrives.
        """
        if not self.needs_signature or urlsplit(self.href).query:
            return self.href
        account, container = self.host.partition(".")[0], urlsplit(self.href).path.split("/")[1]
        with _token_lock:
            self.token = _token(account, container, budget)
        return f"{self.href}?{self.token}"

    def check(self, response: "requests.Response") -> None:
        """Raise TransientError where the signature has expired: once, since a second refusal has another cause."""
        expired = self.needs_signature and response.status_code == 403 and not self.renewed
        self.renewed = expired
        if expired:
            with _token_lock:
                _forget(self.token)
            raise TransientError("the signature has expired", 1e-3)


def check_planetary_computer(label: str) -> Any:
    """The module `planetary_computer.sas`. Raises UsageError without it, or without what the table above names."""
    try:
        sas: Any = import_module("planetary_computer.sas")
    except ModuleNotFoundError as error:
        raise UsageError(f"{label} needs a signed URL: pip install 'eopipe[planetary]'") from error
    if not isinstance(getattr(sas, "TOKEN_CACHE", None), dict) or not callable(getattr(sas, "get_token", None)):
        raise UsageError(
            f"{label} needs a signed URL, but this version of planetary-computer stores its tokens in another way; "
            "install planetary-computer>=1.0,<2"
        )
    return sas


def _forget(token: str) -> None:
    """Remove a token from the package's cache, unless another thread has put a newer one there."""
    cache = check_planetary_computer("an asset").TOKEN_CACHE
    for key in [key for key, entry in cache.items() if entry.token == token]:
        del cache[key]


def _token(account: str, container: str, budget: RetryBudget) -> str:
    """A token for a container, from the package's cache or from its server."""
    sas = check_planetary_computer(budget.label)
    tokens: list[str] = []
    errors: list[Exception] = []

    def request() -> None:
        try:
            tokens.append(sas.get_token(account, container, retry_total=3).token)
        except Exception as error:  # noqa: BLE001 - reported by the thread that waits
            errors.append(error)

    # The package sets no timeout, so the request runs in a thread that can be abandoned.
    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(min(TOKEN_TIMEOUT, budget.remaining()))
    if tokens:
        return tokens[0]
    reason = type(errors[0]).__name__ if errors else f"no response in {TOKEN_TIMEOUT:.0f} s"
    raise budget.exhausted(f"no signature for {container}: {reason}")


def redact_href(href: str) -> str:
    """An href without the parameters that sign it, and without user name and password.

    >>> redact_href("https://host.org/a.tif?v=2&se=2026-01-01&sig=abc")
    'https://host.org/a.tif?v=2'
    """
    try:
        parts = urlsplit(href)
    except ValueError:
        # What is not an address cannot be requested; it can still hold a login.
        return re.sub(r"//[^/]*@", "//", href.partition("?")[0])
    if not parts.query and "@" not in parts.netloc:
        return href
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    is_signed = any(name.lower() in SIGNATURE for name, _ in pairs)
    public = [(name, value) for name, value in pairs if not _is_secret(name.lower(), is_signed=is_signed)]
    query = parts.query if len(public) == len(pairs) else urlencode(public)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query).geturl()


def _is_secret(name: str, *, is_signed: bool) -> bool:
    return (
        name in SIGNATURE
        or name in SECRET
        or name.startswith(("x-amz-", "x-goog-"))
        or (is_signed and name in WITH_SIGNATURE)
    )
