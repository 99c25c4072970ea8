"""The contestants of `ingest.py`."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ingest_scene import BANDS


@dataclass(frozen=True)
class Job:
    """Input of a contestant: folder of the scene, grid, output folder and resampling."""

    folder: Path
    grid: Any
    out: Path
    resampling: Any


def decode(job: Job) -> None:
    """Only decode the files, two at a time: the lower bound of reading."""
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
    """Only encode chunks of as many pixels as the cube has, on two cores: the lower bound of writing."""
    from concurrent.futures import ThreadPoolExecutor

    import rasterio
    from rasterio.windows import Window

    from eopipe.tiles.layout import ChunkEncoder

    with rasterio.open(job.folder / "red.tif") as file:
        pixels = file.read(1, window=Window(0, 0, 2048, 256))
    rows = np.stack([pixels] * len(BANDS))
    count = job.grid.shape[0] * job.grid.shape[1] // (2048 * 256)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: len(ChunkEncoder(256, "lz4", 5).row(rows)), range(count)))


def eopipe_memory(job: Job) -> None:
    """The pixels of all bands and their valid mask, in memory."""
    from contextlib import ExitStack

    from eopipe.scenes.item import bands, read_scene
    from eopipe.scenes.masks import mask_of
    from eopipe.tiles.layout import Layout, shard_regions
    from eopipe.warp.write_tiles import TileRecipe, map_in_order, open_scene

    item = read_scene(job.folder)
    scene_bands = bands(job.folder, item, (*BANDS, "scl"))
    recipe = TileRecipe(scene_bands[:-1], mask_of(scene_bands[-1]), job.resampling, Layout())
    with ExitStack() as stack:
        scene = open_scene(stack, item, job.grid, recipe)
        image, valid = np.empty((len(BANDS), *scene.shape), scene.dtype), np.empty(scene.shape, bool)
        regions = shard_regions(scene.shape, recipe.layout, 256)
        scene.plan(regions)

        def fill(region: Any) -> None:
            valid[region.window], _ = scene.read(region.window, image[:, *region.window])

        for number, _ in enumerate(map_in_order(fill, regions, 2)):
            scene.release(number)


def eopipe_store(job: Job) -> None:
    """The stage: pixels, valid mask and a sharded store with checksums and manifest, synced."""
    from eopipe.stages.preprocess import preprocess
    from eopipe.text_files import write_json
    from eopipe.tiles.grid import grid_json

    write_json(job.out / "grid.json", grid_json(job.grid))
    preprocess(
        job.folder, job.out / "grid.json", job.out / "tiles.zarr", bands=BANDS, resampling=job.resampling, threads=2
    )


def _odc(job: Job, chunks: dict[str, int] | None, **options: Any) -> Any:
    import pystac
    from odc.stac import load

    item = pystac.Item.from_file(job.folder / "scene.json")
    item.make_asset_hrefs_absolute()
    resampling = dict.fromkeys(BANDS, job.resampling) | {"scl": "nearest"}
    return load([item], bands=(*BANDS, "scl"), geobox=job.grid, resampling=resampling, chunks=chunks, **options)


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
    """`odc.stac.load`, stacked and written by `to_zarr` with the same shards and codec."""
    from zarr.codecs import BloscCodec

    from eopipe.tiles.layout import Layout

    loaded = _odc(job, None, pool=2)
    cube = loaded[list(BANDS)].to_dataarray("band").isel(time=0, drop=True).rename("image")
    encoding = {
        "chunks": (len(BANDS), 256, 256),
        "shards": (len(BANDS), *Layout().shards(job.grid.shape)),
        "compressors": [BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle")],
    }
    stored = cube.to_dataset().drop_vars("spatial_ref", errors="ignore").drop_attrs()
    stored.to_zarr(job.out / "odc.zarr", encoding={"image": encoding}, zarr_format=3, consolidated=False)


def rioxarray(job: Job) -> None:
    """Each band by rioxarray, reprojected."""
    import rioxarray as rio
    from rasterio.enums import Resampling

    for name in (*BANDS, "scl"):
        method = Resampling.nearest if name == "scl" else Resampling[job.resampling]
        source = rio.open_rasterio(job.folder / f"{name}.tif")
        grid = {"transform": job.grid.affine, "shape": job.grid.shape}
        source.rio.reproject(str(job.grid.crs), resampling=method, num_threads=2, **grid)


def gdalwarp(job: Job) -> None:
    """Each band by the command, two at a time, to plain files."""
    from concurrent.futures import ThreadPoolExecutor

    box = job.grid.boundingbox

    def warp(name: str) -> None:
        extent = ["-te", *map(str, (box.left, box.bottom, box.right, box.top))]
        size = ["-ts", *map(str, job.grid.shape[::-1])]
        kernel = ["-r", "near" if name == "scl" or job.resampling == "nearest" else job.resampling, "-wm", "256"]
        files = [str(job.folder / f"{name}.tif"), str(job.out / f"{name}.tif")]
        subprocess.run(
            [str(shutil.which("gdalwarp")), "-q", "-t_srs", str(job.grid.crs), *extent, *size, *kernel, *files],
            check=True,
        )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(warp, (*BANDS, "scl")))


def stackstac(job: Job) -> None:
    """stackstac, computed by dask with two threads."""
    import dask
    import pandas as pd
    import pystac
    import stackstac as stack
    from rasterio.enums import Resampling

    # stackstac 0.5 passes an argument that pandas 3 removed.
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
            resampling=Resampling[job.resampling],
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
# Imports of each contestant, which are not timed.
IMPORTS = {
    "eopipe": ("rasterio.warp", "odc.geo.geobox", "pyproj", "zarr", "numcodecs", "google_crc32c"),
    "odc": ("odc.stac", "pystac", "xarray", "dask.array", "zarr"),
    "rioxarray": ("rioxarray", "dask.array"),
    "stackstac": ("stackstac", "pystac", "dask.array"),
}
