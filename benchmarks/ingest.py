"""How fast a Sentinel-2-like scene becomes pixels on a grid, and tiles on disk: eopipe beside its peers.

    python benchmarks/ingest.py [CACHE] [--quarter] [--rounds 3] [--how bilinear] [--only eopipe odc]

Builds a scene in CACHE (once): 4 bands at 10 m, 6 at 20 m and SCL at 20 m, correlated in space as real ones are, as
deflate COGs. Then every contestant runs in a process of its own, one after the other, round by round, so that
a change of the machine's load meets all of them. All read at 10 m, by `--how` (SCL: nearest).
Times are of the work alone, without imports; peak memory is that of the process. The table is Markdown.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FINE, COARSE = ("blue", "green", "red", "nir"), ("re1", "re2", "re3", "nir2", "swir1", "swir2")
BANDS = (*FINE, *COARSE)
EDGE, LEFT, TOP = 10980, 499980.0, 5100000.0
HOME, AWAY = "EPSG:32633", "EPSG:3035"


def build(folder: Path, edge: int, block: int) -> None:
    """Make the scene, unless it is there."""
    if (folder / "scene.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate((*BANDS, "scl")):
        _raster(folder / f"{name}.tif", number, name, edge // (1 if name in FINE else 2), block)
    (folder / "scene.json").write_text(json.dumps(_item(edge)))


def _raster(path: Path, seed: int, name: str, edge: int, block: int) -> None:
    import rasterio
    from rasterio.transform import from_origin

    pixels = _classes(edge) if name == "scl" else _reflectance(edge, seed)
    step = 10.0 * (1 if name in FINE else 2)
    place = {"crs": HOME, "transform": from_origin(LEFT, TOP, step, step), "nodata": 0}
    size = {"height": edge, "width": edge, "count": 1, "dtype": pixels.dtype}
    how = {"compress": "deflate", "predictor": 2, "blocksize": block, "overview_resampling": "nearest"}
    with rasterio.open(path, "w", driver="COG", num_threads=2, **size, **place, **how) as file:
        file.write(pixels, 1)


def _field(edge: int, seed: int, scale: int) -> Any:
    """A smooth field of mean 0 and deviation 1."""
    from scipy.ndimage import gaussian_filter, zoom

    small = gaussian_filter(np.random.default_rng(seed).normal(size=(edge // scale + 8,) * 2), 2).astype("float32")
    field = zoom(small / small.std(), scale, order=1)
    return field[:edge, :edge]


def _reflectance(edge: int, seed: int) -> Any:
    """Landscape, fields, and noise of the sensor."""
    noise = np.random.default_rng(seed).normal(0, 14, (edge, edge)).astype("float32")
    values = 1900 + 150 * seed + 500 * _field(edge, 99, 61) + 120 * _field(edge, seed, 13) + noise
    return np.clip(values + 60 * _field(edge, seed + 50, 5), 1, 16000).astype("uint16")


def _classes(edge: int) -> Any:
    return np.select([_field(edge, 7, 61) > 1.2, _field(edge, 8, 31) > 1.4], [9, 3], 4).astype("uint8")


def _item(edge: int) -> dict[str, Any]:
    """The scene as a STAC Item."""
    from rasterio.warp import transform_bounds

    box = transform_bounds(HOME, "EPSG:4326", LEFT, TOP - 10 * edge, LEFT + 10 * edge, TOP)
    west, south, east, north = box
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    assets = {}
    for name in (*BANDS, "scl"):
        step = 10 * (1 if name in FINE else 2)
        place = {"proj:shape": [edge * 10 // step] * 2, "proj:transform": [step, 0, LEFT, 0, -step, TOP]}
        told = {"scale": 1.0, "offset": 0.0} | ({} if name == "scl" else {"scale": 0.0001})
        kind = {"nodata": 0, "data_type": "uint8" if name == "scl" else "uint16", **told}
        assets[name] = {
            "href": f"{name}.tif",
            "type": "image/tiff; application=geotiff; profile=cloud-optimized",
            "roles": ["data"],
            "raster:bands": [kind],
            **place,
        }
    return {
        "type": "Feature",
        "stac_version": "1.0.0",
        "stac_extensions": [
            "https://stac-extensions.github.io/projection/v1.1.0/schema.json",
            "https://stac-extensions.github.io/raster/v1.1.0/schema.json",
        ],
        "id": "made-up",
        "collection": "made-up",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "bbox": list(box),
        "properties": {"datetime": "2023-08-10T10:00:00Z", "proj:epsg": 32633},
        "links": [],
        "assets": assets,
    }


def grid_of(edge: int, crs: str) -> Any:
    """The scene's own grid, or one of another CRS over the same ground."""
    from odc.geo.geobox import GeoBox

    from eopipe.grid import make_grid

    home = make_grid((LEFT, TOP - 10 * edge, LEFT + 10 * edge, TOP), HOME, 10.0, (LEFT, TOP))
    if crs == HOME:
        return home
    box = home.extent.to_crs(crs).boundingbox
    return GeoBox.from_bbox(box, crs=crs, resolution=10)


