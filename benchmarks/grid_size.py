"""The cost of one small scene on a grid of any size: `python benchmarks/grid_size.py EOPIPE [EOPIPE ...]`.

Each argument is an `eopipe` command, as of two versions side by side. A scene of the sample (100 x 100 pixels) is
preprocessed onto grids of growing edges with the scene in their middle; prints the medians of alternating rounds: CPU
seconds, files and bytes of the store.
"""

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from eopipe.publish import files
from eopipe.text_files import read_json

ROOT = Path(__file__).parents[1]
SCENE = ROOT / "sample/sentinel-2-l2a-romania/S2_ROMANIA_20180422"
EDGES, ROUNDS = (100, 4096, 16384, 65536), 3


def main() -> None:
    """Measure and print a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scene = prepare(folder)
        band = read_json(scene / "scene.json")["assets"]["red"]
        print("| command | grid edge | CPU s | files | bytes |\n|---|---:|---:|---:|---:|")
        for edge in EDGES:
            grid = write_grid(folder / f"{edge}.json", edge, band, read_json(scene / "scene.json"))
            rounds = [
                [measure(command, scene, grid, folder / "t.zarr") for command in sys.argv[1:]] for _ in range(ROUNDS)
            ]
            for number, command in enumerate(sys.argv[1:]):
                seconds = median(row[number][0] for row in rounds)
                _, count, size = rounds[0][number]
                print(f"| {command} | {edge:,} | {seconds:.2f} | {count} | {size:,} |")


def prepare(folder: Path) -> Path:
    """The scene as `fetch` leaves it."""
    scene = folder / "scene"
    shutil.copytree(SCENE, scene)
    (item,) = scene.glob("*.json")
    item.rename(scene / "scene.json")
    return scene


def write_grid(path: Path, edge: int, band: dict, item: dict) -> Path:
    """A grid of this edge with the scene in its middle, on pixels of its band."""
    stated = item["properties"] | band
    step, _, left, _, _, top = stated["proj:transform"][:6]
    shift = (edge - 100) // 2 * step
    transform = [step, 0.0, left - shift, 0.0, -step, top + shift]
    crs = stated.get("proj:code") or f"EPSG:{stated['proj:epsg']}"
    path.write_text(json.dumps({"crs": crs, "shape": [edge, edge], "transform": transform}))
    return path


def measure(command: str, scene: Path, grid: Path, target: Path) -> tuple[float, int, int]:
    """CPU seconds of one `preprocess`, and files and bytes of its store."""
    shutil.rmtree(target, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [command, "preprocess", "--scene", scene, "--grid", grid, "--tiles", target], check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    stored = files(target)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, len(stored), sum(path.stat().st_size for path in stored)


if __name__ == "__main__":
    main()
