"""Reads byte ranges of a file on a server or in a catalog on disk, all of one version; also as a file for GDAL."""

import io
import os
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.errors import BadInputError, IntegrityError, RefusedError, UpstreamError
from eopipe.fetch.retry import ChangedError, FetchSession, RangeResponse, RetryBudget, TransientError, retry
from eopipe.scenes.item import safe_href, scheme

if TYPE_CHECKING:
    from eopipe.fetch.http import RemoteFile

# The directory of a cloud-optimised GeoTIFF mostly fits into the first response.
FIRST_READ = 1 << 16
# Bytes of a page of the header, of a gap that costs less than one more request, of the longest request.
PAGE, GAP, LONGEST = 1 << 15, 1 << 15, 1 << 23
MAX_PAGES = 1 << 10
MAX_BLOCK = 1 << 28
WORKERS = 4
# First byte and number of bytes.
Range = tuple[int, int]
# The only name that GDAL can open.
NAME = "asset.tif"
# Filters of warnings belong to the process, so one thread at a time changes them.
_filter_lock = threading.Lock()


def open_range_reader(
    href: str, label: str, session: FetchSession | None = None, catalog: Path | None = None
) -> "RangeReader":
    """Open the file of an http(s) or s3 address, or of a path inside the catalog, to read ranges of it.

    Raises RefusedError (address), BadInputError (missing, no ranges), UpstreamError (server).
    """
    if scheme(safe_href(href, label)):
        return ServerRangeReader(href, label, session or FetchSession())
    return LocalRangeReader(catalog_file(href, label, catalog), label)


def catalog_file(href: str, label: str, catalog: Path | None, *, folder: bool = False) -> Path:
    """The file, or folder, of a relative path.

    Raises BadInputError when it is missing, RefusedError outside of the catalog.
    """
    if catalog is None:
        raise BadInputError(f"{label} has the relative path {href}; name its catalog folder")
    root = catalog_root(catalog)
    path = (root / href).resolve()
    if not path.is_relative_to(root):
        raise RefusedError(f"{label} points to {href!r}, outside the catalog")
    if not (path.is_dir() if folder else path.is_file()):
        kind = "folder " if folder else ""
        raise BadInputError(f"{label} is missing: there is no {kind}{href} in {root if catalog.is_file() else catalog}")
    return path


def catalog_root(catalog: Path) -> Path:
    """The folder that relative paths of a catalog start from: itself, or the folder of its file."""
    return (catalog.parent if catalog.is_file() else catalog).resolve()


class LocalRangeReader:
    """A file of `size` bytes on this disk; `version` is the strong ETag of one on a server that has it, else empty."""

    version = ""

    def __init__(self, path: Path, label: str = "") -> None:
        self.path, self.label, self.status = path, label or path.name, path.stat()
        self.size = self.status.st_size

    def read(self, start: int, length: int) -> bytes:
        """The bytes from `start`; fewer than `length` only at the end of the file. Safe in many threads.

        Raises UpstreamError when the server does not deliver or the file changes meanwhile.
        """
        with self.path.open("rb") as file:
            data = os.pread(file.fileno(), length, start)
            if not is_same_version(self.status, os.fstat(file.fileno())):
                raise UpstreamError(f"{self.label} changed while it was read; try again later")
        return data


