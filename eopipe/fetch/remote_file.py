"""A file on a web server or in a bucket, which is requested in ranges of one version."""

from contextlib import AbstractContextManager
from typing import Protocol

from eopipe.fetch.retry import FetchSession, RangeResponse, RetryBudget
from eopipe.scenes.item import scheme


class RemoteFile(Protocol):
    """A file on a server."""

    @property
    def host(self) -> str:
        """The server's name, for messages."""

    def request(
        self, first: int, stop: int | None, tag: str, budget: RetryBudget
    ) -> AbstractContextManager[RangeResponse]:
        """Request the bytes from `first` up to `stop`, or up to the end, of the version with this ETag.

        Raises TransientError when another attempt may succeed, ChangedError for another version, BadInputError when
        the file could not be fetched, RefusedError when the response is not safe.
        """


def remote_file(href: str, label: str, session: FetchSession) -> RemoteFile:
    """The file of an http(s) or s3 address; the module for its kind is imported only now."""
    if scheme(href) == "s3":
        from eopipe.fetch.s3 import S3File

        return S3File(href, label, session)
    from eopipe.fetch.http import HttpFile

    return HttpFile(href, session)
