"""STAC query -> frozen list of scenes and the grid that the run shares."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output


def search(
    items: Annotated[Path, Output("items", "one STAC Item a scene, sorted and frozen", folder=True, each="*.geojson")],
    grid: Annotated[Path, Output("grid.json", "grid that the run shares: CRS, transform, shape")],
    *,
    catalog: Annotated[Path | None, Input("folder of a static STAC catalog", folder=True, user=True)] = None,
    area: Annotated[Path | None, Input("GeoJSON of the area of interest, in degrees", user=True)] = None,
    url: Annotated[str | None, Option("address of a STAC API or of a static catalog")] = None,
    collections: Annotated[tuple[str, ...], Option("collections to search; none means all")] = (),
    bbox: Annotated[tuple[float, ...], Option("area as west south east north, in degrees")] = (),
    datetime: Annotated[str | None, Option("date or interval, as 2020-05-01/2020-09-30")] = None,
    max_cloud: Annotated[float, Option("most cloud cover of a scene in percent", ge=0, le=100)] = 100.0,
    ids: Annotated[tuple[str, ...], Option("only these scenes, by id")] = (),
    assets: Annotated[tuple[str, ...], Option("assets that every scene must have, to be fetched")] = (
        "blue",
        "green",
        "red",
        "nir",
        "scl",
    ),
    crs: Annotated[str, Option("CRS of the grid as EPSG:code, or auto", pattern=r"^(auto|EPSG:\d+)$")] = "auto",
    resolution: Annotated[float | None, Option("edge of a pixel in units of the CRS; the assets' own", gt=0)] = None,
) -> None:
    """Find scenes in a STAC catalog or API and freeze the list and the grid.

    Every later stage uses only this list. Raises BadInputError when nothing is found or an asset is
    missing, UpstreamError when the server does not answer.
    """
    from eopipe.errors import BadInputError, UsageError
    from eopipe.grid import grid_json
    from eopipe.publish import publish, write_json
    from eopipe.scenes.area import area_geometry, choose_grid
    from eopipe.scenes.catalog import Query, from_folder, from_url, keep_assets
    from eopipe.scenes.item import scene_name

    if (catalog is None) == (url is None) or (area is not None and bbox):
        raise UsageError("search needs either --catalog or --url, and at most one of --area and --bbox")
    geometry = area_geometry(area, bbox)
    query = Query(collections, geometry, datetime, max_cloud, ids)
    found = from_folder(catalog, query) if catalog else from_url(url or "", query)
    if not found:
        raise BadInputError(f"no scene matches in {catalog or url}: {query}; widen the dates, area or cloud cover")
    kept = keep_assets(found, assets)
    chosen = choose_grid(kept, assets, geometry, crs, resolution)
    with publish(items, folder=True) as draft, publish(grid) as grid_draft:
        for item in kept:
            write_json(draft / f"{scene_name(item['id'])}.geojson", item)
        write_json(grid_draft, grid_json(chosen))