@dataclass(frozen=True)
class Job:
    """What each contestant gets: the scene's folder, the grid, and a place for what it writes."""

    folder: Path
    grid: Any
    out: Path
    how: Any


def decode(job: Job) -> None:
    """Only decode the files, two at a time: the limit."""
    from concurrent.futures import ThreadPoolExecutor

    import rasterio
    from rasterio.windows import Window

    def whole(name: str) -> None:
        with rasterio.open(job.folder / f"{name}.tif") as file:
            rows = file.block_shapes[0][0]
            for y in range(0, file.height, rows):
                file.read(1, window=Window(0, y, file.width, min(rows, file.height - y)))

    with rasterio.Env(GDAL_CACHEMAX=64 << 20), ThreadPoolExecutor(2) as pool:
        list(pool.map(whole, (*BANDS, "scl")))


def codec(job: Job) -> None:
    """Only code chunks of as many pixels as the cube has, on two cores: the limit of what is written."""
    from concurrent.futures import ThreadPoolExecutor

    import rasterio
    from rasterio.windows import Window

    from eopipe.shards import Coder

    with rasterio.open(job.folder / "red.tif") as file:
        pixels = file.read(1, window=Window(0, 0, 2048, 256))
    rows = np.stack([pixels] * len(BANDS))
    count = job.grid.shape[0] * job.grid.shape[1] // (2048 * 256)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: len(Coder(256, "lz4", 5).row(rows)), range(count)))


def eopipe_memory(job: Job) -> None:
    """The pixels of all bands and where they are usable, in memory."""
    from contextlib import ExitStack

    from eopipe.scenes.item import bands, read_scene
    from eopipe.scenes.masks import mask_of
    from eopipe.store import Layout, parts
    from eopipe.warping.tiling import Recipe, in_order, open_scene

    item = read_scene(job.folder)
    wanted = bands(job.folder, item, (*BANDS, "scl"))
    recipe = Recipe(wanted[:-1], mask_of(wanted[-1]), job.how, Layout())
    with ExitStack() as stack:
        scene = open_scene(stack, item, job.grid, recipe)
        image, valid = np.empty((len(BANDS), *scene.shape), scene.dtype), np.empty(scene.shape, bool)
        found = parts(scene.shape, recipe.layout, 256)
        scene.plan(found)

        def fill(part: Any) -> None:
            valid[part.window], _ = scene.read(part.window, image[:, *part.window])

        for turn, _ in enumerate(in_order(fill, found, 2)):
            scene.release(turn)


def eopipe_store(job: Job) -> None:
    """The stage: pixels, valid mask and a sharded store with checksums and manifest, synced."""
    from eopipe.grid import grid_json
    from eopipe.publish import write_json
    from eopipe.stages.preprocess import preprocess

    write_json(job.out / "grid.json", grid_json(job.grid))
    preprocess(job.folder, job.out / "grid.json", job.out / "tiles.zarr", bands=BANDS, resampling=job.how, threads=2)


