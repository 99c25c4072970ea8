"""Import, split and loading of many small chips: `python benchmarks/chip_sets.py FOLDER --chips 16384`.

Chips of 64 x 64 x 4 uint16 in twelve UTM zones, each a GeoTIFF with a mask. The loader reads the first of the packed
stores, and the same pixels in one store on a grid, in turns. FOLDER is created and stays.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from landscape import reflectance
from loader_eopipe import _epochs_of, job_of
from loader_scene import Task

EDGE, BANDS, ZONES = 64, 4, 12
NAMES = tuple(f"b{number}" for number in range(BANDS))


def write_part(folder: Path, first: int, last: int) -> None:
    """Write some chips: images/N.tif and masks/N.tif, a kilometre apart in their zone."""
    import rasterio
    from rasterio.transform import from_origin

    scene = np.stack([reflectance(1024, number) for number in range(BANDS)])
    for number in range(first, last):
        dice = np.random.default_rng(number)
        y, x = (int(value) for value in dice.integers(0, 1024 - EDGE, 2))
        pixels = scene[:, y : y + EDGE, x : x + EDGE] + dice.integers(0, 40, (BANDS, EDGE, EDGE), np.uint16)
        place = number // ZONES
        size = {"driver": "GTiff", "height": EDGE, "width": EDGE, "crs": f"EPSG:{32601 + 5 * (number % ZONES)}"}
        size["transform"] = from_origin(400_000 + place % 200 * 1000, 4_000_000 + place // 200 * 1000, 10, 10)
        with rasterio.open(folder / f"images/{number:06d}.tif", "w", count=BANDS, dtype="uint16", **size) as file:
            file.write(pixels)
            file.descriptions = NAMES
        with rasterio.open(folder / f"masks/{number:06d}.tif", "w", count=1, dtype="uint8", **size) as file:
            file.write((pixels[:1] % 3).astype(np.uint8))


def write_chips(folder: Path, count: int) -> None:
    """Write the chips unless they exist."""
    if (folder / "written").exists():
        return
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    bounds = np.linspace(0, count, 9).astype(int).tolist()
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(write_part, [folder] * 8, bounds[:-1], bounds[1:]))
    (folder / "written").touch()


def run(*arguments: object) -> dict[str, float]:
    """Run an eopipe command; seconds and peak memory in MiB of the largest command so far."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "eopipe", *map(str, arguments)], check=True, capture_output=True)
    return {
        "s": round(time.perf_counter() - start, 1),
        "MiB": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }


def copy_to_grid(folder: Path) -> None:
    """The pixels of the first store of the set in a store on a grid, with the same layout and positions."""
    from eopipe.tiles.grid import make_grid
    from eopipe.tiles.layout import Layout
    from eopipe.tiles.store import Tiles, add_array, new_store

    tiles, labels = (Tiles(folder / f"set/{kind}/chips-0000.zarr") for kind in ("tiles", "labels"))
    layout = Layout(EDGE, 4096)
    height, width = tiles.shape
    grid = make_grid((0.0, 0.0, 10.0 * width, 10.0 * height), "EPSG:32633", 10.0, (0, 0))
    for name, names, store, arrays in (
        ("tiles", NAMES, tiles, ("image", "valid")),
        ("labels", labels.names, labels, ("label", "valid")),
    ):
        with new_store(folder / f"grid/{name}.zarr", grid, names, "" if name == "labels" else "made-up", {}) as group:
            for array in arrays:
                pixels = store.read(array)
                scaling = {"scale_factor": 1.0, "add_offset": 0.0} if array == "image" else {}
                add_array(group, array, pixels.shape, str(pixels.dtype), layout, **scaling)[:] = pixels


