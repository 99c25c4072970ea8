"""Cost of a map: the stage predict beside the bare forward of its windows, ONNX Runtime and a loop of TorchGeo.

    python benchmarks/mapping.py [CACHE] [--edge 2048] [--rounds 3] [--only eopipe forward]

Builds in CACHE (once) a made-up scene of 4 bands, as a tile store and as a GeoTIFF, and the default U-Net with random
weights for 4 classes. A contestant runs each time in a process of its own, round by round, so that a change of the
machine's load affects all of them, first on a small scene, so that start and imports do not count. All use 2 threads:

- `eopipe`: the whole stage, from the store to both COGs.
- `forward`: the same windows with the same halo, read and normalised beforehand, to probabilities in memory.
- `onnx`: the same windows through the exported model in ONNX Runtime, likewise.
- `torchgeo`: RasterDataset, GridGeoSampler and DataLoader over the GeoTIFF, with chips of 256 pixels in batches of 8
  and no halo; it writes a GeoTIFF of classes alone. TorchGeo is installed by hand (`pip install --no-deps`).
- `chip_loop`: the same without TorchGeo: a Dataset that reads the chips of a lattice by rasterio.

Prints Markdown; then, unless only one runs, how ONNX Runtime's probabilities, and the classes of the loop of chips,
differ from eopipe's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from landscape import reflectance
from mapping_peers import CONTESTANTS, THREADS, Job, differences

BANDS, CLASSES, SMALL = ("blue", "green", "red", "nir"), ("a", "b", "c", "d"), 256


def build(folder: Path, edge: int) -> None:
    """Build scene, model and exported model unless they exist."""
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in (("small", SMALL), ("large", edge)):
        _scene(folder / name, np.stack([reflectance(size, number) for number in range(len(BANDS))]))
    _model(folder)
    (folder / "done").touch()


def _scene(folder: Path, image: Any) -> None:
    import rasterio

    from eopipe.tiles.grid import make_grid
    from eopipe.tiles.layout import Layout
    from eopipe.tiles.store import add_array, new_store

    edge, layout = image.shape[-1], Layout()
    grid = make_grid((0.0, 0.0, 10.0 * edge, 10.0 * edge), "EPSG:32633", 10.0, (0, 0))
    with new_store(folder / "tiles.zarr", grid, BANDS, "made-up", {"datetime": "2020-07-01T00:00:00Z"}) as group:
        scaling = {"scale_factor": 0.0001, "add_offset": 0.0}
        add_array(group, "image", image.shape, "uint16", layout, **scaling)[:] = image
        add_array(group, "valid", image.shape[1:], "uint8", layout)[:] = 1
    size = {"height": edge, "width": edge, "count": len(BANDS), "dtype": "uint16"}
    options = {"compress": "deflate", "predictor": 2, "blocksize": 512}
    place = {"crs": "EPSG:32633", "transform": grid.affine}
    with rasterio.open(folder / "scene.tif", "w", driver="COG", **size, **place, **options) as file:
        file.write(image)


def _model(folder: Path) -> None:
    import torch

    from eopipe.chips.chips import Normaliser
    from eopipe.contract import stage
    from eopipe.models import Architecture
    from eopipe.models.model_folder import TrainedModel, write_model_folder
    from eopipe.models.onnx import write_onnx
    from eopipe.publish import publish

    torch.manual_seed(0)
    default = {port.name: port.default for port in stage("train").ports}
    sizes = default["width"], default["depth"]
    architecture = Architecture("unet", len(BANDS), len(CLASSES), *sizes)
    normaliser = Normaliser((0.19, 0.2, 0.22, 0.24), (0.05,) * len(BANDS))
    trained = TrainedModel(architecture, BANDS, CLASSES, normaliser, 64)
    with publish(folder / "model", folder=True) as draft:
        write_model_folder(draft, trained, architecture.build().state_dict(), [], {})
    write_onnx(folder / "model.onnx", trained, folder / "model")


def measure(name: str, folder: Path) -> None:
    """Run one contestant in this process; print seconds, CPU seconds and peak memory in MiB."""
    with tempfile.TemporaryDirectory() as out:
        CONTESTANTS[name](Job(folder, "small", Path(out) / "small"))()
        # What is read beforehand is not timed.
        run = CONTESTANTS[name](Job(folder, "large", Path(out) / "large"))
        cpu, begin = _cpu_seconds(), time.perf_counter()
        run()
        seconds, cpu = time.perf_counter() - begin, _cpu_seconds() - cpu
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak}))


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def compare(names: list[str], folder: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run the contestants round by round, each in its own process; report what is not installed."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    variables = os.environ | {"OMP_NUM_THREADS": str(THREADS), "OMP_WAIT_POLICY": "passive"}
    variables["GDAL_CACHEMAX"] = "64"
    for round_number in range(rounds):
        for name in names:
            command = [sys.executable, "-W", "ignore", __file__, str(folder), "--run", name]
            ended = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
            if ended.returncode:
                last = (ended.stderr.strip().splitlines() or ["killed"])[-1]
                print(f"{name} failed with {ended.returncode}: {last}", file=sys.stderr)
                continue
            results[name].append(json.loads(ended.stdout.strip().splitlines()[-1]))
            print(round_number, name, results[name][-1], file=sys.stderr)
    return {name: rows for name, rows in results.items() if rows}


def table(title: str, results: dict[str, list[dict[str, float]]], pixels: int) -> str:
    """Medians, and the ratio of eopipe's CPU seconds to another program's, as median of the ratios of the rounds."""
    header = [title, "s", "range", "CPU s", "CPU us per pixel", "CPU of eopipe x", "peak MiB"]
    lines = [header, ["---", *["---:"] * (len(header) - 1)]]
    for name, rows in results.items():
        times, cpu = ([row[key] for row in rows] for key in ("seconds", "cpu"))
        ratios = [of["cpu"] / row["cpu"] for of, row in zip(results.get("eopipe", []), rows, strict=False)]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
        cost, peak = statistics.median(cpu), max(row["peak"] for row in rows)
        cells = [f"{statistics.median(times):.2f}", f"{min(times):.2f}-{max(times):.2f}", f"{cost:.2f}"]
        lines.append([name, *cells, f"{1e6 * cost / pixels:.2f}", ratio, f"{peak:.0f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "eopipe-mapping")
    parser.add_argument("--edge", type=int, default=2048, help="edge of the scene in pixels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--run", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        measure(options.run, options.cache)
        return
    folder = options.cache / f"scene-{options.edge}"
    build(folder, options.edge)
    results = compare(options.only, folder, options.rounds)
    print(table(f"{options.edge} x {options.edge} x {len(BANDS)}", results, options.edge**2), flush=True)
    if len(options.only) > 1:
        with tempfile.TemporaryDirectory() as out:
            print("\n" + differences(folder, Path(out)))
    print("load of the machine over 1, 5 and 15 minutes:", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    main()
