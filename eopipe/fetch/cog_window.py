"""Area-of-interest windows of remote COGs: only the blocks that a grid needs, kept as a verified local GeoTIFF."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import Float64Array, IntArray
from eopipe.errors import BadInputError, IntegrityError, RefusedError
from eopipe.fetch.download import mark_complete
from eopipe.fetch.range_reader import RangeReader, open_range_reader
from eopipe.fetch.retry import FetchSession
from eopipe.fetch.tiff import (
    BITS,
    SAMPLES,
    Blocks,
    Directory,
    blocks,
    cut,
    encode,
    has_place,
    placed,
    read_directories,
)
from eopipe.publish import publish, sha256

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# One page holds the directories of a usual COG; a gap of this many bytes costs less than one more request.
PAGE, GAP, LONGEST = 1 << 15, 1 << 15, 1 << 23
WORKERS = 4
MOST_PIXELS, MOST_BLOCK = 2**33, 1 << 28
# Pixels around the area: what cubic interpolation reads, and slack for the choice of datum shift.
MARGIN, KERNEL = 4, 2
LATTICE = 65


class Head:
    """The first bytes of a remote file and its other scattered values, fetched in pages and kept."""

    def __init__(self, remote: RangeReader, where: str) -> None:
        self.remote, self.where = remote, where
        self.pages: dict[int, bytes] = {}

    def read(self, start: int, length: int) -> bytes:
        """Bytes of the file; IntegrityError where it ends too early."""
        if start + length > self.remote.size:
            raise IntegrityError(f"{self.where} is truncated or damaged: it ends after {self.remote.size} bytes")
        first, last = start // PAGE, -(-(start + length) // PAGE)
        missing = [page for page in range(first, last) if page not in self.pages]
        if missing:
            begin, end = missing[0] * PAGE, min((missing[-1] + 1) * PAGE, self.remote.size)
            data = self.remote.read(begin, end - begin)
            self.pages |= {begin // PAGE + n: data[n * PAGE : (n + 1) * PAGE] for n in range(-(-len(data) // PAGE))}
        found = b"".join(self.pages[page] for page in range(first, last))
        return found[start - first * PAGE :][:length]

    def block(self, start: int, length: int) -> bytes:
        """Bytes of the file, which are not kept; those that came with the directories are not asked for again."""
        kept = all(page in self.pages for page in range(start // PAGE, -(-(start + length) // PAGE)))
        return self.read(start, length) if kept else self.remote.read(start, length)


def write_window(remote: RangeReader, grid: "GeoBox", target: Path, where: str) -> None:
    """Keep the part of a remote GeoTIFF that a grid in any CRS needs, as the GeoTIFF `target`.

    The part is made of whole blocks, copied as they are: every pixel, tag and mask is the original's, in its place.
    Overviews are left out. All blocks are decoded once before `target` appears.
    Raises BadInputError (no GeoTIFF, no place, outside the grid), IntegrityError (truncated or damaged),
    RefusedError (larger than any scene) and what `remote` raises; `target` is not there then.
    """
    known = Head(remote, where)
    images = read_directories(known.read, where)
    stored = [blocks(image, where) for image in images]
    _check_size(images[0], stored[0], where)
    if any(other.edge != stored[0].edge or other.shape[1:] != stored[0].shape[1:] for other in stored):
        raise BadInputError(f"{where} has a mask in other blocks than its image; fetch whole assets instead")
    rows, columns = _needed(images[0], stored[0], grid, where)
    parts = [cut(image, layout, rows, columns) for image, layout in zip(images, stored, strict=True)]
    head, targets = placed([part for part, _, _ in parts])
    offsets, sizes = np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])
    with publish(target) as draft:
        _copy(known, head, np.stack([offsets, sizes, np.concatenate(targets)], axis=1), draft)
        _check_blocks(draft, stored[0].edge, (rows.start, columns.start), where, masked=len(images) > 1)


def _check_size(image: Directory, stored: Blocks, where: str) -> None:
    """Refuse what would not fit into memory, before anything of it is read."""
    across, down = stored.shape[2] * stored.edge[1], stored.shape[1] * stored.edge[0]
    decoded = stored.edge[0] * stored.edge[1] * image.number(SAMPLES, 1) * image.number(BITS, 1) // 8
    if across * down > MOST_PIXELS or decoded > MOST_BLOCK:
        raise RefusedError(
            f"{where} declares {across} x {down} pixels in blocks of {decoded} bytes, more than any scene has"
        )


def _needed(image: Directory, stored: Blocks, grid: "GeoBox", where: str) -> tuple[slice, slice]:
    """Rows and columns of blocks that hold the grid's area; BadInputError when there are none."""
    from pyproj.exceptions import ProjError
    from rasterio.errors import RasterioError
    from rasterio.io import MemoryFile

    if not has_place(image):
        raise BadInputError(f"{where} has no geotransform, so it has no place")
    try:
        # GDAL tells the place from the directory alone.
        with MemoryFile(encode([image])) as memory, memory.open(driver="GTiff") as source:
            crs, transform, shape, bounds = source.crs, source.transform, source.shape, source.bounds
    except (RasterioError, UnicodeError) as error:
        raise IntegrityError(f"{where} is damaged: {error}") from error
    if crs is None or transform.is_identity or transform.is_degenerate:
        raise BadInputError(f"{where} has no CRS or an empty geotransform, so it has no place")
    try:
        low, high, margin = _area(grid, crs, ~transform)
    except ProjError as error:
        raise BadInputError(f"{where} has a CRS of which {grid.crs} is no neighbour: {crs}") from error
    if not (low < shape[::-1]).all() or not (high > 0).all():
        box = grid.extent.boundingbox
        raise BadInputError(
            f"{where} lies at {', '.join(f'{edge:g}' for edge in bounds)} in {crs}, "
            f"outside the grid at {', '.join(f'{edge:g}' for edge in box)} in {grid.crs}"
        )
    return (
        _span(low[1] - margin[1], high[1] + margin[1], stored.edge[0], shape[0]),
        _span(low[0] - margin[0], high[0] + margin[0], stored.edge[1], shape[1]),
    )