def measure(folder: Path, kind: str, shuffle: str, epochs: int) -> None:
    """Print chips per second of the later epochs, read by two workers as they are stored."""
    import torch

    from eopipe.chips.chips import Normaliser
    from eopipe.loader.loader import PREFETCHED_BATCHES, ChipLoader
    from eopipe.loader.prefetch import Prefetcher
    from eopipe.models import Architecture

    paths = {"set": [folder / f"set/{name}/chips-0000.zarr" for name in ("tiles", "labels")]}
    paths["grid"] = [folder / f"grid/{name}.zarr" for name in ("tiles", "labels")]
    tiles, labels = paths[kind]
    changes = {
        "tiles": (tiles,),
        "labels": (labels,),
        "chips": folder / "first.json",
        "bands": NAMES,
        "chip": EDGE,
        "architecture": Architecture("unet", BANDS, 3, 8, 1),
        "normaliser": Normaliser((0.2,) * BANDS, (0.1,) * BANDS),
    }
    job = job_of(Task(folder, np.zeros((1, 2), int), 2, epochs, 60.0), shuffle, 256).model_copy(update=changes)
    loader, rates = ChipLoader(job, torch.device("cpu")), []
    prefetcher: Any = Prefetcher(job, loader.samples, 2, PREFETCHED_BATCHES, finished=False)
    for epoch in range(epochs):
        start, count = time.perf_counter(), 0
        prefetcher.start(_epochs_of(loader, epoch))
        while batch := prefetcher.take():
            count += len(batch.request.numbers)
            prefetcher.free(batch)
        rates.append(count / (time.perf_counter() - start))
    prefetcher.close()
    print(statistics.median(rates[1:]))


def compare(folder: Path, rounds: int, epochs: int) -> None:
    """Rates of both kinds of store in turns."""
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for shuffle in ("chips", "blocks"):
            for kind in ("grid", "set"):
                command = [sys.executable, "-W", "ignore", __file__, str(folder), "--kind", kind, "--shuffle", shuffle]
                ended = subprocess.run([*command, "--epochs", str(epochs)], check=True, capture_output=True, text=True)
                rates.setdefault((shuffle, kind), []).append(float(ended.stdout.split()[-1]))
    for shuffle in ("chips", "blocks"):
        grid, packed = (statistics.median(rates[shuffle, kind]) for kind in ("grid", "set"))
        ratio = statistics.median(a / b for a, b in zip(rates[shuffle, "set"], rates[shuffle, "grid"], strict=True))
        print(f"shuffle {shuffle}: grid {grid:.0f}, chip set {packed:.0f} chips/s, {ratio:.2f} x")


def main() -> None:
    """Write, import, split and load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chips", type=int, default=16_384)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--kind", choices=("grid", "set"), help=argparse.SUPPRESS)
    parser.add_argument("--shuffle", default="chips", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder
    if options.kind:
        measure(folder, options.kind, options.shuffle, options.epochs)
        return
    write_chips(folder, options.chips)
    patterns = ("--images", folder / "images/*.tif", "--masks", folder / "masks/*.tif", "--classes", "a", "b", "c")
    print("import", run("import", folder / "set", *patterns))
    files = [path for path in (folder / "set").rglob("*") if path.is_file()]
    print(len(files), "files,", sum(path.stat().st_size for path in files) // 2**20, "MiB")
    stores = [path for kind in ("tiles", "labels") for path in sorted((folder / "set" / kind).iterdir())]
    half = len(stores) // 2
    outputs = [
        arg for name in ("chips", "statistics", "map", "outlines") for arg in (f"--{name}", folder / f"split.{name}")
    ]
    inputs = ("--tiles", *stores[:half], "--labels", *stores[half:])
    print("split", run("split", *inputs, *outputs, "--allow", "near-duplicate: one landscape"))
    rows = json.loads((folder / "set/chips.json").read_text())["chips"]
    first = [[0, row["row"], row["column"]] for row in rows if row["store"] == "chips-0000"]
    (folder / "first.json").write_text(json.dumps({"samples": {"train": first, "val": [], "test": []}}))
    copy_to_grid(folder)
    compare(folder, options.rounds, options.epochs)


if __name__ == "__main__":
    main()
