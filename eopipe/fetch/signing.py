"""Addresses that are open only with a signature that expires: Planetary Computer's."""

import threading
from urllib.parse import parse_qsl, urlencode, urlsplit

import requests

from eopipe.errors import UsageError
from eopipe.fetch.retry import Again, FetchSession, Patience

BLOBS = ".blob.core.windows.net"
# The Planetary Computer's own open container; every other of its containers wants a signature.
OPEN = "ai4edatasetspublicassets" + BLOBS
TOKEN_TIMEOUT = 60.0
_one_at_a_time = threading.Lock()


class Address:
    """Where an asset is asked for: signed at the last moment and never written down."""

    def __init__(self, href: str, terms: FetchSession) -> None:
        self.href = href
        self.host = urlsplit(href).hostname or ""
        known = self.host.endswith(BLOBS) and self.host != OPEN
        self.signed = terms.sign == "planetary-computer" or (terms.sign == "auto" and known)
        self.token, self.renewed = "", False

    def url(self, patience: Patience) -> str:
        """The address to ask, signed where it has to be.

        Raises UsageError without the package for it, UpstreamError when no signature is given.
        """
        if not self.signed or urlsplit(self.href).query:
            return self.href
        account, container = self.host.partition(".")[0], urlsplit(self.href).path.split("/")[1]
        with _one_at_a_time:
            self.token = _token(account, container, patience)
        return f"{self.href}?{self.token}"

    def check(self, response: requests.Response) -> None:
        """Raise Again where the signature has expired: once, since a new one that is refused too is no use."""
        expired = self.signed and response.status_code == 403 and not self.renewed
        self.renewed = expired
        if expired:
            with _one_at_a_time:
                _forget(self.token)
            raise Again("the signature has expired", 1e-3)


def _forget(token: str) -> None:
    """Drop a token from the package's cache, unless another thread has put a newer one there."""
    from planetary_computer.sas import TOKEN_CACHE  # type: ignore[import-untyped]

    for place in [place for place, kept in TOKEN_CACHE.items() if kept.token == token]:
        del TOKEN_CACHE[place]


def _token(account: str, container: str, patience: Patience) -> str:
    """A token of a container, from the package's cache or from its server."""
    try:
        from planetary_computer.sas import get_token
    except ModuleNotFoundError as error:
        raise UsageError(f"{patience.where} has to be signed: pip install 'eopipe[planetary]'") from error
    came: list[str] = []
    failed: list[Exception] = []

    def ask() -> None:
        try:
            came.append(get_token(account, container, retry_total=3).token)
        except Exception as error:  # noqa: BLE001 - told in the thread that waits
            failed.append(error)

    # The package sets no timeout, so a thread that is not waited for asks.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(min(TOKEN_TIMEOUT, patience.left()))
    if came:
        return came[0]
    why = type(failed[0]).__name__ if failed else f"no answer in {TOKEN_TIMEOUT:.0f} s"
    raise patience.lost(f"no signature for {container}: {why}")


# Parameters that sign an address or let somebody in: AWS, Azure, Google, CloudFront, and plain tokens.
SIGNED = ("sig", "signature", "x-amz-signature", "x-goog-signature")
SECRET = ("token", "access_token", "api_key", "apikey", "api-key", "subscription-key", "key-pair-id", "policy")
AZURE = ("sv", "st", "se", "sr", "sp", "spr", "sip", "skoid", "sktid", "skt", "ske", "sks", "skv", "sdd")
WITH_SIGNATURE = (*AZURE, "expires", "awsaccesskeyid", "googleaccessid")


def redact_href(href: str) -> str:
    """An address without the parameters that sign it, without name and password.

    >>> redact_href("https://host.org/a.tif?v=2&se=2026-01-01&sig=abc")
    'https://host.org/a.tif?v=2'
    """
    parts = urlsplit(href)
    if not parts.query and "@" not in parts.netloc:
        return href
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    signed = any(name.lower() in SIGNED for name, _ in pairs)
    kept = [(name, value) for name, value in pairs if not _is_secret(name.lower(), signed)]
    query = parts.query if len(kept) == len(pairs) else urlencode(kept)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query).geturl()


def _is_secret(name: str, signed: bool) -> bool:
    return (
        name in SIGNED
        or name in SECRET
        or name.startswith(("x-amz-", "x-goog-"))
        or (signed and name in WITH_SIGNATURE)
    )
