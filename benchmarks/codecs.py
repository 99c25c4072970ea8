"""Codecs and chunk sizes of tiles: compression ratio, encoding and decoding speed on one core, files, chips per second.

    python benchmarks/codecs.py FOLDER [--rounds 5] [--chips 400]

FOLDER has GeoTIFFs of one scene (bands of one size and data type). The codecs encode chunks of 256 x 256 pixels of all
bands, interleaved round by round; chunk sizes are measured with the default codec through `Tiles.read`: chips of
256 x 256 pixels aligned with chunks, and at random positions. Prints medians in Markdown.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs import Blosc, Zlib, Zstd

from eopipe.publish import files
from eopipe.tiles.grid import make_grid
from eopipe.tiles.layout import LEVELS, ArrayWriter, Layout, shard_regions
from eopipe.tiles.store import Tiles, add_array, new_store

EDGE = 256
CODECS = {
    **{f"{name} {level}, bits shuffled": Blosc(name, level, Blosc.BITSHUFFLE) for name, level in LEVELS.items()},
    "lz4 5, bytes shuffled": Blosc("lz4", 5, Blosc.SHUFFLE),
    "zstd 3, bits shuffled": Blosc("zstd", 3, Blosc.BITSHUFFLE),
    "zstd 0, plain (zarr's own)": Zstd(0),
    "zstd 3, plain": Zstd(3),
    "deflate 6, plain": Zlib(6),
}
LAYOUTS = [Layout(chunk, shard) for chunk, shard in ((128, 4096), (256, 4096), (256, 1024), (256, 256), (512, 4096))]


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chips", type=int, default=400)
    arguments = parser.parse_args()
    pixels = _pixels(arguments.folder)
    print(f"`{Path(sys.argv[0]).name}`: {pixels.shape} of {pixels.dtype}, {pixels.nbytes / 1e6:.0f} MB\n")
    print(_codec_table(_chunks(pixels), arguments.rounds))
    with tempfile.TemporaryDirectory() as folder:
        print("\n" + _layout_table(pixels, Path(folder), arguments.rounds, arguments.chips))


def _pixels(folder: Path) -> Any:
    import rasterio

    bands = []
    for path in sorted(folder.glob("B*.tif")):
        with rasterio.open(path) as source:
            bands.append(source.read(1))
    return np.stack(bands)


def _chunks(pixels: Any) -> list[Any]:
    tops = range(0, pixels.shape[1] - EDGE + 1, EDGE)
    lefts = range(0, pixels.shape[2] - EDGE + 1, EDGE)
    return [np.ascontiguousarray(pixels[:, y : y + EDGE, x : x + EDGE]) for y in tops for x in lefts]


def _codec_table(chunks: list[Any], rounds: int) -> str:
    size = sum(chunk.nbytes for chunk in chunks)
    encoding_rates: dict[str, list[float]] = {name: [] for name in CODECS}
    decoding_rates: dict[str, list[float]] = {name: [] for name in CODECS}
    ratio = {}
    for _ in range(rounds):
        for name, codec in CODECS.items():
            seconds, encoded = _timed(lambda codec=codec: [codec.encode(chunk) for chunk in chunks])
            encoding_rates[name].append(size / seconds / 1e6)
            seconds, _ = _timed(lambda codec=codec, encoded=encoded: [codec.decode(data) for data in encoded])
            decoding_rates[name].append(size / seconds / 1e6)
            ratio[name] = size / sum(len(data) for data in encoded)
    lines = ["| codec | ratio | encoding MB/s | decoding MB/s |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {ratio[name]:.2f} | {statistics.median(encoding_rates[name]):.0f} "
        f"| {statistics.median(decoding_rates[name]):.0f} |"
        for name in CODECS
    ]
    return "\n".join(lines)


def _layout_table(pixels: Any, folder: Path, rounds: int, chips: int) -> str:
    stores = [_store(pixels, folder / f"{layout.chunk}-{layout.shard}", layout) for layout in LAYOUTS]
    limit = [(edge - EDGE) // EDGE + 1 for edge in pixels.shape[1:]]
    random = np.random.default_rng(0)
    aligned = [tuple(int(random.integers(n)) * EDGE for n in limit) for _ in range(chips)]
    random_corners = [tuple(int(random.integers(edge - EDGE + 1)) for edge in pixels.shape[1:]) for _ in range(chips)]
    rates: dict[tuple[int, int], list[float]] = {}
    for _ in range(rounds):
        for number, store in enumerate(stores):
            for kind, corners in enumerate((aligned, random_corners)):
                seconds, _ = _timed(lambda store=store, corners=corners: [_chip(store, *corner) for corner in corners])
                rates.setdefault((number, kind), []).append(chips / seconds)
    lines = [
        "| chunk | shard | files | MB | chips/s on chunks | chips/s at random |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for number, (layout, store) in enumerate(zip(LAYOUTS, stores, strict=True)):
        store_files = files(store.path)
        size = sum(path.stat().st_size for path in store_files) / 1e6
        on_chunks, at_random = (statistics.median(rates[number, kind]) for kind in (0, 1))
        lines.append(
            f"| {layout.chunk} | {layout.shard} | {len(store_files)} | {size:.0f} | {on_chunks:.0f} | {at_random:.0f} |"
        )
    return "\n".join(lines)


def _chip(store: Tiles, row: int, column: int) -> Any:
    return store.read("image", slice(row, row + EDGE), slice(column, column + EDGE))


def _store(pixels: Any, path: Path, layout: Layout) -> Tiles:
    height, width = pixels.shape[1:]
    grid = make_grid((0, 0, width * 10.0, height * 10.0), "EPSG:32633", 10.0, (0, 0))
    names = tuple(f"b{number}" for number in range(len(pixels)))
    with new_store(path, grid, names, "scene", {}) as group:
        scaling = {"scale_factor": 1.0, "add_offset": 0.0}
        writer = ArrayWriter(add_array(group, "image", pixels.shape, pixels.dtype, layout, **scaling), layout)
        for region in shard_regions((height, width), layout):
            writer.write(region, writer.encode(pixels[(slice(None), *region.window)]))
    return Tiles(path)


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result


if __name__ == "__main__":
    main()
