"""The scene from which the contestants of `loader.py` read chips, in all its formats."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from landscape import reflectance

CHIP, BATCH, BANDS = 256, 32, 10
NAMES = tuple(f"b{number:02d}" for number in range(BANDS))


@dataclass(frozen=True)
class Task:
    """Task of a contestant: the folder, corners of chips (n, 2), workers, epochs, and maximum seconds of an epoch."""

    folder: Path
    corners: Any
    workers: int
    epochs: int
    seconds: float

    @property
    def aligned(self) -> bool:
        """Whether chips are aligned with the chunks of the store."""
        return not (self.corners % CHIP).any()


def build(folder: Path, edge: int) -> None:
    """Build the scene in all its formats unless it exists."""
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    image = np.stack([reflectance(edge, number) for number in range(BANDS)])
    store(folder, image)
    _cogs(folder / "cogs", image)
    np.save(folder / "image.npy", image)
    for make in (_litdata, _webdataset):
        try:
            make(folder)
        except ImportError as error:
            print(f"{make.__name__[1:]}: {error}", file=sys.stderr)
    (folder / "done").touch()


def store(folder: Path, image: Any) -> None:
    """The scene as a tile store with labels, and its chips as splits."""
    from eopipe.text_files import write_json
    from eopipe.tiles.grid import make_grid
    from eopipe.tiles.layout import Layout
    from eopipe.tiles.store import add_array, new_store

    edge, layout = image.shape[-1], Layout()
    grid = make_grid((0.0, 0.0, 10.0 * edge, 10.0 * edge), "EPSG:32633", 10.0, (0, 0))
    with new_store(folder / "tiles.zarr", grid, NAMES, "made-up", {}) as group:
        scaling = {"scale_factor": 0.0001, "add_offset": 0.0}
        add_array(group, "image", image.shape, "uint16", layout, **scaling)[:] = image
        add_array(group, "valid", image.shape[1:], "uint8", layout)[:] = 1
    with new_store(folder / "labels.zarr", grid, ("a", "b", "c"), "", {}) as group:
        add_array(group, "label", image.shape[1:], "uint8", layout)[:] = image[0] % 3
        add_array(group, "valid", image.shape[1:], "uint8", layout)[:] = 1
    for kind in ("aligned", "random"):
        rows = [[0, *corner] for corner in corners_of(edge, kind).tolist()]
        write_json(folder / f"{kind}.json", {"samples": {"train": rows, "val": [], "test": []}})


def _cogs(folder: Path, image: Any) -> None:
    import rasterio
    from rasterio.transform import from_origin

    folder.mkdir(exist_ok=True)
    edge = image.shape[-1]
    georeference = {"crs": "EPSG:32633", "transform": from_origin(0, 10 * edge, 10, 10)}
    options = {"compress": "deflate", "predictor": 2, "blocksize": 512, "num_threads": 2}
    for name, band in zip(NAMES, image, strict=True):
        size = {"height": edge, "width": edge, "count": 1, "dtype": "uint16"}
        with rasterio.open(folder / f"scene_{name}.tif", "w", driver="COG", **size, **georeference, **options) as file:
            file.write(band, 1)


def corners_of(edge: int, kind: str) -> Any:
    """As many corners (n, 2) as the scene has aligned chips."""
    offsets = np.arange(0, edge - CHIP + 1, CHIP)
    aligned = np.stack([axis.reshape(-1) for axis in np.meshgrid(offsets, offsets, indexing="ij")], 1)
    if kind == "aligned":
        return aligned
    return np.random.default_rng(0).integers(0, edge - CHIP + 1, aligned.shape)


def _litdata(folder: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    image = np.load(folder / "image.npy", mmap_mode="r")
    (folder / "litdata").mkdir(exist_ok=True)
    writer = BinaryWriter(str(folder / "litdata"), chunk_bytes=64 << 20)
    for number, (y, x) in enumerate(corners_of(image.shape[-1], "aligned")):
        writer[number] = {"image": np.ascontiguousarray(image[:, y : y + CHIP, x : x + CHIP])}
    writer.done()
    writer.merge()


def _webdataset(folder: Path) -> None:
    import webdataset

    image = np.load(folder / "image.npy", mmap_mode="r")
    (folder / "webdataset").mkdir(exist_ok=True)
    with webdataset.ShardWriter(str(folder / "webdataset/%04d.tar"), maxsize=64 << 20, verbose=0) as sink:
        for number, (y, x) in enumerate(corners_of(image.shape[-1], "aligned")):
            sink.write({"__key__": f"{number:06d}", "npy": np.ascontiguousarray(image[:, y : y + CHIP, x : x + CHIP])})


def evict(folder: Path) -> None:
    """Evict these files from the page cache, so that they are read from disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
