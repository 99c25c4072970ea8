"""The contestants of `loader.py`."""

import importlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from loader_eopipe import eopipe, eopipe_chips, eopipe_ready
from loader_scene import BANDS, BATCH, CHIP, NAMES, Task


class Chips:
    """A map-style data set: `open` runs once in each process, `read` for each chip."""

    def __init__(self, task: Task, opened: Callable[[Path], Any], read: Callable[[Any, int, int], Any]) -> None:
        self.task, self.opened, self.read, self.source = task, opened, read, None

    def __len__(self) -> int:
        return len(self.task.corners)

    def __getitem__(self, number: int) -> Any:
        if self.source is None:
            self.source = self.opened(self.task.folder)
        return self.read(self.source, *map(int, self.task.corners[number]))


def _loaded(task: Task, data: Any, **options: Any) -> Iterator[int]:
    """A DataLoader over the data set, with persistent workers."""
    import torch

    torch.set_num_threads(1)
    defaults = {"batch_size": BATCH, "num_workers": task.workers, "persistent_workers": task.workers > 0}
    loader: Any = torch.utils.data.DataLoader(data, **defaults | options)
    yield from _counted(task, loader, lambda batch: batch[0] if isinstance(batch, (list, tuple)) else batch)


def _counted(task: Task, loader: Any, image: Callable[[Any], Any]) -> Iterator[int]:
    for _ in range(task.epochs):
        count, deadline = 0, time.perf_counter() + task.seconds
        for batch in loader:
            count += len(image(batch))
            # A slow contestant may stop before the end of the epoch.
            if time.perf_counter() > deadline:
                break
        yield count


def memory(task: Task) -> Iterator[int]:
    """Slices of arrays in memory, with label and valid mask."""

    def opened(folder: Path) -> Any:
        image = np.load(folder / "image.npy")
        return image, np.ones(image.shape[1:], np.uint8), (image[0] % 3).astype(np.uint8)

    def read(arrays: Any, y: int, x: int) -> Any:
        return tuple(array[..., y : y + CHIP, x : x + CHIP] for array in arrays)

    chips = Chips(task, opened, read)
    chips.source = opened(task.folder)
    yield from _loaded(task, chips, shuffle=True)


def memory_ready(task: Task) -> Iterator[int]:
    """As `memory`, finished for a model by eopipe's own functions in the workers."""
    from eopipe.chips.chips import Normaliser
    from eopipe.loader.chip_reader import apply_symmetry

    normalise, draw = Normaliser((0.2,) * BANDS, (0.1,) * BANDS), np.random.default_rng()

    def read(image: Any, y: int, x: int) -> Any:
        symmetry, chip = int(draw.integers(8)), image[..., y : y + CHIP, x : x + CHIP]
        valid, label = np.ones((CHIP, CHIP), bool), apply_symmetry(chip[0] % 3, symmetry).astype(np.int64)
        return normalise(apply_symmetry(chip, symmetry), (0.0001, 0.0), valid), label

    chips = Chips(task, lambda folder: np.load(folder / "image.npy"), read)
    chips.source = chips.opened(task.folder)
    yield from _loaded(task, chips, shuffle=True)


def zarr_python(task: Task) -> Iterator[int]:
    """Windows of the tile store by zarr-python."""
    import zarr

    def opened(folder: Path) -> Any:
        return zarr.open_array(folder / "tiles.zarr/image", mode="r")

    yield from _loaded(task, Chips(task, opened, lambda a, y, x: a[:, y : y + CHIP, x : x + CHIP]), shuffle=True)


def tensorstore(task: Task) -> Iterator[int]:
    """Windows of the tile store by tensorstore."""
    store: Any = importlib.import_module("tensorstore")

    def opened(folder: Path) -> Any:
        kvstore = {"driver": "file", "path": str(folder / "tiles.zarr/image")}
        limits = {"data_copy_concurrency": {"limit": 1}, "file_io_concurrency": {"limit": 1}}
        return store.open({"driver": "zarr3", "kvstore": kvstore, "context": limits}, open=True).result()

    def read(array: Any, y: int, x: int) -> Any:
        return array[:, y : y + CHIP, x : x + CHIP].read().result()

    yield from _loaded(task, Chips(task, opened, read), shuffle=True)


