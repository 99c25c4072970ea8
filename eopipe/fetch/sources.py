"""Where a file comes from: a server that gives it from any byte on, and says which version it is."""

from contextlib import AbstractContextManager
from typing import Protocol

from eopipe.fetch.retry import FetchSession, Patience, Reply
from eopipe.scenes.item import scheme


class Source(Protocol):
    """A file on a server."""

    @property
    def host(self) -> str:
        """Who serves it, for messages."""

    def ask(self, first: int, stop: int | None, tag: str, patience: Patience) -> AbstractContextManager[Reply]:
        """Ask for the bytes from `first` up to `stop`, or up to the end, of the version with this tag.

        Raises Again when it is worth another try, Changed when the version is another one, BadInputError when the
        file cannot be had, RefusedError when the answer is not safe.
        """


def source_of(href: str, where: str, terms: FetchSession) -> Source:
    """The server that an http(s) or s3 address names; a module is loaded only for addresses of its kind."""
    if scheme(href) == "s3":
        from eopipe.fetch.s3 import S3Source

        return S3Source(href, where)
    from eopipe.fetch.http import WebSource

    return WebSource(href, terms)
