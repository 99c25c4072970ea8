"""A file that lies elsewhere, read in parts that are surely of one version."""

import os
from pathlib import Path
from typing import Protocol

from eopipe.errors import BadInputError, RefusedError
from eopipe.fetch.retry import Again, Changed, FetchSession, Patience, Reply, insist
from eopipe.fetch.sources import source_of
from eopipe.scenes.item import safe_href, scheme

# The directory of a cloud-optimised GeoTIFF mostly fits into the first answer.
HEAD = 1 << 16


class Remote(Protocol):
    """A file elsewhere: its length in bytes, its version (a strong ETag, or nothing), and any part of it."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    @property
    def version(self) -> str:
        """The strong ETag of the version that is read, or nothing where the server tells none."""

    def read(self, start: int, length: int) -> bytes:
        """The bytes from `start`; fewer than `length` only at the end of the file. Safe in many threads.

        Raises UpstreamError when the server does not deliver or the file changes meanwhile.
        """


def open_remote(href: str, where: str, terms: FetchSession | None = None, catalog: Path | None = None) -> Remote:
    """Open the file of an http(s) or s3 address, or of a path inside the catalog, to read parts of it.

    Raises RefusedError (address), BadInputError (missing, no ranges), UpstreamError (server).
    """
    kind = scheme(safe_href(href, where))
    return ServerRemote(href, where, terms or FetchSession()) if kind else FileRemote(inside(href, where, catalog))


def inside(href: str, where: str, catalog: Path | None) -> Path:
    """The file of a relative path. Raises BadInputError when it is missing, RefusedError outside the catalog."""
    if catalog is None:
        raise BadInputError(f"{where} has the relative path {href}; name its catalog folder")
    source = (catalog / href).resolve()
    if not source.is_relative_to(catalog.resolve()):
        raise RefusedError(f"{where} points to {href!r}, outside the catalog")
    if not source.is_file():
        raise BadInputError(f"{where} is missing: there is no {href} in {catalog}")
    return source


class FileRemote:
    """A file on this disk."""

    version = ""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, path.stat().st_size

    def read(self, start: int, length: int) -> bytes:
        """The bytes from `start`, fewer than `length` at the end."""
        with self.path.open("rb") as file:
            return os.pread(file.fileno(), length, start)


class ServerRemote:
    """A file on a server that serves ranges."""

    def __init__(self, href: str, where: str, terms: FetchSession) -> None:
        self.where, self.terms = where, terms
        self.source = source_of(href, where, terms)
        self.size, self.version, self.changed = 0, "", ""
        self.ends = self._patience().ends
        self.head = self._read(0, HEAD)

    def read(self, start: int, length: int) -> bytes:
        """The bytes from `start`, fewer than `length` at the end."""
        stop = min(start + length, self.size)
        if stop <= len(self.head):
            return self.head[start:stop]
        return self._read(start, stop) if start < stop else b""

    def _patience(self, ends: float = 0.0) -> Patience:
        return Patience(self.where, self.source.host, self.terms, ends)

    def _read(self, start: int, stop: int) -> bytes:
        got, patience = bytearray(), self._patience(self.ends)
        try:
            insist(lambda: self._attempt(got, start, stop, patience), lambda: len(got), patience)
        except Changed:
            raise patience.lost("the file changed while parts of it were read") from None
        return bytes(got)

    def _attempt(self, got: bytearray, start: int, stop: int, patience: Patience) -> None:
        with self.source.ask(start + len(got), stop, self.version, patience) as reply:
            self._check(reply, start + len(got))
            stop = min(stop, self.size)
            for block in reply.body:
                got += block[: stop - start - len(got)]
                if start + len(got) == stop:
                    return
        # An answer may be shorter than the range that was asked for.
        raise Again(f"{len(got)} of {stop - start} bytes came")

    def _check(self, reply: Reply, first: int) -> None:
        """Note the version of the first answer; all others have to be of the same."""
        if reply.start != first or reply.total is None:
            raise BadInputError(f"{self.where} cannot be read in parts: {self.source.host} serves whole files only")
        if not self.size:
            self.size, self.version, self.changed = reply.total, reply.tag, reply.changed
        elif (reply.total, reply.tag, reply.changed) != (self.size, self.version, self.changed):
            raise Changed