def rasterio(task: Task) -> Iterator[int]:
    """Windows of ten COGs."""
    library: Any = importlib.import_module("rasterio")
    window: Any = importlib.import_module("rasterio.windows").Window

    def opened(folder: Path) -> Any:
        return [library.open(folder / f"cogs/scene_{name}.tif") for name in NAMES]

    def read(files: Any, y: int, x: int) -> Any:
        return np.stack([file.read(1, window=window(x, y, CHIP, CHIP)) for file in files])

    yield from _loaded(task, Chips(task, opened, read), shuffle=True)


def xbatcher(task: Task) -> Iterator[int]:
    """Windows of the tile store on a lattice, by xbatcher and xarray."""
    library: Any = importlib.import_module("xbatcher")
    import xarray

    class Batches(Chips):
        def __len__(self) -> int:
            return len(self.task.corners)

        def __getitem__(self, number: int) -> Any:
            if self.source is None:
                image = xarray.open_zarr(self.task.folder / "tiles.zarr", chunks=None)["image"].drop_vars(["y", "x"])
                self.source = library.BatchGenerator(image, {"y": CHIP, "x": CHIP})
            return self.source[number].values

    yield from _loaded(task, Batches(task, lambda _: None, lambda *_: None), shuffle=True)


def torchgeo(task: Task) -> Iterator[int]:
    """RasterDataset over the COGs, RandomGeoSampler or the windows of GridGeoSampler shuffled, DataLoader."""
    import torch

    # torchvision's wheels hold operators for CUDA's torch alone; TorchGeo reads without them.
    kernels = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        kernels.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    data: Any = importlib.import_module("torchgeo.datasets")
    sampling: Any = importlib.import_module("torchgeo.samplers")

    class Scene(data.RasterDataset):  # type: ignore[misc]
        filename_glob = "scene_b00.tif"
        filename_regex = r"scene_(?P<band>b\d\d)\.tif"
        all_bands = NAMES
        separate_files = True

    scene = Scene(str(task.folder / "cogs"))
    sampler: Any = sampling.RandomGeoSampler(scene, size=CHIP, length=len(task.corners))
    if task.aligned:
        windows = list(sampling.GridGeoSampler(scene, size=CHIP, stride=CHIP))
        sampler = [windows[number] for number in np.random.default_rng(0).permutation(len(windows))]
    options = {"batch_size": BATCH, "num_workers": task.workers, "persistent_workers": task.workers > 0}
    loader: Any = torch.utils.data.DataLoader(scene, sampler=sampler, collate_fn=data.stack_samples, **options)
    yield from _counted(task, loader, lambda batch: batch["image"])


def litdata(task: Task) -> Iterator[int]:
    """Streaming by litdata of chips that were cut and written beforehand."""
    library: Any = importlib.import_module("litdata")

    scene = library.StreamingDataset(str(task.folder / "litdata"), shuffle=True)
    loader = library.StreamingDataLoader(
        scene, batch_size=BATCH, num_workers=task.workers, persistent_workers=task.workers > 0
    )
    yield from _counted(task, loader, lambda batch: batch["image"])


def webdataset(task: Task) -> Iterator[int]:
    """WebDataset over chips that were cut and written beforehand."""
    library: Any = importlib.import_module("webdataset")

    files = sorted(map(str, (task.folder / "webdataset").glob("*.tar")))
    scene = library.WebDataset(files, shardshuffle=len(files), empty_check=False).shuffle(100).decode().to_tuple("npy")
    yield from _loaded(task, scene)


CONTESTANTS: dict[str, Callable[[Task], Iterator[int]]] = {
    "memory": memory,
    "memory_ready": memory_ready,
    "eopipe": eopipe,
    "eopipe_chips": eopipe_chips,
    "eopipe_ready": eopipe_ready,
    "tensorstore": tensorstore,
    "zarr_python": zarr_python,
    "xbatcher": xbatcher,
    "litdata": litdata,
    "webdataset": webdataset,
    "rasterio": rasterio,
    "torchgeo": torchgeo,
}
# They yield chips of a lattice, or chips that were cut beforehand.
ALIGNED_ONLY = {"xbatcher", "litdata", "webdataset"}
