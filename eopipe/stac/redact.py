"""Addresses without the secrets that open them for a while, so that a list can be kept and shared."""

from urllib.parse import parse_qsl, urlencode, urlsplit

# Parameters that sign an address or let somebody in: AWS, Azure, Google, CloudFront, and plain tokens.
SIGNED = ("sig", "signature", "x-amz-signature", "x-goog-signature")
SECRET = ("token", "access_token", "api_key", "apikey", "api-key", "subscription-key", "key-pair-id", "policy")
AZURE = ("sv", "st", "se", "sr", "sp", "spr", "sip", "skoid", "sktid", "skt", "ske", "sks", "skv", "sdd")
WITH_SIGNATURE = (*AZURE, "expires", "awsaccesskeyid", "googleaccessid")


def unsigned(href: str) -> str:
    """An address without the parameters that sign it, without name and password.

    >>> unsigned("https://host.org/a.tif?v=2&se=2026-01-01&sig=abc")
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