def is_same_version(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether a file on this disk was neither replaced nor written to."""
    fields = ("st_ino", "st_size", "st_mtime_ns")
    return all(getattr(before, name) == getattr(after, name) for name in fields)


class ServerRangeReader:
    """A file on a server that serves ranges."""

    def __init__(self, href: str, label: str, session: FetchSession) -> None:
        self.label, self.session = label, session
        self.file = remote_file(href, label, session)
        self.size, self.version, self.modified = 0, "", ""
        self.deadline = session.clock.now() + session.deadline
        self.first_bytes = self._read(0, FIRST_READ)

    def read(self, start: int, length: int) -> bytes:
        stop = min(start + length, self.size)
        if stop <= len(self.first_bytes):
            return self.first_bytes[start:stop]
        return self._read(start, stop) if start < stop else b""

    def _read(self, start: int, stop: int) -> bytes:
        data, budget = bytearray(), RetryBudget(self.label, self.file.host, self.session, self.deadline)
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
        if self.size > FIRST_READ and not (self.version or self.modified):
            raise BadInputError(
                f"{self.label} cannot be read in ranges: {self.file.host} does not name the version of the file "
                "(ETag or Last-Modified), so that two could be mixed; fetch whole assets instead"
            )


RangeReader = LocalRangeReader | ServerRangeReader


class RangeCache:
    """What GDAL reads of a remote file: pages of its header are kept, blocks are prefetched.

    `error` is the first exception that GDAL met, since it cannot pass one on.
    """

    def __init__(self, reader: RangeReader, label: str) -> None:
        self.reader, self.label = reader, label
        self.error: BaseException | None = None
        self._is_header_read = False
        self._pages: dict[int, bytes] = {}
        self._blocks: dict[Range, bytes] = {}

    def read(self, start: int, length: int) -> bytes:
        """Bytes of the file. Raises what the reader raises, RefusedError for a header without an end."""
        for (first, size), data in self._blocks.items():
            if first <= start and start + length <= first + size:
                return data[start - first :][:length]
        if not length:
            return b""
        pages = self._page_numbers(start, length)
        if missing := [page for page in pages if page not in self._pages]:
            self._fetch_pages(missing[0], missing[-1] + 1)
        data = b"".join(self._pages[page] for page in pages)
        # A header has few pages, but a mask that is stored apart from the blocks may have many.
        for page in list(self._pages)[:-MAX_PAGES]:
            del self._pages[page]
        return data[start - pages.start * PAGE :][:length]

    def _page_numbers(self, start: int, length: int) -> range:
        return range(start // PAGE, -(-(start + length) // PAGE))

    def _fetch_pages(self, first: int, stop: int) -> None:
        if len(self._pages) + stop - first > MAX_PAGES and not self._is_header_read:
            raise RefusedError(f"{self.label} declares more than {MAX_PAGES * PAGE >> 20} MiB of tags")
        data = self.reader.read(first * PAGE, (stop - first) * PAGE)
        self._pages |= {first + at // PAGE: data[at : at + PAGE] for at in range(0, len(data), PAGE)}

    def prefetch(self, blocks: Iterable[Range]) -> None:
        """Fetch blocks that are read next, in as few requests as possible; forget the ones before.

        Raises IntegrityError for a file that ends before its blocks, RefusedError for a block of absurd size.
        """
        self._is_header_read = True
        blocks = sorted({(start, length) for start, length in blocks if length})
        if any(start + length > self.reader.size for start, length in blocks):
            size = self.reader.size
            raise IntegrityError(f"{self.label} is truncated or damaged: it has {size} bytes, its blocks need more")
        if any(length > MAX_BLOCK for _, length in blocks):
            raise RefusedError(f"{self.label} has a block of more than {MAX_BLOCK >> 20} MiB, which no scene has")
        missing = [block for block in blocks if not self._pages.keys() >= set(self._page_numbers(*block))]
        requests = _merged(missing)
        fresh = [request for request in requests if request not in self._blocks]
        with ThreadPoolExecutor(WORKERS) as pool:
            fetched = self._blocks | dict(zip(fresh, pool.map(self._fetch_whole, fresh), strict=True))
        self._blocks = {request: fetched[request] for request in requests}

    def _fetch_whole(self, request: Range) -> bytes:
        start, length = request
        data = self.reader.read(start, length)
        if len(data) != length:
            raise IntegrityError(f"{self.label} is truncated: {len(data)} of {length} bytes arrived at byte {start}")
        return data


def _merged(blocks: list[Range]) -> list[Range]:
    """Blocks in the order of the file, neighbours merged into one request."""
    requests: list[Range] = []
    for start, length in blocks:
        if requests:
            first, size = requests[-1]
            stop = max(first + size, start + length)
            if start - (first + size) <= GAP and stop - first <= LONGEST:
                requests[-1] = (first, stop - first)
                continue
        requests.append((start, length))
    return requests


class _CacheFile(io.RawIOBase):
    """A `RangeCache` as a file object. `read` never raises, since GDAL cannot pass an exception on."""

    def __init__(self, cache: RangeCache) -> None:
        self.cache, self.position = cache, 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.cache.reader.size}[whence]
        self.position = origin + offset
        return self.position

    def tell(self) -> int:
        return self.position

    def read(self, size: int = -1) -> bytes:
        """At most `length` bytes; nothing after an error."""
        start, end = self.position, self.cache.reader.size
        stop = start + size if size >= 0 else end
        try:
            if start and stop > end:
                raise IntegrityError(f"{self.cache.label} is truncated or damaged: it ends after {end} bytes")
            data = self.cache.read(start, min(stop, end) - start)
        except BaseException as error:  # noqa: BLE001 - raised again outside of GDAL
            self.cache.error, data = self.cache.error or error, b""
        self.position += len(data)
        return data


@contextmanager
def open_geotiff(cache: RangeCache) -> Iterator[Any]:
    """Open the file of a cache, the only one that GDAL can see. Raises IntegrityError for what GDAL cannot read."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    def opener(path: str, mode: str = "rb") -> _CacheFile:
        if path != NAME or not mode.startswith("r"):
            raise FileNotFoundError(path)
        return _CacheFile(cache)

    try:
        with _filter_lock, warnings.catch_warnings():
            # A file without georeferencing is refused later, with its name.
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            source = rasterio.open(NAME, driver="GTiff", opener=opener)
        with source:
            if cache.error:
                # GDAL opens what is left of a truncated file, without its place or mask.
                raise cache.error
            yield source
    except Exception as error:
        # Some errors of rasterio have no public class, and directories after the first are read only when needed.
        # Tags that are not text end as errors of Python.
        if not type(error).__module__.startswith("rasterio") and not isinstance(error, UnicodeDecodeError):
            raise
        raise cache.error or IntegrityError(f"{cache.label} is truncated or damaged: {gdal_text(error)}") from error


def gdal_text(error: BaseException) -> str:
    """What GDAL says, without its name for the file."""
    return re.sub(rf"'?(/vsi\w+/)?\b{re.escape(NAME)}\b'?", "the file", str(error.__cause__ or error))


def remote_file(href: str, label: str, session: FetchSession) -> "RemoteFile":
    """The file of an http(s) or s3 address; the module that requests them is imported only now."""
    from eopipe.fetch.http import HttpFile, S3File

    return S3File(href, label, session) if scheme(href) == "s3" else HttpFile(href, session)
