"""How many training chips a second come from disk, shuffled: eopipe beside its peers and beside memory itself.

    python benchmarks/loader.py [CACHE] [--edge 5376] [--rounds 3] [--workers 0 1 2] [--only eopipe litdata]

Builds in CACHE (once) a scene of 10 bands of uint16 that compresses as real ones do, with labels and a valid mask:
as a tile store, as deflate COGs, and as the chunks or shards that a peer wants. A contestant runs each time in a
process of its own, round by round, so that a change of the machine's load meets all of them. It gives batches of 32
chips of 256 x 256 x 10 as uint16 for `--epochs` epochs; the first, with the start of its workers and a colder
cache, is told apart, the figure is that of the others. `aligned` chips lie on the chunks of the store, `random` ones
anywhere. eopipe and memory give label and valid mask too, the peers the image alone. Tables are Markdown.

The extra `bench` installs some peers; litdata and torchgeo are installed by hand (`pip install --no-deps`), since
they ask for builds of other packages. A peer that is not there is told and left out.

eopipe's budget holds its live blocks and not the scene, unless the scene is small. `memory` is a DataLoader over
arrays in memory: the limit of what reads nothing.
"""

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CHIP, BATCH, BANDS, LIVE = 256, 32, 10, 4
# GDAL would keep the whole scene decoded, which it could not do with more of them.
LITTLE = {"GDAL_CACHEMAX": "64"}
NAMES = tuple(f"b{number:02d}" for number in range(BANDS))


@dataclass(frozen=True)
class Task:
    """What a contestant gets: the folder, corners of chips (n, 2), number of workers, and epochs."""

    folder: Path
    corners: Any
    workers: int
    epochs: int


def build(folder: Path, edge: int) -> None:
    """Make the scene in all its forms, unless it is there."""
    if (folder / "done").exists():
        return
    from ingest import _reflectance

    folder.mkdir(parents=True, exist_ok=True)
    image = np.stack([_reflectance(edge, number) for number in range(BANDS)])
    _store(folder, image)
    _cogs(folder / "cogs", image)
    np.save(folder / "image.npy", image)
    for make in (_litdata, _webdataset):
        try:
            make(folder)
        except ImportError as error:
            print(f"{make.__name__[1:]}: {error}", file=sys.stderr)
    (folder / "done").touch()


def _store(folder: Path, image: Any) -> None:
    from eopipe.grid import make_grid
    from eopipe.publish import write_json
    from eopipe.store import Layout, add_array, new_store

    edge, layout = image.shape[-1], Layout()
    grid = make_grid((0.0, 0.0, 10.0 * edge, 10.0 * edge), "EPSG:32633", 10.0, (0, 0))
    with new_store(folder / "tiles.zarr", grid, NAMES, "made-up", {}) as group:
        told = {"scale_factor": 0.0001, "add_offset": 0.0}
        add_array(group, "image", image.shape, "uint16", layout, **told)[:] = image
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
    place = {"crs": "EPSG:32633", "transform": from_origin(0, 10 * edge, 10, 10)}
    how = {"compress": "deflate", "predictor": 2, "blocksize": 512, "num_threads": 2}
    for name, band in zip(NAMES, image, strict=True):
        size = {"height": edge, "width": edge, "count": 1, "dtype": "uint16"}
        with rasterio.open(folder / f"scene_{name}.tif", "w", driver="COG", **size, **place, **how) as file:
            file.write(band, 1)


def corners_of(edge: int, kind: str) -> Any:
    """As many corners (n, 2) as the scene has aligned chips."""
    places = np.arange(0, edge - CHIP + 1, CHIP)
    aligned = np.stack([axis.reshape(-1) for axis in np.meshgrid(places, places, indexing="ij")], 1)
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


