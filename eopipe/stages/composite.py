"""Scenes of one period -> one composite, a tile store like theirs."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output

# 2: greenest counts reflectances below zero as zero, and ranks dark pixels lower.
# 3: coordinates band and time, _FillValue.
# 4: the released versions of the GeoZarr conventions. 5: seasons and months without an observation are filled.
# 6: sensors and processing baselines of the scenes.
REVISION = 6


def composite(
    tiles: Annotated[tuple[Path, ...], Input("tile stores of the scenes of one period", folder=True)],
    composite: Annotated[
        Path, Output("composite.zarr", "tile store of the period, which replaces the stores of its scenes", folder=True)
    ],
    *,
    method: Annotated[
        Literal["none", "median", "middle", "greenest", "clearest"],
        Option(
            "how observations are combined: median of each band, or for all bands the observation nearest the middle "
            "of the period (middle), of highest NDVI (greenest) or of lowest blue (clearest); none: train on scenes"
        ),
    ] = "none",
    period: Annotated[
        Literal["all", "year", "season", "month"], Option("length of a period; there is one composite per period")
    ] = "all",
    stack: Annotated[
        Literal["none", "year", "season", "month"],
        Option("stack these parts of a period as separate bands, e.g. red_JJA; of all time also years, e.g. red_2019"),
    ] = "none",
    parts: Annotated[
        tuple[str, ...], Option("parts to stack, e.g. 2017 2021, MAM JJA or 05 06 (default: all parts with scenes)")
    ] = (),
    gaps: Annotated[
        Literal["fill", "invalid"],
        Option(
            "a stacked season or month without an observation of a pixel: filled with the median of the parts that "
            "have one, where these are at least half; or the pixel is invalid, as it always is where a year lacks one"
        ),
    ] = "fill",
    memory_mb: Annotated[
        int, Knob("memory limit in MB for the pixels of all dates; larger grids are read block by block", ge=1)
    ] = 512,
) -> None:
    """Composite the scenes of a period into one image, pixel by pixel.

    Only valid observations count; a pixel is valid where there is one, and `count` is their number, of stacked parts
    in the part with the fewest, without those that `gaps` filled. Stored numbers keep the scale and offset of the
    scenes; where these differ, all are converted to those with the lowest offset: exactly where the difference is a
    whole number, else rounded to the nearest. Raises BadInputError for scenes on another grid, with other bands, with
    and without a stated scale, or of another period.
    """
    from eopipe.composites.periods import CompositeRecipe, read_observations
    from eopipe.composites.write import write_composite

    recipe = CompositeRecipe(method, period, stack, parts, gaps)
    write_composite(composite, read_observations(tiles, recipe), recipe, memory_mb << 20)
