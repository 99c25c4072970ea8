"""Scenes of one period -> one composite, as a tile store like those that it is made of."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output


def composite(
    tiles: Annotated[tuple[Path, ...], Input("tile stores of the scenes of one period", folder=True)],
    composite: Annotated[Path, Output("composite.zarr", "one tile store that stands for the period", folder=True)],
    *,
    method: Annotated[
        Literal["none", "median", "middle", "greenest", "clearest"],
        Option(
            "median of each band; or for all bands the observation nearest the period's middle, of the highest "
            "NDVI, or of the lowest blue; none trains on single scenes"
        ),
    ] = "none",
    period: Annotated[Literal["all", "year", "season", "month"], Option("one composite for each of these")] = "all",
    stack: Annotated[
        Literal["none", "season", "month"], Option("parts of a period that become bands of their own, as red_JJA")
    ] = "none",
    parts: Annotated[
        tuple[str, ...], Option("parts to stack, as MAM JJA or 05 06; those that the scenes have if not given")
    ] = (),
    memory_mb: Annotated[int, Knob("most memory for pixels of all dates; the rest waits on disk", ge=1)] = 512,
) -> None:
    """Make one image of a period from the scenes of that period, pixel by pixel.

    Only valid observations count; a pixel is valid where there is one (of every part, when parts are
    stacked), and `count` tells how many. Numbers stay as the scenes store them. Raises BadInputError for
    scenes that lie on another grid, have other bands, scale or offset, or belong to another period.
    """
    from eopipe.composites.observations import CompositeRecipe, read_observations
    from eopipe.composites.write import write_composite

    recipe = CompositeRecipe(method, period, stack, parts)
    write_composite(composite, read_observations(tiles, recipe), recipe, memory_mb << 20)