def _odc(job: Job, chunks: dict[str, int] | None, **other: Any) -> Any:
    import pystac
    from odc.stac import load

    item = pystac.Item.from_file(job.folder / "scene.json")
    item.make_asset_hrefs_absolute()
    how = dict.fromkeys(BANDS, job.how) | {"scl": "nearest"}
    return load([item], bands=(*BANDS, "scl"), geobox=job.grid, resampling=how, chunks=chunks, **other)


def odc(job: Job) -> None:
    """`odc.stac.load` with two threads, then SCL as a mask."""
    loaded = _odc(job, None, pool=2)
    np.isin(loaded.scl.values, (4, 5, 6, 7, 2))


def odc_dask(job: Job) -> None:
    """`odc.stac.load` lazily, computed by dask with two threads."""
    import dask

    with dask.config.set(scheduler="threads", num_workers=2):
        _odc(job, {"x": 2048, "y": 2048}).compute()


def odc_store(job: Job) -> None:
    """`odc.stac.load`, stacked and written by `to_zarr` in shards like ours, with the same codec."""
    from zarr.codecs import BloscCodec

    from eopipe.store import Layout

    loaded = _odc(job, None, pool=2)
    cube = loaded[list(BANDS)].to_dataarray("band").isel(time=0, drop=True).rename("image")
    how = {
        "chunks": (len(BANDS), 256, 256),
        "shards": (len(BANDS), *Layout().shards(job.grid.shape)),
        "compressors": [BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle")],
    }
    stored = cube.to_dataset().drop_vars("spatial_ref", errors="ignore").drop_attrs()
    stored.to_zarr(job.out / "odc.zarr", encoding={"image": how}, zarr_format=3, consolidated=False)


def rioxarray(job: Job) -> None:
    """Each band by rioxarray, reprojected."""
    import rioxarray as rio
    from rasterio.enums import Resampling

    for name in (*BANDS, "scl"):
        method = Resampling.nearest if name == "scl" else Resampling[job.how]
        source = rio.open_rasterio(job.folder / f"{name}.tif")
        place = {"transform": job.grid.affine, "shape": job.grid.shape}
        source.rio.reproject(str(job.grid.crs), resampling=method, num_threads=2, **place)


def gdalwarp(job: Job) -> None:
    """Each band by the command, two at a time, to plain files."""
    from concurrent.futures import ThreadPoolExecutor

    box = job.grid.boundingbox

    def one(name: str) -> None:
        extent = ["-te", *map(str, (box.left, box.bottom, box.right, box.top))]
        size = ["-ts", *map(str, job.grid.shape[::-1])]
        how = ["-r", "near" if name == "scl" or job.how == "nearest" else job.how, "-wm", "256"]
        files = [str(job.folder / f"{name}.tif"), str(job.out / f"{name}.tif")]
        subprocess.run(
            [str(shutil.which("gdalwarp")), "-q", "-t_srs", str(job.grid.crs), *extent, *size, *how, *files], check=True
        )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, (*BANDS, "scl")))


def stackstac(job: Job) -> None:
    """stackstac, computed by dask with two threads."""
    import dask
    import pandas as pd
    import pystac
    import stackstac as stack
    from rasterio.enums import Resampling

    # stackstac 0.5 passes an argument that pandas 3 has no more.
    parse = pd.to_datetime
    pd.to_datetime = lambda times, **_: parse(times)

    item = pystac.Item.from_file(job.folder / "scene.json")
    item.make_asset_hrefs_absolute()
    bounds = tuple(job.grid.boundingbox.bbox)
    with dask.config.set(scheduler="threads", num_workers=2):
        stack.stack(
            [item.to_dict()],
            assets=[*BANDS, "scl"],
            epsg=job.grid.crs.to_epsg(),
            resolution=10,
            bounds=bounds,
            resampling=Resampling[job.how],
            dtype="uint16",
            fill_value=np.uint16(0),
            rescale=False,
            chunksize=2048,
        ).compute()


