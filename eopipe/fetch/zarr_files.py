"""Files of a Zarr store, on disk or on a server, as a store of zarr.

zarr decodes chunks but opens no address: it reads files through the requests of this package, with their retries,
signatures and checks.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from eopipe.errors import MissingFileError, RefusedError
from eopipe.fetch.range_reader import MAX_BLOCK, LocalRangeReader, RangeReader, ServerRangeReader
from eopipe.fetch.remote_file import remote_file
from eopipe.fetch.retry import ChangedError, FetchSession, RetryBudget, TransientError, retry

# Names of the files that describe nodes; all others are chunks.
METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
MAX_METADATA = 1 << 26


class StoreFiles(Protocol):
    """The files of a store; `missing` counts the chunks that were requested and do not exist."""

    label: str
    missing: int

    def whole(self, key: str) -> bytes | None:
        """A whole file; None where it does not exist."""

    def reader(self, key: str) -> RangeReader | None:
        """What reads ranges of a file; None where it does not exist."""


class LocalFiles:
    """The files of a store in a catalog on disk."""

    def __init__(self, folder: Path, root: Path, label: str) -> None:
        self.folder, self.root, self.label, self.missing = folder, root, label, 0

    def whole(self, key: str) -> bytes | None:
        """A whole file; None where it does not exist."""
        reader = self.reader(key)
        if reader is None:
            return None
        _check_length(reader.size, key, self.label)
        return reader.read(0, reader.size)

    def reader(self, key: str) -> RangeReader | None:
        """What reads ranges of a file; None where it does not exist."""
        file = (self.folder / key).resolve()
        if not file.is_relative_to(self.root):
            raise RefusedError(f"{self.label} has the file {key!r}, outside the catalog")
        return LocalRangeReader(file, self.label) if file.is_file() else None

    def names(self, prefix: str) -> list[str]:
        """The names in a folder of the store."""
        folder = (self.folder / prefix).resolve()
        is_inside = folder.is_relative_to(self.root) and folder.is_dir()
        return sorted(path.name for path in folder.iterdir()) if is_inside else []


class ServerFiles:
    """The files of a store on a web server or in a bucket."""

    def __init__(self, address: str, label: str, session: FetchSession) -> None:
        self.parts, self.label, self.session, self.missing = urlsplit(address), label, session, 0
        self.deadline = session.clock.now() + session.deadline

    def whole(self, key: str) -> bytes | None:
        """A whole file, requested again where the connection breaks; None where it does not exist."""
        file = remote_file(self._address(key), self.label, self.session)
        budget, data = RetryBudget(self.label, file.host, self.session, self.deadline), bytearray()

        def attempt() -> None:
            data.clear()
            try:
                with file.request(0, None, "", budget) as response:
                    for chunk in response.body:
                        data.extend(chunk)
                        _check_length(len(data), key, self.label)
            except ChangedError:
                raise TransientError("the file on the server has changed") from None
            if response.total is not None and len(data) != response.total:
                raise TransientError(f"{len(data)} of {response.total} bytes arrived")

        try:
            # No attempt continues another, so none counts as progress.
            retry(attempt, lambda: 0, budget)
        except MissingFileError:
            return None
        return bytes(data)

    def reader(self, key: str) -> RangeReader | None:
        """What reads ranges of a file; None where it does not exist."""
        try:
            return ServerRangeReader(self._address(key), self.label, self.session)
        except MissingFileError:
            return None

    def _address(self, key: str) -> str:
        return self.parts._replace(path=f"{self.parts.path.rstrip('/')}/{key}").geturl()


def _check_length(length: int, key: str, label: str) -> None:
    is_metadata = key.rpartition("/")[2] in METADATA
    if length > (MAX_METADATA if is_metadata else MAX_BLOCK):
        raise RefusedError(f"{label} has the file {key} of more than {length - 1} bytes, which no scene has")


class FileStore(Store):
    """Files that are read through the requests of this package."""

    supports_writes = supports_deletes = supports_partial_writes = False

    def __init__(self, files: StoreFiles) -> None:
        super().__init__(read_only=True)
        self.files = files
        self._readers: dict[str, RangeReader | None] = {}

    @property
    def supports_listing(self) -> bool:
        """Whether names are known: not those of a server."""
        return isinstance(self.files, LocalFiles)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return "the store"

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """The bytes of a file or of a range of it; None where it does not exist."""
        data = await asyncio.to_thread(self._read, key, byte_range)
        return None if data is None else prototype.buffer.from_bytes(data)

    def _read(self, key: str, byte_range: Any) -> bytes | None:
        data = self.files.whole(key) if byte_range is None else self._range(key, byte_range)
        if data is None and key.rpartition("/")[2] not in METADATA:
            self.files.missing += 1
        return data

    def _range(self, key: str, byte_range: Any) -> bytes | None:
        if key not in self._readers:
            # The first bytes of few shards are in memory at a time.
            for name in list(self._readers)[:-16]:
                self._readers.pop(name, None)
            self._readers[key] = self.files.reader(key)
        reader = self._readers.get(key)
        if reader is None:
            return None
        start, length = 0, reader.size
        if isinstance(byte_range, RangeByteRequest):
            start, length = byte_range.start, byte_range.end - byte_range.start
        elif isinstance(byte_range, OffsetByteRequest):
            start = byte_range.offset
        elif isinstance(byte_range, SuffixByteRequest):
            start = max(0, reader.size - byte_range.suffix)
        _check_length(min(length, reader.size - start), key, self.files.label)
        return reader.read(start, length)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """The bytes of ranges of files."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Whether there is such a file."""
        return await asyncio.to_thread(self.files.whole, key) is not None

    async def set(self, key: str, value: Any) -> None:
        """Nothing is written."""
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        """Nothing is deleted."""
        raise NotImplementedError

    async def list(self) -> AsyncIterator[str]:
        """Not known."""
        raise NotImplementedError
        yield

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:  # noqa: ARG002 - a name of the base class
        """Not known."""
        raise NotImplementedError
        yield

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names in a folder."""
        for name in self.files.names(prefix) if isinstance(self.files, LocalFiles) else []:
            yield name
