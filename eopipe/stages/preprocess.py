"""One scene -> one chunked Zarr store on the run's grid."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output

REVISION = 2


def preprocess(
    scene: Annotated[Path, Input("scene with its assets, as fetch makes it", folder=True)],
    grid: Annotated[Path, Input("grid that the run shares", format="application/json")],
    tiles: Annotated[Path, Output("tiles.zarr", "the scene on the grid: image and valid mask", folder=True)],
    *,
    bands: Annotated[tuple[str, ...], Option("band names, in channel order")] = ("blue", "green", "red", "nir"),
    mask: Annotated[str, Option("asset that tells what is usable, as scl; none masks only nodata")] = "scl",
    mask_as: Annotated[
        Literal["auto", "classes", "bits", "probability"],
        Option("how the mask asset is read; auto: by its name", advanced=True),
    ] = "auto",
    masked: Annotated[
        tuple[int, ...],
        Option("classes or bits of the mask asset that are not usable; none: the standard ones", advanced=True),
    ] = (),
    max_probability: Annotated[
        float, Option("percent of a mask that is a probability", ge=0, le=100, advanced=True)
    ] = 40.0,
    dilate: Annotated[int, Option("pixels of the grid to mask around what the mask excludes", ge=0, le=512)] = 0,
    saturated: Annotated[
        float | None, Option("stored number from which on a pixel is saturated, not usable", advanced=True)
    ] = None,
    decibel: Annotated[bool, Option("store radar power, which is linear, in dB")] = False,
    resampling: Annotated[
        Literal["nearest", "bilinear", "cubic", "average", "mode"], Option("for the bands; masks are never mixed")
    ] = "bilinear",
    chunk: Annotated[
        int, Option("edge of a chunk in pixels; one chip should touch few", multiple_of=16, ge=16, advanced=True)
    ] = 256,
    shard: Annotated[int, Option("edge of a shard (one file) in pixels", multiple_of=16, ge=16, advanced=True)] = 4096,
    codec: Annotated[Literal["lz4", "zstd"], Option("lz4 decodes fast, zstd is smaller", advanced=True)] = "lz4",
    threads: Annotated[int, Knob("threads that decode, warp and code; 0: as many as there are cores", ge=0)] = 0,
    max_files: Annotated[
        int | None, Knob("most files that the store may take; one that needs more is refused", advanced=True)
    ] = None,
) -> None:
    """Warp one scene onto the grid and store it as a sharded Zarr store.

    Numbers stay as the scene stores them, with scale and offset in attributes (CF). A pixel is valid where
    every band has data and the mask asset allows it. Raises IntegrityError for truncated assets,
    BadInputError for a missing band or a wrong place, UsageError for an unknown mask, NoSpaceError for max_files.
    """
    from eopipe.scenes.item import bands as bands_of
    from eopipe.scenes.item import read_scene
    from eopipe.scenes.masks import mask_of
    from eopipe.tiles.grid import read_grid
    from eopipe.tiles.layout import Layout
    from eopipe.warp.write_tiles import TileRecipe, write_tiles

    item = read_scene(scene)
    wanted = bands_of(scene, item, bands if mask == "none" else (*bands, mask))
    usable = None if mask == "none" else mask_of(wanted.pop(), mask_as, masked, max_probability, dilate)
    recipe = TileRecipe(wanted, usable, resampling, Layout(chunk, shard, codec), decibel=decibel, saturated=saturated)
    write_tiles(tiles, item, read_grid(grid), recipe, threads=threads, max_files=max_files)
