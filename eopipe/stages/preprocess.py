"""One scene -> one chunked Zarr store on the run's grid."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output

# 3: stores declare the unit and the processing level, where the item does; Sentinel-2 without a processing baseline is
# scaled by name and dates of the product, or refused.
# 4: coordinates band and time, _FillValue. 5: the released versions of the GeoZarr conventions.
# 6: sensors and processing baseline of the scene.
REVISION = 6


def preprocess(
    scene: Annotated[Path, Input("scene with its assets, from fetch", folder=True)],
    grid: Annotated[Path, Input("grid of the run", format="application/json")],
    tiles: Annotated[
        Path, Output("tiles.zarr", "tile store of the scene on the grid: image and valid mask", folder=True)
    ],
    *,
    bands: Annotated[
        tuple[str, ...], Option("band names, in channel order; visual#2 is the second band of an asset")
    ] = ("blue", "green", "red", "nir"),
    mask: Annotated[str, Option("mask asset, e.g. scl: which pixels are usable; none masks only nodata")] = "scl",
    mask_as: Annotated[
        Literal["auto", "classes", "bits", "probability"],
        Option("kind of the mask asset; auto: known from its name", advanced=True),
    ] = "auto",
    masked: Annotated[
        tuple[int, ...],
        Option("classes or bits of the mask asset that are masked (default: the standard ones)", advanced=True),
    ] = (),
    max_probability: Annotated[
        float, Option("cloud probability in percent above which pixels are masked", ge=0, le=100, advanced=True)
    ] = 40.0,
    dilate: Annotated[
        int, Option("mask dilation: also mask this many grid pixels around masked ones", ge=0, le=512)
    ] = 0,
    saturated: Annotated[
        float | None, Option("stored value at or above which a pixel is saturated, and masked", advanced=True)
    ] = None,
    offset: Annotated[
        float | None,
        Option(
            "offset of reflectance where neither item nor product state it: -0.1 for Sentinel-2 since processing "
            "baseline 04.00, 0 before or where it was removed",
            advanced=True,
        ),
    ] = None,
    decibel: Annotated[bool, Option("convert linear radar power to dB")] = False,
    resampling: Annotated[
        Literal["nearest", "bilinear", "cubic", "average", "mode"],
        Option("resampling kernel of the bands; masks use nearest"),
    ] = "bilinear",
    on_bad: Annotated[
        Literal["stop", "leave_out"],
        Option(
            "bad data of a scene, such as a missing band, or a file that is refused: stop the run, or leave_out the "
            "scene, with the reason in log, split, report and cards"
        ),
    ] = "stop",
    chunk: Annotated[
        int,
        Option("edge of a chunk, the read unit, in pixels; about the chip size", multiple_of=16, ge=16, advanced=True),
    ] = 256,
    shard: Annotated[int, Option("edge of a shard, one file, in pixels", multiple_of=16, ge=16, advanced=True)] = 4096,
    codec: Annotated[
        Literal["lz4", "zstd"], Option("compression codec: lz4 decodes faster, zstd is smaller", advanced=True)
    ] = "lz4",
    threads: Annotated[int, Knob("threads that decode, resample and encode; 0: one per core", ge=0)] = 0,
) -> None:
    """Resample one scene onto the grid and write it as a sharded Zarr store.

    Stored numbers stay as in the scene, with scale and offset as CF attributes. A pixel is valid where
    every band has data and the mask asset does not mask it; a scene without a valid pixel is written with a warning,
    and split leaves it out. Raises IntegrityError for truncated assets, UsageError for an unknown mask,
    BadInputError for a missing band, one of several bands that is not chosen, an offset that is not
    known, a scene outside of the grid, or an item that contradicts its file, RefusedError for an unsafe file.

    With `on_bad` leave_out a scene with one of the last two errors is a store without a valid pixel that has the
    reason; later stages do not use it. Damaged files, which `fetch` can get again, always stop the run.
    """
    from eopipe.errors import BadInputError, IntegrityError, RefusedError
    from eopipe.provenance.redact import redact_message
    from eopipe.scenes.item import bands as bands_of
    from eopipe.scenes.item import read_scene
    from eopipe.scenes.masks import mask_of
    from eopipe.tiles.cells import read_frame
    from eopipe.tiles.layout import Layout
    from eopipe.warp.write_tiles import TileRecipe, write_left_out, write_tiles

    item, frame, layout = read_scene(scene), read_frame(grid), Layout(chunk, shard, codec)
    try:
        scene_bands = bands_of(scene, item, bands if mask == "none" else (*bands, mask), offset)
        usable = None if mask == "none" else mask_of(scene_bands.pop(), mask_as, masked, max_probability, dilate)
        recipe = TileRecipe(scene_bands, usable, resampling, layout, decibel=decibel, saturated=saturated)
        write_tiles(tiles, item, frame, recipe, threads=threads)
    except (BadInputError, RefusedError) as error:
        if on_bad == "stop":
            raise
        write_left_out(tiles, item, frame, bands, layout, redact_message(str(error)))
    except IntegrityError as error:
        raise IntegrityError(f"{error}; remove the folder {scene} and fetch the scene again") from error
