"""What split, evaluate and report cost by what scenes cover: `python benchmarks/covered.py FOLDER KIND [SCENES ...]`.

`country`: small scenes on a grid of 100,000 x 100,000 pixels of 10 m. `granule`: dates of one grid of 10,980 x 10,980
pixels. Stores, labels and map are made up and written by this process; then each command runs in a process of its own.
Prints its seconds and peak memory. The folder is created, and stays.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import rasterio
from odc.geo.geobox import GeoBox
from rasterio.windows import Window

from eopipe.tiles.grid import make_grid, windows
from eopipe.tiles.layout import Layout
from eopipe.tiles.shard_reader import StoredWindow
from eopipe.tiles.store import add_array, new_store

BANDS, CRS, ORIGIN = ("blue", "green", "red", "nir"), "EPSG:32633", (0, 0)
# Edge of the grid and of a scene, of a chip and of a block of the split, and of what is written at once.
KINDS = {"country": (100_000, 64, 64, 4096, 8192), "granule": (10_980, 10_980, 256, 1024, 2048)}
SCENES = {"country": (1000, 3000, 10_000), "granule": (1, 3, 6)}
# A country has 100 rows of 100 places.
PLACES, STEP = 100, 1000
# Prints the peak of its memory in KiB; the figure of wait4 for a child includes this process.
PEAK = "print(next(row.split()[1] for row in open('/proc/self/status') if row.startswith('VmHWM')))"
STARTED = f"import sys; from eopipe.cli import main; code = main(sys.argv[1:]); {PEAK}; sys.exit(code)"
ALLOWED = ("duplicate: made up", "near-duplicate: made up", "autocorrelation: made up")


def main() -> None:
    """Write, measure and print a table."""
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    print("| scenes | split, s | MB | evaluate, s | MB | report, s | MB |\n|---:|---:|---:|---:|---:|---:|---:|")
    labels = write_labels(folder / f"{kind}-labels.zarr", kind)
    for count in map(int, sys.argv[3:] or SCENES[kind]):
        cells = measure(folder / f"{kind}-{count}", kind, count, labels)
        print(f"| {count:,} | {' | '.join(cells)} |", flush=True)


def measure(folder: Path, kind: str, count: int, labels: Path) -> list[str]:
    """Write the scenes and their map; seconds and megabytes of each command."""
    folder.mkdir(parents=True)
    tiles, classes = write_scenes(folder, kind, count)
    _, _, chip, block, _ = KINDS[kind]
    inputs = ["--tiles", *tiles, "--labels", labels, "--chips", folder / "chips.json"]
    outputs = ["--statistics", "statistics.json", "--map", "map.png", "--outlines", "outlines.gpkg"]
    plan = ["--chip", chip, "--block", block, "--allow", *ALLOWED]
    cells = [*run(folder, "split", *inputs, *outputs, *plan)]
    cells += run(folder, "evaluate", *inputs, "--classes", classes, "--metrics", "metrics.json")
    settings = ["--architecture", "linear", "--steps", 1, "--batch", 1, "--crop", 0, "--processes", 1]
    run(folder, "train", *inputs, "--statistics", "statistics.json", "--model", "model", *settings)
    items = ["--scenes", *(write_item(folder, path) for path in tiles)]
    maps = ["--classes", classes, "--probabilities", write_probabilities(classes)]
    of_run = ["--metrics", "metrics.json", "--model", "model", *maps, *items]
    pages = ["--page", "page.html", "--picture", "page.png", "--model-card", "model.md", "--data-card", "data.md"]
    return [*cells, *run(folder, "report", *inputs, *of_run, *pages)]


def write_item(folder: Path, tiles: Path) -> Path:
    """The STAC Item of a store."""
    path = folder.absolute() / f"{tiles.stem}.json"
    item = {"type": "Feature", "stac_version": "1.1.0", "id": tiles.stem, "collection": "made-up", "geometry": None}
    when = json.loads((tiles / "zarr.json").read_bytes())["attributes"]["datetime"]
    path.write_text(json.dumps(item | {"properties": {"datetime": when}, "links": [], "assets": {}}))
    return path


def run(folder: Path, *arguments: object) -> tuple[str, str]:
    """Seconds and peak memory in MB of a command."""
    start = time.monotonic()
    line = [sys.executable, "-c", STARTED, *map(str, arguments)]
    done = subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return f"{time.monotonic() - start:.1f}", f"{int(done.stdout) * 1024 / 1e6:.0f}"


def write_probabilities(classes: Path) -> Path:
    """A map of probabilities without any, as where no scene was."""
    target = classes.with_name("probabilities.tif")
    with rasterio.open(classes) as source:
        profile = dict(source.profile) | {"dtype": "uint16", "nodata": 65535, "count": 2, "sparse_ok": True}
        with rasterio.open(target, "w", **profile | {"BIGTIFF": "YES"}) as file:
            file.descriptions = ("x", "y")
            file.update_tags(scenes=source.tags()["scenes"])
    return target


def write_labels(path: Path, kind: str) -> Path:
    """Labels of two classes like a chess board of 16 pixels, everywhere."""
    edge, _, _, _, part = KINDS[kind]
    if path.exists():
        return path
    layout, squares = Layout(512, part), np.add.outer(np.arange(part) // 16, np.arange(part) // 16) % 2
    with new_store(path.absolute(), grid_of(edge), ("x", "y"), "", {}) as group:
        label, valid = (add_array(group, name, (edge, edge), "uint8", layout) for name in ("label", "valid"))
        for y, x in windows((edge, edge), part):
            label[y, x] = squares[: y.stop - y.start, : x.stop - x.start].astype(np.uint8)
            valid[y, x] = 1
    return path.absolute()


def write_scenes(folder: Path, kind: str, count: int) -> tuple[list[Path], Path]:
    """Stores of scenes with a month each, and a map of their mosaic; both of noise."""
    edge, size, _, _, part = KINDS[kind]
    random, grid, layout = np.random.default_rng(1), grid_of(edge), Layout(min(size, 512), min(size, 2048))
    noise, tiles, places = random.integers(1, 4000, (len(BANDS), size, size), dtype="uint16"), [], []
    for number in range(count):
        place = number * (PLACES**2 // count) if kind == "country" else 0
        row, column = (STEP * index for index in divmod(place, PLACES))
        path, window = folder.absolute() / f"scene-{number:05}.zarr", StoredWindow((edge, edge), (row, column), 2048)
        attributes = {"datetime": f"2024-{number % 12 + 1:02}-01T10:00:00Z"}
        cells = grid[row : row + size, column : column + size]
        with new_store(path, cells, BANDS, path.stem, attributes, window) as group:
            image = add_array(group, "image", noise.shape, "uint16", layout, scale_factor=1e-4, add_offset=0.0)
            image[:] = noise + np.uint16(number % 50)
            add_array(group, "valid", (size, size), "uint8", layout)[:] = 1
        tiles.append(path)
        places.append((row, column))
    profile = {"driver": "GTiff", "width": edge, "height": edge, "count": 1, "dtype": "uint8", "nodata": 255}
    profile |= {"tiled": True, "blockxsize": 512, "blockysize": 512, "sparse_ok": True, "compress": "deflate"}
    classes = folder.absolute() / "map.tif"
    with rasterio.open(classes, "w", crs=CRS, transform=grid.affine, BIGTIFF="YES", **profile) as file:
        for row, column in dict.fromkeys(places):
            for y, x in windows((size, size), part):
                height, width = y.stop - y.start, x.stop - x.start
                window = Window(column + x.start, row + y.start, width, height)
                file.write(random.integers(0, 2, (height, width), dtype="uint8"), 1, window=window)
        file.update_tags(scenes=" ".join(path.stem for path in tiles))
    return tiles, classes


def grid_of(edge: int) -> GeoBox:
    """A square grid of pixels of 10 m."""
    return make_grid((0.0, 0.0, 10.0 * edge, 10.0 * edge), CRS, 10.0, ORIGIN)


if __name__ == "__main__":
    main()