CONTESTANTS: dict[str, Callable[[Job], None]] = {
    "decode": decode,
    "codec": codec,
    "eopipe": eopipe_memory,
    "eopipe_store": eopipe_store,
    "odc": odc,
    "odc_dask": odc_dask,
    "odc_store": odc_store,
    "rioxarray": rioxarray,
    "gdalwarp": gdalwarp,
    "stackstac": stackstac,
}
# What each imports anyway; the clock starts after that.
IMPORTS = {
    "eopipe": ("rasterio.warp", "odc.geo.geobox", "pyproj", "zarr", "numcodecs", "google_crc32c"),
    "odc": ("odc.stac", "pystac", "xarray", "dask.array", "zarr"),
    "rioxarray": ("rioxarray", "dask.array"),
    "stackstac": ("stackstac", "pystac", "dask.array"),
}


def measure(name: str, folder: Path, grid: Any, how: str) -> None:
    """Run one contestant in this process; print its seconds and its peak memory in MiB."""
    import importlib

    for module in IMPORTS.get(name.split("_", maxsplit=1)[0], ("rasterio",)):
        importlib.import_module(module)
    out = folder / "out" / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    begin = time.perf_counter()
    CONTESTANTS[name](Job(folder, grid, out, how))
    seconds = time.perf_counter() - begin
    shutil.rmtree(out)
    # What getrusage tells of a process may come from the one that started it.
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    peak = max(int(own.split()[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024
    print(json.dumps({"seconds": seconds, "peak": peak}))


def compare(names: list[str], folder: Path, words: list[str], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run the contestants round by round, each in a process of its own."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names:
            line = [sys.executable, __file__, str(folder), *words, "--run", name]
            ended = subprocess.run(line, capture_output=True, text=True, check=False)
            if ended.returncode:
                last = (ended.stderr.strip().splitlines() or ["killed"])[-1]
                print(f"{name} failed with {ended.returncode}: {last}", file=sys.stderr)
                continue
            found[name].append(json.loads(ended.stdout.strip().splitlines()[-1]))
            print(turn, name, found[name][-1], file=sys.stderr)
    return {name: rows for name, rows in found.items() if rows}


def table(title: str, found: dict[str, list[dict[str, float]]]) -> str:
    """Medians, and how many times as long as eopipe each took, from the ratios of the rounds."""
    lines = [f"| {title} | s | range | x eopipe | x eopipe_store | peak MiB |", "|---|---|---|---|---|---|"]
    for name, rows in found.items():
        times = [row["seconds"] for row in rows]
        ratios = [_ratio(times, found.get(rival)) for rival in ("eopipe", "eopipe_store")]
        span = f"{min(times):.2f}-{max(times):.2f}"
        peak = max(row["peak"] for row in rows)
        lines.append(f"| {name} | {statistics.median(times):.2f} | {span} | {' | '.join(ratios)} | {peak:.0f} |")
    return "\n".join(lines)


def _ratio(times: list[float], rival: list[dict[str, float]] | None) -> str:
    if not rival:
        return "-"
    return f"{statistics.median(a / b['seconds'] for a, b in zip(times, rival, strict=False)):.2f}"


def main() -> None:
    """Parse the words and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "eopipe-ingest")
    parser.add_argument("--quarter", action="store_true", help="5490 x 5490 pixels instead of 10980 x 10980")
    parser.add_argument("--block", type=int, default=512, help="edge of a block of the files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--crs", nargs="+", default=[HOME, AWAY], help="grids to read on")
    parser.add_argument("--how", choices=("nearest", "bilinear"), default="bilinear", help="resampling of the bands")
    parser.add_argument("--run", choices=CONTESTANTS, help=argparse.SUPPRESS)
    told = parser.parse_args()
    edge = EDGE // 2 if told.quarter else EDGE
    folder = told.cache if told.run else told.cache / f"s2-{edge}-{told.block}"
    if told.run:
        measure(told.run, folder, grid_of(edge, told.crs[0]), told.how)
        return
    build(folder, edge, told.block)
    for crs in told.crs:
        words = ["--crs", crs, "--how", told.how, *(["--quarter"] if told.quarter else [])]
        print(table(f"{edge} x {edge}, {crs}, {told.how}", compare(told.only, folder, words, told.rounds)), flush=True)


if __name__ == "__main__":
    main()
