"""Finished maps -> what people open in QGIS and in a spreadsheet: polygons, style, entropy, areas of zones."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output
from eopipe.ports import ProbabilityMaps

NEEDS = ("products_of_maps",)


def products(
    classes: Annotated[
        tuple[Path, ...], Input("class maps: one mosaic, one per cell, or one per scene", format="image/tiff")
    ],
    probabilities: ProbabilityMaps,
    products: Annotated[
        Path,
        Output(
            "products",
            "polygons.gpkg; of each map classes.tif with its style classes.qml and entropy.tif; zones.csv",
            folder=True,
        ),
    ],
    *,
    zones: Annotated[
        Path | None, Input("polygons whose classes or values are summed up, in any CRS: a vector file", user=True)
    ] = None,
    zone_name: Annotated[str, Option("attribute of the zones with their names", min_length=1)] = "name",
    zone_layer: Annotated[str | None, Option("layer of the zones, where the file has several")] = None,
    minimum_mapping_unit_ha: Annotated[
        float,
        Option(
            "hectares below which a patch of one class gets the class of its largest neighbour, in the polygons only; "
            "0: none",
            ge=0,
        ),
    ] = 0.5,
) -> None:
    """Make polygons, a QGIS style, the entropy and a table of zones from the finished maps of a run.

    Each map has a layer of polygons in its CRS, so that their edges follow the pixels; areas are in hectares on
    the ellipsoid. Where there are several maps, names of files and layers contain the cell or scene. Pixels
    belong to the zone that contains their centre, in the map without the sieve. For values, and for several labels
    per pixel, there is only zones.csv: their maps have no classes that exclude each other. Memory is about 6 bytes
    per pixel of the largest map, beside its polygons. Raises BadInputError for maps that do not belong together or
    have no place on the Earth, for zones without polygons or wholly outside of the maps; UsageError where nothing
    would be made.
    """
    from eopipe.inference.finished_maps import check_whole, read_finished_maps
    from eopipe.publish import publish
    from eopipe.reporting.products import ZoneFile, write_products

    check_whole(classes)
    maps = read_finished_maps(classes, probabilities)
    zone_file = ZoneFile(zones, zone_name, zone_layer) if zones else None
    with publish(products, folder=True) as draft:
        write_products(draft, maps, minimum_mapping_unit_ha, zone_file)
