"""Files of a Zarr store, on disk or on a server, as a store of zarr.

zarr decodes chunks but opens no address: it reads files through the requests of this package, with their retries,
signatures and checks. A store is many files that nothing holds together, so the version of each one that was read is
kept and compared with what is there at the end.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from eopipe.errors import MissingFileError, RefusedError, UpstreamError
from eopipe.fetch.range_reader import (
    MAX_BLOCK,
    WORKERS,
    LocalRangeReader,
    RangeReader,
    ServerRangeReader,
    catalog_file,
    catalog_root,
    remote_file,
)
from eopipe.fetch.retry import ChangedError, FetchSession, RetryBudget, TransientError, retry
from eopipe.fetch.zarr_place import METADATA, store_and_path
from eopipe.scenes.item import safe_href, scheme

MAX_METADATA = 1 << 26


class LocalFiles:
    """The files of a store in a catalog on disk.

    A version is a text that another content of the file has not; None is a missing file.
    """

    def __init__(self, folder: Path, root: Path, label: str) -> None:
        self.folder, self.root, self.label = folder, root, label

    def whole(self, key: str) -> tuple[bytes | None, str | None]:
        """A whole file and its version."""
        reader, version = self.reader(key)
        if reader is None:
            return None, None
        _check_length(reader.size, key, self.label)
        return reader.read(0, reader.size), version

    def version(self, key: str) -> str | None:
        """The present version of a file."""
        return self.reader(key)[1]

    def reader(self, key: str) -> tuple[RangeReader | None, str | None]:
        """What reads ranges of a file, and its version."""
        file = (self.folder / key).resolve()
        if not file.is_relative_to(self.root):
            raise RefusedError(f"{self.label} has the file {key!r}, outside the catalog")
        if not file.is_file():
            return None, None
        reader = LocalRangeReader(file, self.label)
        status = reader.status
        return reader, f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"

    def names(self, prefix: str) -> list[str]:
        folder = (self.folder / prefix).resolve()
        is_inside = folder.is_relative_to(self.root) and folder.is_dir()
        return sorted(path.name for path in folder.iterdir()) if is_inside else []


class ServerFiles:
    """The files of a store on a web server or in a bucket."""

    def __init__(self, address: str, label: str, session: FetchSession) -> None:
        self.parts, self.label, self.session = urlsplit(address), label, session
        self.deadline = session.clock.now() + session.deadline

    def version(self, key: str) -> str | None:
        return self.whole(key, 1)[1]

    def whole(self, key: str, stop: int | None = None) -> tuple[bytes | None, str | None]:
        """A file, requested again where the connection breaks, and its version; only up to `stop` if that has one."""
        file = remote_file(self._address(key), self.label, self.session)
        budget, data = RetryBudget(self.label, file.host, self.session, self.deadline), bytearray()
        version = ""

        def attempt() -> None:
            nonlocal version
            data.clear()
            try:
                with file.request(0, stop, "", budget) as response:
                    if (version := response.tag or response.modified) and stop:
                        return
                    for chunk in response.body:
                        data.extend(chunk)
                        _check_length(len(data), key, self.label)
            except ChangedError:
                raise TransientError("the file on the server has changed") from None
            if not stop and response.total is not None and len(data) != response.total:
                raise TransientError(f"{len(data)} of {response.total} bytes arrived")

        try:
            # No attempt continues another, so none counts as progress.
            retry(attempt, lambda: 0, budget)
        except MissingFileError:
            return None, None
        if stop and not version:
            return self.whole(key)
        return bytes(data), version or hashlib.sha256(data).hexdigest()

    def reader(self, key: str) -> tuple[RangeReader | None, str | None]:
        try:
            reader = ServerRangeReader(self._address(key), self.label, self.session)
        except MissingFileError:
            return None, None
        # A file without either is short, and was read whole.
        return reader, reader.version or reader.modified or hashlib.sha256(reader.first_bytes).hexdigest()

    def _address(self, key: str) -> str:
        return self.parts._replace(path=f"{self.parts.path.rstrip('/')}/{key}").geturl()


def changed_error(label: str, key: str) -> UpstreamError:
    """The error for a store that is written while it is read."""
    return UpstreamError(
        f"{label} is of a Zarr store that was written while it was fetched ({key} changed), so that two versions could "
        "be mixed; run the same command again"
    )


def _check_length(length: int, key: str, label: str) -> None:
    is_metadata = key.rpartition("/")[2] in METADATA
    if length > (MAX_METADATA if is_metadata else MAX_BLOCK):
        raise RefusedError(f"{label} has the file {key} of more than {length - 1} bytes, which no scene has")


class FileStore(Store):
    """Files that are read through the requests of this package; `versions` has the version of each requested file.

    Raises UpstreamError where a file has another version than when it was read before.
    """

    supports_writes = supports_deletes = supports_partial_writes = False

    def __init__(self, files: LocalFiles | ServerFiles) -> None:
        super().__init__(read_only=True)
        self.files, self.versions = files, dict[str, str | None]()
        self._readers: dict[str, RangeReader | None] = {}

    @property
    def supports_listing(self) -> bool:
        """Whether names are known; a server does not list them."""
        return isinstance(self.files, LocalFiles)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return "the store"

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        data = await asyncio.to_thread(self._read, key, byte_range)
        return None if data is None else prototype.buffer.from_bytes(data)

    def _read(self, key: str, byte_range: Any) -> bytes | None:
        if byte_range is not None:
            return self._range(key, byte_range)
        data, version = self.files.whole(key)
        self._note(key, version)
        return data

    def _note(self, key: str, version: str | None) -> None:
        if self.versions.setdefault(key, version) != version:
            raise changed_error(self.files.label, key)

    def changed(self, versions: dict[str, str | None]) -> str:
        """A file that has another version now than these; empty where there is none."""
        with ThreadPoolExecutor(WORKERS) as pool:
            rows = zip(versions, pool.map(self.files.version, versions), strict=True)
            return next((key for key, version in rows if version != versions[key]), "")

    def _range(self, key: str, byte_range: Any) -> bytes | None:
        if key not in self._readers:
            # The first bytes of few shards are in memory at a time.
            for name in list(self._readers)[:-16]:
                self._readers.pop(name, None)
            self._readers[key], version = self.files.reader(key)
            self._note(key, version)
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
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        return await asyncio.to_thread(self._read, key, None) is not None

    async def set(self, key: str, value: Any) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError

    async def list(self) -> AsyncIterator[str]:
        raise NotImplementedError
        yield

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:  # noqa: ARG002 - a name of the base class
        raise NotImplementedError
        yield

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name in self.files.names(prefix) if isinstance(self.files, LocalFiles) else []:
            yield name


def open_store(asset: dict[str, Any], label: str, catalog: Path | None, session: FetchSession) -> tuple[FileStore, str]:
    """The store of an asset, to read, and the path of the asset in it.

    Raises RefusedError (address), BadInputError (missing).
    """
    href = safe_href(asset["href"], label)
    root, path = store_and_path(href) or _last_segment(href)
    if scheme(href):
        return FileStore(ServerFiles(root, label, session)), path
    folder = catalog_file(root, label, catalog, folder=True)
    return FileStore(LocalFiles(folder, catalog_root(catalog or folder), label)), path


def _last_segment(href: str) -> tuple[str, str]:
    """The address of the folder above, and the name in it."""
    parts = urlsplit(href)
    folder, _, name = parts.path.rstrip("/").rpartition("/")
    return parts._replace(path=folder).geturl(), name
