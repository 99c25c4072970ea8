"""Rasters or vectors -> label and valid mask on the run's grid."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output


def label(
    grid: Annotated[Path, Input("grid that the run shares", format="application/json")],
    labels: Annotated[Path, Output("labels.zarr", "class numbers or values, and valid mask", folder=True)],
    *,
    source: Annotated[Path | None, Input("raster or vector file of the labels", user=True)] = None,
    scene: Annotated[Path | None, Input("scene that has the labels as an asset", folder=True)] = None,
    asset: Annotated[str | None, Option("asset of each scene that holds its labels")] = None,
    classes: Annotated[tuple[str, ...], Option("class names; their order gives the class numbers")] = (
        "non-forest",
        "forest",
    ),
    bins: Annotated[tuple[float, ...], Option("edges that cut a continuous raster into the classes")] = (),
    codes: Annotated[tuple[int, ...], Option("source value of each class; 0, 1, … if not given")] = (),
    values: Annotated[
        tuple[str, ...],
        Option("class=value for each value of the source, several for one class: town=1 town=2; =3 is no label"),
    ] = (),
    measure: Annotated[
        str | None, Option("name of what the labels measure: they stay numbers, for train.task regression; no classes")
    ] = None,
    unit: Annotated[str, Option("unit of what the labels measure")] = "",
    ignore: Annotated[tuple[int, ...], Option("source values that are no label")] = (),
    attribute: Annotated[str, Option("vector attribute that holds the class, or the number")] = "class",
    layer: Annotated[str | None, Option("layer of a vector file that has several")] = None,
    overlap: Annotated[
        Literal["invalid", "last", "first"],
        Option("where shapes that disagree overlap: no label, or the last or first of the file", advanced=True),
    ] = "invalid",
    all_touched: Annotated[
        bool, Option("shapes take all pixels they touch, not only those whose centre they hold", advanced=True)
    ] = False,
    resampling: Annotated[
        Literal["nearest", "mode", "bilinear", "average"],
        Option("for label rasters: nearest or mode of classes; nearest, bilinear or average of a measure"),
    ] = "nearest",
    chunk: Annotated[int, Option("edge of a chunk in pixels", multiple_of=16, ge=16, advanced=True)] = 256,
    shard: Annotated[int, Option("edge of a shard in pixels", multiple_of=16, ge=16, advanced=True)] = 4096,
) -> None:
    """Put labels onto the grid, as class numbers or as values of a quantity, and a mask of where they hold.

    The source is a file that holds for every scene, or an asset of each scene; where it ends there is no
    label, and the grid stays as it is. Edges of bins are in the unit of the source: its scale and offset are
    applied. Raises BadInputError for a class that the legend does not know and for a source that does not
    touch the grid.
    """
    from eopipe.errors import UsageError
    from eopipe.labels.classes import Legend
    from eopipe.labels.values import Quantity, option_conflicts, write_values
    from eopipe.labels.write import ReadOptions, label_band, write_labels
    from eopipe.scenes.item import read_scene, scene_name
    from eopipe.tiles.grid import read_grid
    from eopipe.tiles.layout import Layout

    if (source is None) == (asset is None or scene is None):
        raise UsageError("label needs either --source, or --scene with --asset")
    if wrong := option_conflicts(measure, resampling, {"bins": bins, "codes": codes, "values": values}):
        raise UsageError("; ".join(wrong))
    item = read_scene(scene) if scene and asset else None
    band, told = label_band(source, scene, item, asset), scene_name(item["id"]) if item else ""
    reading, layout = ReadOptions(attribute, layer, overlap, all_touched, resampling), Layout(chunk, shard)
    if measure:
        quantity = Quantity(measure, unit, ignore)
        write_values(labels, read_grid(grid), quantity, band, scene=told, reading=reading, layout=layout)
        return
    legend = Legend(classes, bins, codes, ignore, values)
    write_labels(labels, read_grid(grid), legend, band, scene=told, reading=reading, layout=layout)
