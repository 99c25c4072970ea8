"""Where a file comes from: a server that gives it from any byte on, and says which version it is."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from eopipe.fetch.retry import Patience, Terms
from eopipe.scenes.item import scheme


class Changed(Exception):  # noqa: N818 - an event, no error that a user meets
    """The server has another version of the file than the one that was begun, or answered with another part."""


@dataclass(frozen=True)
class Reply:
    """Bytes of a file from `start` on; its length in bytes and strong ETag, each empty where it is not told."""

    start: int
    total: int | None
    tag: str
    changed: str
    body: Iterator[bytes]


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


def source_of(href: str, where: str, terms: Terms) -> Source:
    """The server that an http(s) or s3 address names; a module is loaded only for addresses of its kind."""
    if scheme(href) == "s3":
        from eopipe.fetch.s3 import S3Source

        return S3Source(href, where)
    from eopipe.fetch.http import WebSource

    return WebSource(href, terms)