def _eopipe(task: Task, shuffle: str, cache_mb: int) -> Any:
    import torch

    from eopipe.feeding.feed import Feed
    from eopipe.launching.job import Job, Settings
    from eopipe.models import Architecture
    from eopipe.samples.chips import Normaliser

    aligned = not (task.corners % CHIP).any()
    settings = Settings(
        "unet", 8, 1, 1, BATCH, 1e-3, 0.0, 0.1, ("symmetries",), "fp32", 0, 1, 1, shuffle=shuffle, window=LIVE
    )
    job = Job(
        tiles=(str(task.folder / "tiles.zarr"),), labels=(str(task.folder / "labels.zarr"),),
        chips=str(task.folder / f"{'aligned' if aligned else 'random'}.json"), state="", bands=NAMES, chip=CHIP,
        architecture=Architecture("unet", BANDS, 3, 8, 1), normaliser=Normaliser((0.2,) * BANDS, (0.1,) * BANDS),
        settings=settings, device="cpu", checkpoint_every=1, keep=2, cache_mb=cache_mb, timeout_s=60.0,
        workers=task.workers,
    )  # fmt: skip
    torch.set_num_threads(1)
    return Feed(job, torch.device("cpu"))


def _epochs_of(feed: Any, epoch: int) -> Iterator[Any]:
    from eopipe.feeding.feed import Wanted

    for step in range(-(-feed.count("train") // BATCH)):
        yield Wanted("train", feed.order.step(epoch, step, BATCH), epoch)


def _blocks_mb(task: Task) -> int:
    """Room for the live blocks, and one more for each worker."""
    edge = 1024 if not (task.corners % CHIP).any() else 1024 + CHIP
    return -(-(LIVE + max(task.workers, 1)) * edge**2 * (2 * BANDS + 2) >> 20) + 1


def eopipe(task: Task) -> Iterator[int]:
    """Blocks of 1024 pixels, 4 of them live."""
    feed = _eopipe(task, "blocks", _blocks_mb(task))
    for epoch in range(task.epochs):
        yield sum(len(wanted.numbers) for _, wanted in feed.stored(_epochs_of(feed, epoch)))
    feed.close()


def eopipe_chips(task: Task) -> Iterator[int]:
    """A permutation of all chips, each read from the store."""
    feed = _eopipe(task, "chips", 1)
    for epoch in range(task.epochs):
        yield sum(len(wanted.numbers) for _, wanted in feed.stored(_epochs_of(feed, epoch)))
    feed.close()


def eopipe_ready(task: Task) -> Iterator[int]:
    """As `eopipe`, and then as a model sees it: float32, normalised, masked, turned, on this CPU."""
    feed = _eopipe(task, "blocks", _blocks_mb(task))
    for epoch in range(task.epochs):
        yield sum(len(batch.images_NCHW) for batch in feed.stream(_epochs_of(feed, epoch)))
    feed.close()


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


def _loaded(task: Task, data: Any, **how: Any) -> Iterator[int]:
    """A DataLoader over it, with workers that stay."""
    import torch

    torch.set_num_threads(1)
    told = {"batch_size": BATCH, "num_workers": task.workers, "persistent_workers": task.workers > 0} | how
    loader: Any = torch.utils.data.DataLoader(data, **told)
    yield from _counted(task, loader, lambda batch: batch[0] if isinstance(batch, (list, tuple)) else batch)


def _counted(task: Task, loader: Any, image: Callable[[Any], Any]) -> Iterator[int]:
    for _ in range(task.epochs):
        yield sum(len(image(batch)) for batch in loader)


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
        place = {"driver": "file", "path": str(folder / "tiles.zarr/image")}
        limits = {"data_copy_concurrency": {"limit": 1}, "file_io_concurrency": {"limit": 1}}
        return store.open({"driver": "zarr3", "kvstore": place, "context": limits}, open=True).result()

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
    """RasterDataset over the COGs, RandomGeoSampler, DataLoader."""
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
    sampler = sampling.RandomGeoSampler(scene, size=CHIP, length=len(task.corners))
    how = {"batch_size": BATCH, "num_workers": task.workers, "persistent_workers": task.workers > 0}
    loader: Any = torch.utils.data.DataLoader(scene, sampler=sampler, collate_fn=data.stack_samples, **how)
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
# They give chips of a lattice, or that were cut beforehand; TorchGeo gives random ones.
ALIGNED_ONLY, RANDOM_ONLY = {"xbatcher", "litdata", "webdataset"}, {"torchgeo"}
RIVALS = ("memory", "litdata", "torchgeo")


def measure(name: str, task: Task) -> None:
    """Run one contestant in this process; print chips a second of the first epoch and of the others, and memory."""
    rates, begin = [], time.perf_counter()
    for count in CONTESTANTS[name](task):
        now = time.perf_counter()
        rates.append(count / (now - begin))
        begin = now
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    found = {"first": rates[0], "later": statistics.median(rates[1:]), "peak": int(own.split()[1]) / 1024}
    print(json.dumps(found | {"worker": children / 1024 if task.workers else 0.0}))


Key = tuple[str, str, int]


def compare(keys: list[Key], words: list[str], rounds: int) -> dict[Key, list[dict[str, float]]]:
    """Run all, round by round, each in a process of its own; what is not installed is told."""
    found: dict[Key, list[dict[str, float]]] = {key: [] for key in keys}
    for turn in range(rounds):
        for key in keys:
            name, kind, workers = key
            line = [sys.executable, "-W", "ignore", __file__, *words, "--run", name]
            line += ["--kind", kind, "--workers", str(workers)]
            ended = subprocess.run(line, capture_output=True, text=True, check=False, env=os.environ | LITTLE)
            if ended.returncode:
                last = (ended.stderr.strip().splitlines() or ["killed"])[-1]
                told = "not installed" if "ModuleNotFoundError" in last else f"failed with {ended.returncode}"
                print(f"{key}: {told}: {last}", file=sys.stderr)
                continue
            found[key].append(json.loads(ended.stdout.strip().splitlines()[-1]))
            print(turn, key, found[key][-1], file=sys.stderr)
    return found


def table(found: dict[Key, list[dict[str, float]]], kind: str, names: list[str], workers: list[int]) -> str:
    """Median chips a second with each number of workers; then eopipe's best against the peer's, round by round."""
    head = [f"{n} workers" for n in workers]
    lines = [f"| {kind} | {' | '.join(head)} | first epoch | eopipe x | MiB | MiB a worker |"]
    lines.append("|---" * (len(head) + 5) + "|")
    for name in names:
        rows = [found.get((name, kind, n), []) for n in workers]
        if not any(rows):
            lines.append(f"| {name} |" + " - |" * (len(head) + 4))
            continue
        each = [f"{statistics.median(r['later'] for r in row):.0f}" if row else "-" for row in rows]
        first = statistics.median(r["first"] for r in max(rows, key=len))
        peaks = [f"{max(r[what] for row in rows for r in row):.0f}" for what in ("peak", "worker")]
        ratio = _ratio(found, kind, name, workers)
        lines.append(f"| {name} | {' | '.join(each)} | {first:.0f} | {ratio} | {' | '.join(peaks)} |")
    return "\n".join(lines)


def _ratio(found: dict[Key, list[dict[str, float]]], kind: str, name: str, workers: list[int]) -> str:
    """Median over rounds of the best rate of eopipe over the best of another, whatever the number of workers."""
    mine, theirs = (_best(found, kind, who, workers) for who in ("eopipe", name))
    ratios = [a / b for a, b in zip(mine, theirs, strict=False)]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def _best(found: dict[Key, list[dict[str, float]]], kind: str, name: str, workers: list[int]) -> list[float]:
    rows = [[r["later"] for r in found.get((name, kind, n), [])] for n in workers]
    return [max(rates) for rates in zip(*[row for row in rows if row], strict=False)]


def main() -> None:
    """Parse the words and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "eopipe-loader")
    parser.add_argument("--edge", type=int, default=5376, help="edge of the scene in pixels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kind", nargs="+", default=["aligned", "random"], choices=("aligned", "random"))
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--run", choices=CONTESTANTS, help=argparse.SUPPRESS)
    told = parser.parse_args()
    folder = told.cache / f"scene-{told.edge}"
    if told.run:
        measure(told.run, Task(folder, corners_of(told.edge, told.kind[0]), told.workers[0], told.epochs))
        return
    build(folder, told.edge)
    keys = [
        (name, kind, workers)
        for kind in told.kind
        for name in told.only
        for workers in told.workers
        if name not in (ALIGNED_ONLY if kind == "random" else RANDOM_ONLY)
    ]
    words = [str(told.cache), "--edge", str(told.edge), "--epochs", str(told.epochs)]
    found = compare(keys, words, told.rounds)
    for kind in told.kind:
        print(table(found, kind, told.only, told.workers) + "\n", flush=True)


if __name__ == "__main__":
    main()
