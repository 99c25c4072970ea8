"""Reads byte ranges of a file on a server or in a catalog on disk; all of them are of one version."""

import os
from pathlib import Path
from typing import Protocol

from eopipe.errors import BadInputError, RefusedError
from eopipe.fetch.remote_file import remote_file
from eopipe.fetch.retry import ChangedError, FetchSession, RangeResponse, RetryBudget, TransientError, retry
from eopipe.scenes.item import safe_href, scheme

# The directory of a cloud-optimised GeoTIFF mostly fits into the first response.
FIRST_READ = 1 << 16


class RangeReader(Protocol):
    """Reads any range of a file of `size` bytes; `version` is its strong ETag, or nothing where it has none."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    @property
    def version(self) -> str:
        """The strong ETag of the version that is read, or nothing where the server has none."""

    def read(self, start: int, length: int) -> bytes:
        """The bytes from `start`; fewer than `length` only at the end of the file. Safe in many threads.

        Raises UpstreamError when the server does not deliver or the file changes meanwhile.
        """


def open_range_reader(
    href: str, label: str, session: FetchSession | None = None, catalog: Path | None = None
) -> RangeReader:
    """Open the file of an http(s) or s3 address, or of a path inside the catalog, to read ranges of it.

    Raises RefusedError (address), BadInputError (missing, no ranges), UpstreamError (server).
    """
    if scheme(safe_href(href, label)):
        return ServerRangeReader(href, label, session or FetchSession())
    return LocalRangeReader(catalog_file(href, label, catalog))


def catalog_file(href: str, label: str, catalog: Path | None) -> Path:
    """The file of a relative path. Raises BadInputError when it is missing, RefusedError outside the catalog."""
    if catalog is None:
        raise BadInputError(f"{label} has the relative path {href}; name its catalog folder")
    file = (catalog / href).resolve()
    if not file.is_relative_to(catalog.resolve()):
        raise RefusedError(f"{label} points to {href!r}, outside the catalog")
    if not file.is_file():
        raise BadInputError(f"{label} is missing: there is no {href} in {catalog}")
    return file


class LocalRangeReader:
    """A file on this disk."""

    version = ""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, path.stat().st_size

    def read(self, start: int, length: int) -> bytes:
        """The bytes from `start`, fewer than `length` at the end."""
        with self.path.open("rb") as file:
            return os.pread(file.fileno(), length, start)


class ServerRangeReader:
    """A file on a server that serves ranges."""

    def __init__(self, href: str, label: str, session: FetchSession) -> None:
        self.label, self.session = label, session
        self.file = remote_file(href, label, session)
        self.size, self.version, self.modified = 0, "", ""
        self.deadline = self._budget().deadline
        self.first_bytes = self._read(0, FIRST_READ)

    def read(self, start: int, length: int) -> bytes:
        """The bytes from `start`, fewer than `length` at the end."""
        stop = min(start + length, self.size)
        if stop <= len(self.first_bytes):
            return self.first_bytes[start:stop]
        return self._read(start, stop) if start < stop else b""

    def _budget(self, deadline: float = 0.0) -> RetryBudget:
        return RetryBudget(self.label, self.file.host, self.session, deadline)

    def _read(self, start: int, stop: int) -> bytes:
        data, budget = bytearray(), self._budget(self.deadline)
        try:
            retry(lambda: self._attempt(data, start, stop, budget), lambda: len(data), budget)
        except ChangedError:
            raise budget.exhausted("the file changed while ranges of it were read") from None
        return bytes(data)

    def _attempt(self, data: bytearray, start: int, stop: int, budget: RetryBudget) -> None:
        with self.file.request(start + len(data), stop, self.version, budget) as response:
            self._check_version(response, start + len(data))
            stop = min(stop, self.size)
            for chunk in response.body:
                data += chunk[: stop - start - len(data)]
                if start + len(data) == stop:
                    return
        # A response may be shorter than the requested range.
        raise TransientError(f"{len(data)} of {stop - start} bytes arrived")

    def _check_version(self, response: RangeResponse, first: int) -> None:
        """Note the version of the first response; all later ones have to be of the same."""
        if response.start != first or response.total is None:
            raise BadInputError(f"{self.label} cannot be read in ranges: {self.file.host} serves whole files only")
        if not self.size:
            self.size, self.version, self.modified = response.total, response.tag, response.modified
        elif (response.total, response.tag, response.modified) != (self.size, self.version, self.modified):
            raise ChangedError
