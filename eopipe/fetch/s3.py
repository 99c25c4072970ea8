"""Files in S3 buckets; credentials, region and endpoint are read from the usual AWS_* variables."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import S3Store

from eopipe.errors import BadInputError, EopipeError, MissingFileError, UsageError
from eopipe.fetch.retry import (
    TIMEOUT,
    TRANSIENT,
    ChangedError,
    FetchSession,
    RangeResponse,
    RetryBudget,
    TransientError,
    guard_rate,
)

STATUS = re.compile(r"status code: (\d{3})")
# Any of these gives obstore credentials; without one, requests are anonymous.
CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


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
