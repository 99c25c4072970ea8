"""Cost follows what scenes cover: a grid 16 times larger around the same scenes costs what the smaller one does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import BANDS, write_store

from eopipe.tiles.grid import make_grid
from eopipe.tiles.layout import Layout
from eopipe.tiles.shard_reader import StoredWindow

pytestmark = pytest.mark.exhaustive

SMALL, LARGE = 2048, 8192
SCENES, EDGE, LAYOUT = 12, 256, Layout(64, 256)
# Prints the numbers of pixels that a command reads from stores, and the peak of its memory in KiB.
COUNTED = """
import sys
from eopipe.cli import main
from eopipe.tiles.shard_reader import ShardedArrayReader

read, pixels = ShardedArrayReader.read, [0]

def counted(self, out, *arguments):
    pixels[0] += out.size
    read(self, out, *arguments)

ShardedArrayReader.read = counted
code = main(sys.argv[1:])
print(pixels[0], next(row.split()[1] for row in open("/proc/self/status") if row.startswith("VmHWM")))
sys.exit(code)
"""


def write_scenes(folder: Path, edge: int) -> tuple[list[Path], list[Path]]:
    """Scenes of a few pixels side by side in the corner of a grid, with labels in polygons of 32 x 32 pixels."""
    grid, random = make_grid((0.0, 0.0, 10.0 * edge, 10.0 * edge), "EPSG:32633", 10.0, (0, 0)), np.random.default_rng(5)
    tiles, labels = [], []
    blocks = np.kron(np.arange(64).reshape(8, 8), np.ones((32, 32), int))
    for number in range(SCENES):
        row, column = (place * 2 * EDGE for place in divmod(number, 4))
        window = StoredWindow((edge, edge), (row, column), EDGE)
        part, name = grid[row : row + EDGE, column : column + EDGE], f"s{number:02}"
        attributes = {"datetime": f"2024-01-{number + 1:02}T10:00:00Z"}
        options: dict[str, Any] = {"grid": part, "scene": name, "layout": LAYOUT, "window": window}
        image = {"image": random.integers(1, 4000, (2, EDGE, EDGE), dtype="uint16")}
        of_tiles = options | attributes | {"scaling": (1.0, 0.0)}
        tiles.append(write_store(folder / f"{name}.zarr", BANDS, image, **of_tiles))
        arrays = {"label": (blocks % 2).astype(np.uint8), "polygon": (blocks + 1).astype(np.int32)}
        labels.append(write_store(folder / f"{name}-label.zarr", ("x", "y"), arrays, **options))
    return tiles, labels


def cost(*arguments: object) -> tuple[int, int]:
    """Pixels that a command reads, and its peak memory in KiB."""
    line = [sys.executable, "-c", COUNTED, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    pixels, memory = done.stdout.splitlines()[-1].split()
    return int(pixels), int(memory)


def split(folder: Path, edge: int, *options: object) -> tuple[tuple[int, int], dict[str, int]]:
    """Cost of a split on a grid of this edge, and its chips."""
    tiles, labels = write_scenes(folder / str(edge), edge)
    names = ("chips.json", "statistics.json", "map.png", "places.gpkg")
    outputs = [folder / str(edge) / name for name in names]
    ports = [
        part
        for port, path in zip(("--chips", "--statistics", "--map", "--outlines"), outputs, strict=True)
        for part in (port, path)
    ]
    allowed = ["--allow", "place: made up", "duplicate: made up", "near-duplicate: made up", "random: made up"]
    chips = ["--chip", 64, "--stride", 64, *allowed]
    costs = cost("split", "--tiles", *tiles, "--labels", *labels, *ports, *chips, *options)
    return costs, {name: len(rows) for name, rows in json.loads(outputs[0].read_text())["samples"].items()}


def write_maps(folder: Path, edge: int) -> list[Path]:
    """A map of each scene, of which every pixel is of the first class; the other blocks of a file are left out."""
    import rasterio
    from rasterio.windows import Window

    paths, transform = [], rasterio.transform.from_origin(0.0, 10.0 * edge, 10.0, 10.0)
    profile = {"driver": "GTiff", "width": edge, "height": edge, "count": 1, "dtype": "uint8", "nodata": 255}
    profile |= {"tiled": True, "blockxsize": 256, "blockysize": 256, "sparse_ok": True, "crs": "EPSG:32633"}
    for number in range(SCENES):
        row, column = (place * 2 * EDGE for place in divmod(number, 4))
        paths.append(folder / f"s{number:02}.tif")
        with rasterio.open(paths[-1], "w", transform=transform, **profile) as file:
            file.write(np.zeros((EDGE, EDGE), np.uint8), 1, window=Window(column, row, EDGE, EDGE))
            file.update_tags(scenes=f"s{number:02}")
    return paths


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--method", "temporal", "--dates", "2024-01-07", "2024-01-10"), id="dates"),
        pytest.param(("--method", "group", "--by", "polygon"), id="polygons"),
        pytest.param(("--method", "group", "--by", "scene"), id="scenes"),
        pytest.param(("--method", "random"), id="random"),
    ],
)
def test_a_split_costs_what_its_scenes_cover(tmp_path: Path, options: tuple[object, ...]) -> None:
    (pixels, memory), chips = split(tmp_path, SMALL, *options)
    (more_pixels, more_memory), more_chips = split(tmp_path, LARGE, *options)
    assert more_chips == chips
    assert sum(chips.values()) > 100
    assert more_pixels <= 1.1 * pixels
    assert more_memory <= 1.3 * memory


def test_scores_cost_what_the_scenes_cover(tmp_path: Path) -> None:
    costs, metrics = [], []
    for edge in (SMALL, LARGE):
        split(tmp_path, edge, "--method", "group", "--by", "polygon")
        folder, names = tmp_path / str(edge), [f"s{number:02}" for number in range(SCENES)]
        inputs = {"--classes": write_maps(folder, edge)}
        inputs |= {"--tiles": [folder / f"{name}.zarr" for name in names]}
        inputs |= {"--labels": [folder / f"{name}-label.zarr" for name in names], "--chips": [folder / "chips.json"]}
        line = [part for port, paths in inputs.items() for part in (port, *paths)]
        costs.append(cost("evaluate", *line, "--metrics", folder / "metrics.json"))
        metrics.append(json.loads((folder / "metrics.json").read_text())["model"])
    (pixels, memory), (more_pixels, more_memory) = costs
    assert metrics[0] == metrics[1]
    assert metrics[0]["accuracy"] == 0.5
    assert more_pixels <= 1.1 * pixels
    assert more_memory <= 1.3 * memory
