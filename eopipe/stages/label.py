"""Rasters or vectors -> labels and valid mask on the run's grid."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output

# 2: source values in the attributes; a continuous raster that is finer than the grid is averaged; numbers of polygons.
# 3: coordinates and meanings as CF attributes, _FillValue.
# 4: the released versions of the GeoZarr conventions. 5: shards that no shape reaches are left out.
# 6: the shapes of a vector file by class.
REVISION = 7
NEEDS = ("dates_of_labels",)


def label(
    grid: Annotated[Path, Input("grid of the run", format="application/json")],
    labels: Annotated[
        Path, Output("labels.zarr", "label store: class numbers or continuous values, and valid mask", folder=True)
    ],
    *,
    source: Annotated[Path | None, Input("raster or vector file with the labels of all scenes", user=True)] = None,
    before: Annotated[
        Path | None,
        Input(
            "change: raster or vector file with the labels of an earlier date, in the same classes; labels become "
            "from-to classes",
            user=True,
        ),
    ] = None,
    scene: Annotated[Path | None, Input("scene whose asset holds its labels", folder=True)] = None,
    asset: Annotated[str | None, Option("asset of each scene that holds its labels, instead of source")] = None,
    classes: Annotated[tuple[str, ...], Option("class names, in the order of the class numbers 0, 1, …")] = (
        "non-forest",
        "forest",
    ),
    bins: Annotated[
        tuple[float, ...], Option("edges between the classes of a continuous raster, in physical units")
    ] = (),
    codes: Annotated[
        tuple[int, ...], Option("source value of each class (default: 0, 1, …, if the raster has no other value)")
    ] = (),
    values: Annotated[
        tuple[str, ...],
        Option("class=value for each source value, also several per class: town=1 town=2; =3 means unlabelled"),
    ] = (),
    measure: Annotated[
        str | None, Option("quantity of continuous labels, for train.task regression; without it labels are classes")
    ] = None,
    unit: Annotated[str, Option("unit of the quantity")] = "",
    ignore: Annotated[tuple[int, ...], Option("source values that mean unlabelled")] = (),
    attribute: Annotated[
        str, Option("attribute of a vector file with the class, or with the value of the quantity")
    ] = "class",
    layer: Annotated[str | None, Option("layer of a vector file with several layers")] = None,
    dates: Annotated[
        str | None,
        Option(
            "date or interval, as in search.datetime, of the features of a vector file that count: by its column date, "
            "or start_date and end_date, or by those that are named, as in seen=2019 and first,last=2019"
        ),
    ] = None,
    overlap: Annotated[
        Literal["invalid", "last", "first"],
        Option("where shapes of different labels overlap: unlabelled, or last or first in the file", advanced=True),
    ] = "invalid",
    all_touched: Annotated[
        bool, Option("rasterise shapes to all pixels they touch, not only to contained centres", advanced=True)
    ] = False,
    resampling: Annotated[
        Literal["auto", "nearest", "mode", "bilinear", "cubic", "average"],
        Option(
            "resampling of label rasters: nearest or mode for classes; nearest, bilinear, cubic or average for a "
            "measure and before bins; auto: average if such a raster is finer than the grid, else nearest"
        ),
    ] = "auto",
    chunk: Annotated[
        int, Option("edge of a chunk, the read unit, in pixels", multiple_of=16, ge=16, advanced=True)
    ] = 256,
    shard: Annotated[int, Option("edge of a shard, one file, in pixels", multiple_of=16, ge=16, advanced=True)] = 4096,
) -> None:
    """Put labels onto the grid, as class numbers or as values of a quantity, with their valid mask.

    The source is a file for all scenes, or an asset of each scene; pixels outside of it are unlabelled. Every value
    of a raster belongs to a class by codes, values or bins, or is nodata or in ignore. Edges of bins are physical
    values: the raster is resampled, scale and offset of the source are applied, then the bins. A point labels the pixel
    that contains it. A scene without labels is left out by split. Raises BadInputError with a table of values and
    pixels for values that belong to no class, and for a source outside of the grid.

    With `before`, each pixel has the from-to class of its labels at two dates, such as "forest to water".
    """
    from eopipe.errors import BadInputError, UsageError
    from eopipe.labels.kinds import Legend, Quantity, option_conflicts
    from eopipe.labels.sources import ReadOptions, label_band
    from eopipe.labels.vector_files import source_conflicts
    from eopipe.labels.write import before_conflicts, write_change_labels, write_labels
    from eopipe.scenes.item import read_scene, scene_name
    from eopipe.tiles.cells import read_frame
    from eopipe.tiles.layout import Layout

    if source is not None and source.is_dir():
        raise BadInputError(f"label.source {source} is a folder; give one file in it")
    if (source is None) == (asset is None or scene is None):
        raise UsageError("label needs exactly one of --source and --asset (with --scene)")
    class_options = {"bins": bins, "codes": codes, "values": values}
    conflicts = source_conflicts(source, dates, before) + option_conflicts(measure, resampling, class_options)
    if conflicts := conflicts + before_conflicts(before, source, measure, classes):
        raise UsageError("; ".join(conflicts))
    item = read_scene(scene) if scene and asset else None
    band, name = label_band(source, scene, item, asset), scene_name(item["id"]) if item else ""
    options, layout = ReadOptions(attribute, layer, overlap, all_touched, resampling, dates), Layout(chunk, shard)
    kind = Quantity(measure, unit, ignore) if measure else Legend(classes, bins, codes, ignore, values)
    if before and source and isinstance(kind, Legend):
        write_change_labels(labels, read_frame(grid), kind, (before, source), options=options, layout=layout)
        return
    write_labels(labels, read_frame(grid), kind, band, scene=name, options=options, layout=layout)
