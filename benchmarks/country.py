"""What a run of many scenes costs before its first job: `python benchmarks/country.py FOLDER [SCENES ...]`.

Small scenes at real positions on a grid of 100,000 x 100,000 pixels of 10 m: 100 rows of 100 places, or every n-th of
them. For each number of scenes it prints seconds and peak memory of
`check`, of the search as a job of Snakemake, of a dry run after the search, and of `plan`, and the files that `plan`
counts for each scene. The folder is created, and stays.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import rasterio
from rasterio.transform import from_origin
from rasterio.warp import transform

PLACES, PIXELS, STEP, LEFT, TOP, CRS = 100, 64, 10.0, 300_000.0, 6_000_000.0, "EPSG:32633"
BANDS = ("blue", "green", "red", "nir")
CONFIG = """
search: {catalog: catalog, assets: [blue, green, red, nir]}
preprocess: {mask: none}
label: {source: labels.geojson, attribute: class, classes: [a, b]}
split: {method: blocks, chip: 64, block: 4096}
"""
SEARCH = ("run", "results/items/manifest.json", "--configfile", "config.yaml", "--cores", "2")
COMMANDS = {
    "check": ("check", "config.yaml"),
    "search": SEARCH,
    "dry run": ("run", "--dry-run", "--configfile", "config.yaml", "--cores", "2"),
    "plan": ("plan", "config.yaml"),
}


def main() -> None:
    """Write the scenes, measure and print a table."""
    print(f"| scenes | {' | '.join(f'{name}, s | MB' for name in COMMANDS)} | inodes a store | inodes a scene |")
    print(f"|---:{'|---:' * (2 * len(COMMANDS) + 2)}|")
    for count in map(int, sys.argv[2:] or ("1000", "3000", "10000")):
        project = Path(sys.argv[1], str(count))
        write_project(project, count)
        cells = [cell for arguments in COMMANDS.values() for cell in measure(project, arguments)]
        needs = json.loads((project / "plan/plan.json").read_text())["needs"]
        # The labels are one store for all scenes.
        inodes = {need["name"]: need["inodes"] / count for need in needs if need["name"] != "labels"}
        print(f"| {count:,} | {' | '.join(cells)} | {inodes['tiles']:.1f} | {sum(inodes.values()):.1f} |", flush=True)


def write_project(project: Path, count: int) -> None:
    """A catalog of scenes over the country with a date each, a label in every place, and a config."""
    random, links, labels = np.random.default_rng(1), [], []
    for number in range(count):
        row, column = divmod(number * (PLACES**2 // count), PLACES)
        name, left, top = f"scene-{number:05}", LEFT + column * 10_000.0, TOP - row * 10_000.0
        item = write_scene(project / "catalog" / name, name, (left, top), random)
        links.append({"rel": "item", "href": f"./{name}/{name}.json"})
        properties = {"class": "ab"[number % 2]}
        labels.append({"type": "Feature", "geometry": item["geometry"], "properties": properties})
    catalog = {"type": "Catalog", "stac_version": "1.0.0", "id": "country", "description": "Made up", "links": links}
    (project / "catalog/catalog.json").write_text(json.dumps(catalog))
    (project / "labels.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": labels}))
    (project / "config.yaml").write_text(CONFIG)


def write_scene(folder: Path, name: str, corner: tuple[float, float], random: np.random.Generator) -> dict:
    """The Item of a scene with its upper left corner there, and a raster of noise for each band."""
    folder.mkdir(parents=True)
    (left, top), edge, affine = corner, PIXELS * STEP, from_origin(*corner, STEP, STEP)
    profile = {"driver": "GTiff", "width": PIXELS, "height": PIXELS, "count": 1, "dtype": "uint16", "crs": CRS}
    place = {"proj:code": CRS, "proj:shape": [PIXELS, PIXELS], "proj:transform": list(affine)[:6]}
    for band in BANDS:
        with rasterio.open(folder / f"{band}.tif", "w", **profile, transform=affine, nodata=0) as file:
            file.write(random.integers(1, 4000, (PIXELS, PIXELS), dtype="uint16"), 1)
    x, y = [left, left + edge, left + edge, left, left], [top - edge, top - edge, top, top, top - edge]
    degrees = transform(CRS, "EPSG:4326", x, y)
    item = {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": name,
        "geometry": {"type": "Polygon", "coordinates": [list(map(list, zip(*degrees, strict=True)))]},
        "properties": {"datetime": "2024-06-01T10:00:00Z", "eo:cloud_cover": 10.0} | place,
        "links": [],
        "assets": {band: {"href": f"./{band}.tif", "type": "image/tiff; application=geotiff"} for band in BANDS},
    }
    (folder / f"{name}.json").write_text(json.dumps(item))
    return item


def measure(project: Path, arguments: tuple[str, ...]) -> list[str]:
    """Seconds and peak MB of a command of eopipe; of its largest process where it has several."""
    start = time.monotonic()
    with (project / "log.txt").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "eopipe", *arguments], cwd=project, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"eopipe {' '.join(arguments)} failed; {log.name} says why")
    return [f"{time.monotonic() - start:.1f}", f"{usage.ru_maxrss / 1000:,.0f}"]


if __name__ == "__main__":
    main()