def _span(low: float, high: float, block: int, edge: int) -> slice:
    return slice(int(max(low, 0) // block), int(-(-min(high, edge) // block)))


def _area(grid: "GeoBox", crs: Any, to_pixel: Any) -> tuple[Any, Any, Any]:
    """Least and greatest (column, row) of a raster that a grid covers, and how far interpolation reads beyond.

    All three are float (2,); infinite bounds mean that the grid is nowhere in the CRS of the raster.
    """
    from pyproj import Transformer

    height, width = grid.shape
    points = np.meshgrid(np.linspace(0, width, LATTICE), np.linspace(0, height, LATTICE))
    told = Transformer.from_crs(str(grid.crs), crs.to_wkt(), always_xy=True)
    place = np.stack(_at(to_pixel, *told.transform(*_at(grid.affine, *points))))
    there = np.isfinite(place).all(0)
    if not there.any():
        return np.full(2, np.inf), np.full(2, -np.inf), np.zeros(2)
    low, high = place[:, there].min(1), place[:, there].max(1)
    if not there.all():
        # The grid leaves the projection of the raster, somewhere between the points of the lattice.
        return low, high, np.full(2, np.inf)
    ratio = np.maximum(_most(place, 1, 1) / height, _most(place, 1, 2) / width) * (LATTICE - 1)
    # A curve strays from the straight line between two points by an eighth of its second difference.
    bend = np.maximum(_most(place, 2, 1), _most(place, 2, 2)) / 8
    return low, high, MARGIN + KERNEL * np.maximum(ratio, 1) + bend


def _at(affine: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return affine.a * x + affine.b * y + affine.c, affine.d * x + affine.e * y + affine.f


def _most(place: Float64Array, order: int, axis: int) -> Float64Array:
    """Greatest difference of neighbours on the lattice (2, y, x), in columns and in rows."""
    found: Float64Array = np.abs(np.diff(place, order, axis)).reshape(2, -1).max(1)
    return found


def _requests(blocks_of: IntArray, where: str, size: int) -> list[IntArray]:
    """Put blocks (offset, length, target) that are near each other in the file into one request."""
    there = blocks_of[blocks_of[:, 1] > 0]
    there = there[np.argsort(there[:, 0], kind="stable")]
    ends = there[:, 0] + there[:, 1]
    if there[:, 1].sum() > size or (ends > size).any():
        raise IntegrityError(f"{where} is truncated or damaged: it has {size} bytes, its blocks need more")
    if there[:, 1].max(initial=0) > MOST_BLOCK:
        raise RefusedError(f"{where} has a block of {there[:, 1].max()} bytes, more than any scene has")
    groups: list[list[int]] = []
    for n, (start, end) in enumerate(zip(there[:, 0], ends, strict=True)):
        near = bool(groups) and start - ends[groups[-1][-1]] <= GAP and end - there[groups[-1][0], 0] <= LONGEST
        if near:
            groups[-1].append(n)
        else:
            groups.append([n])
    return [there[group] for group in groups]


def _copy(known: Head, head: bytes, blocks_of: IntArray, draft: Path) -> None:
    """Write the head and bring every block to its place behind it."""
    groups = _requests(blocks_of, known.where, known.remote.size)
    with draft.open("wb") as file, ThreadPoolExecutor(WORKERS) as pool:
        file.write(head)
        file.flush()
        futures = [pool.submit(_bring, known, group, file.fileno()) for group in groups]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _bring(known: Head, group: IntArray, handle: int) -> None:
    begin, end = int(group[0, 0]), int((group[:, 0] + group[:, 1]).max())
    data = known.block(begin, end - begin)
    if len(data) != end - begin:
        raise IntegrityError(f"{known.where} is truncated: {len(data)} of {end - begin} bytes came at byte {begin}")
    for offset, length, target in group.tolist():
        _write(handle, memoryview(data)[offset - begin : offset - begin + length], target)


def _write(handle: int, data: memoryview, target: int) -> None:
    while data:
        done = os.pwrite(handle, data, target)
        data, target = data[done:], target + done


def _check_blocks(draft: Path, edge: tuple[int, int], first: tuple[int, int], where: str, *, masked: bool) -> None:
    """Decode every block of the draft once; the error names its place in the original."""
    import rasterio
    from rasterio.errors import RasterioError
    from rasterio.windows import Window

    height, width = edge
    settings = {"GDAL_NUM_THREADS": "1", "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR"}
    row = column = 0
    try:
        with rasterio.Env(**settings), rasterio.open(draft, driver="GTiff") as source:
            for row, column in product(range(0, source.height, height), range(0, source.width, width)):
                box = Window(column, row, min(width, source.width - column), min(height, source.height - row))
                source.read(window=box)
                if masked:
                    source.read_masks(window=box)
    except RasterioError as error:
        place = f"row {first[0] * height + row}, column {first[1] * width + column}"
        raise IntegrityError(f"{where} is damaged in its block at {place}: {error.__cause__ or error}") from error


# What a catalog says of the whole file and does not hold for a part of it.
OF_THE_WHOLE = ("proj:bbox", "proj:centroid", "proj:geometry", "proj:projjson", "proj:wkt2")


def fetch_window(
    asset: dict[str, Any], where: str, catalog: Path | None, part: Path, grid: "GeoBox", terms: FetchSession
) -> Path:
    """Keep the blocks of a cloud-optimised GeoTIFF that a grid needs, as the file `part`; return it.

    Raises BadInputError (missing, no GeoTIFF, outside the grid), IntegrityError (damaged, another size than the
    catalog says), UpstreamError (server).
    """
    if part.with_suffix(".whole").exists():
        return part
    remote = open_range_reader(asset["href"], where, terms, catalog)
    want = asset.get("file:size")
    if want is not None and want != remote.size:
        raise IntegrityError(f"{where} has {remote.size} bytes, the catalog says {want}: it is another version")
    write_window(remote, grid, part, where)
    return mark_complete(part)


def describe_window(asset: dict[str, Any], file: Path) -> dict[str, Any]:
    """The asset of the item for a part of its file: its own size, checksum and place."""
    import rasterio

    kept = {key: value for key, value in asset.items() if key not in OF_THE_WHOLE}
    with rasterio.open(file, driver="GTiff") as source:
        place = {"proj:shape": list(source.shape), "proj:transform": list(source.transform)[:6]}
    return kept | place | {"file:size": file.stat().st_size, "file:checksum": f"1220{sha256(file)}"}
