"""One scene -> one chunked Zarr store on the run's grid."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output

SCL_UNUSABLE = (0, 1, 3, 8, 9, 10, 11)


def preprocess(
    scene: Annotated[Path, Input("scene with its assets, as fetch makes it", folder=True)],
    grid: Annotated[Path, Input("grid that the run shares", format="application/json")],
    tiles: Annotated[Path, Output("tiles.zarr", "the scene on the grid: image and valid mask", folder=True)],
    *,
    bands: Annotated[tuple[str, ...], Option("band names, in channel order")] = ("blue", "green", "red", "nir"),
    mask: Annotated[str, Option("asset that classifies pixels, as scl; none masks only nodata")] = "scl",
    masked: Annotated[tuple[int, ...], Option("classes of the mask asset that are not usable")] = SCL_UNUSABLE,
    resampling: Annotated[
        Literal["nearest", "bilinear", "cubic", "average"], Option("for continuous bands")
    ] = "bilinear",
    chunk: Annotated[int, Option("edge of a chunk in pixels; one chip should touch few", multiple_of=16, ge=16)] = 256,
    shard: Annotated[int, Option("edge of a shard (one file) in pixels", multiple_of=16, ge=16)] = 2048,
    codec: Annotated[Literal["lz4", "zstd"], Option("lz4 decodes fast, zstd is smaller")] = "lz4",
) -> None:
    """Warp one scene onto the grid and store it as a sharded Zarr store.

    Numbers stay as the scene stores them, with scale and offset in attributes (CF). A pixel is valid where
    every band has data and the mask asset allows it. Raises IntegrityError for truncated assets,
    BadInputError for a missing band or a place that does not fit.
    """
    from eopipe.grid import read_grid
    from eopipe.scenes.item import bands as bands_of
    from eopipe.scenes.item import read_scene
    from eopipe.scenes.tiling import Recipe, write_tiles
    from eopipe.store import Layout

    item = read_scene(scene)
    channels = bands_of(scene, item, bands)
    mask_band = bands_of(scene, item, (mask,))[0] if mask != "none" else None
    recipe = Recipe(channels, mask_band, masked, resampling, Layout(chunk, shard, codec))
    write_tiles(tiles, item, read_grid(grid), recipe)
