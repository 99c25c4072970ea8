"""Files in S3 buckets; credentials, region and endpoint come from the usual AWS_* variables."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import S3Store

from eopipe.errors import BadInputError, EopipeError, UsageError
from eopipe.fetch.retry import BLOCK, TIMEOUT, Again, Changed, Patience, Reply, paced

STATUS = re.compile(r"status code: (\d{3})")
TRANSIENT = (408, 425, 429)
# Any of these tells obstore who the user is; without one, buckets are asked as anybody may.
CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


class S3Source:
    """An object in a bucket."""

    def __init__(self, href: str, where: str) -> None:
        parts = urlsplit(href)
        # A key may hold ? and #, which mean nothing in an s3 address.
        self.host, self.key, self.where = parts.netloc, href.partition("://")[2].partition("/")[2], where
        if not self.key:
            raise BadInputError(f"{where} points to the bucket {self.host}, not to a file in it")
        self.store = _store(self.host)

    @contextmanager
    def ask(self, first: int, stop: int | None, tag: str, patience: Patience) -> Iterator[Reply]:
        """Ask for the bytes from `first` up to `stop`, or up to the end, of the version with this tag."""
        options: dict[str, Any] = {"if_match": tag} if tag else {}
        if stop is not None:
            options["range"] = (first, stop)
        elif first:
            options["range"] = {"offset": first}
        with patience.terms.turn(self.host), _errors(self.where, self.host):
            patience.left()
            found = obstore.get(self.store, self.key, options=options)  # type: ignore[arg-type]
            body = paced(iter(found.stream(min_chunk_size=BLOCK)), patience)
            yield Reply(found.range[0], found.meta["size"], found.meta["e_tag"] or "", "", body)


def _store(bucket: str) -> S3Store:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    anonymous: dict[str, Any] = {} if any(map(os.environ.get, CREDENTIALS)) else {"skip_signature": True}
    try:
        return S3Store(
            bucket,
            # The pace and the deadline are ours: a large file may take longer than any time for one request.
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": f"{TIMEOUT[0]:g}s",
                "read_timeout": f"{TIMEOUT[1]:g}s",
                "timeout": "1d",
            },
            retry_config={"max_retries": 0},
            **anonymous,
        )
    except (BaseError, ValueError) as error:
        raise UsageError(f"the AWS_* variables do not name an S3 server for {bucket}: {type(error).__name__}") from None


@contextmanager
def _errors(where: str, bucket: str) -> Iterator[None]:
    """Say in our words what obstore's long errors mean; none of their text is shown, it can hold signatures."""
    try:
        yield
    except EopipeError:
        raise
    except FileNotFoundError:
        raise BadInputError(f"{where} cannot be had: there is no such file in the bucket {bucket}") from None
    except (PermissionDeniedError, UnauthenticatedError):
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REQUEST_PAYER=requester where readers pay"
        raise BadInputError(f"{where} cannot be had: the bucket {bucket} denies access; {hint}") from None
    except PreconditionError:
        raise Changed from None
    except BaseError as error:
        raise _meaning(str(error), where, bucket) from None


def _meaning(text: str, where: str, bucket: str) -> Exception:
    found = STATUS.search(text)
    code = int(found[1]) if found else 0
    # A server that has no ranges gives the whole file when it is not asked for a part.
    if code == 416 or "non-partial response" in text:
        return Changed()
    if "incorrectly configured region" in text or code == 301:
        return BadInputError(f"{where} cannot be had: the bucket {bucket} is in another region; set AWS_REGION to it")
    if code >= 500 or code in TRANSIENT or not code:
        return Again(f"status {code}" if code else "the line broke")
    return BadInputError(f"{where} cannot be had: the bucket {bucket} answered {code}")
