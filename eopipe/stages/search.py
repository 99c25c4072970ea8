"""STAC query -> frozen list of scenes and the grid that the run shares."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output

# 2: a frozen item is one line.
REVISION = 2


def search(
    items: Annotated[
        Path,
        Output(
            "items",
            "one STAC Item a scene, sorted and frozen",
            folder=True,
            each="*.geojson",
            format="application/geo+json",
        ),
    ],
    grid: Annotated[
        Path, Output("grid.json", "grid that the run shares: CRS, transform, shape", format="application/json")
    ],
    selection: Annotated[
        Path,
        Output(
            "selection.json", "digest of the list, and what was left out with the reason", format="application/json"
        ),
    ],
    *,
    catalog: Annotated[Path | None, Input("folder of a static STAC catalog", folder=True, user=True)] = None,
    area: Annotated[Path | None, Input("GeoJSON of the area of interest, in degrees", user=True)] = None,
    url: Annotated[str | None, Option("address of a STAC API or of a static catalog")] = None,
    collections: Annotated[tuple[str, ...], Option("collections to search; none means all")] = (),
    bbox: Annotated[tuple[float, ...], Option("area as west south east north, in degrees")] = (),
    datetime: Annotated[str | None, Option("date or interval, as 2020-05-01/2020-09-30")] = None,
    max_cloud: Annotated[float, Option("most cloud cover of a scene in percent", ge=0, le=100)] = 100.0,
    ids: Annotated[tuple[str, ...], Option("only these scenes, by id", advanced=True)] = (),
    assets: Annotated[tuple[str, ...], Option("assets that every scene must have, to be fetched")] = (
        "blue",
        "green",
        "red",
        "nir",
        "scl",
    ),
    on_missing: Annotated[
        Literal["fail", "skip"],
        Option("scenes that lack a wanted asset: stop and list them, or leave them out", advanced=True),
    ] = "fail",
    best: Annotated[int | None, Option("so many of the least cloudy in each window; all", ge=1)] = None,
    per: Annotated[Literal["all", "year", "month", "week", "day"], Option("window of best")] = "all",
    group: Annotated[
        Literal["scene", "solar-day"],
        Option(
            "what best counts: scenes, or all scenes of a local solar day (UTC and an hour for 15 degrees) together"
        ),
    ] = "scene",
    crs: Annotated[str, Option("CRS of the grid as EPSG:code, or auto", pattern=r"^(auto|EPSG:\d+)$")] = "auto",
    resolution: Annotated[float | None, Option("edge of a pixel in units of the CRS; the assets' own", gt=0)] = None,
    deadline: Annotated[float, Knob("seconds that the server has for the whole search", gt=0, advanced=True)] = 900.0,
) -> None:
    """Find scenes in a STAC catalog or API and freeze the list and the grid.

    Every later stage uses only this list. Of several versions of a Sentinel-2 scene the one of the newest
    processing baseline stays. `best` ranks scenes by cloud cover, and a solar day by the share of the area that
    it does not show clear. An area may cross 180 degrees: bbox then has west larger than east. Raises
    BadInputError when nothing is found or an asset is missing, UpstreamError when the server does not answer,
    RefusedError when it leads to another host.
    """
    from eopipe.errors import BadInputError, UsageError
    from eopipe.publish import publish, write_json
    from eopipe.stac.api import from_url
    from eopipe.stac.choose_grid import choose_grid
    from eopipe.stac.query import Query, area_geometry
    from eopipe.stac.select import Best, select
    from eopipe.stac.static import from_folder
    from eopipe.tiles.grid import grid_json

    if (catalog is None) == (url is None) or (area is not None and bbox):
        raise UsageError("search needs either --catalog or --url, and at most one of --area and --bbox")
    geometry = area_geometry(area, bbox)
    query = Query(collections, geometry, datetime, max_cloud, ids)
    found = from_folder(catalog) if catalog else from_url(url or "", query, deadline)
    chosen = select(found, query, assets, on_missing, Best(best, per, group, geometry))
    if not chosen.items:
        raise BadInputError(f"no scene matches in {catalog or url}: {query}; widen the dates, area or cloud cover")
    box = choose_grid(chosen.items, assets, geometry, crs, resolution)
    with publish(items, folder=True) as draft, publish(grid) as grid_draft, publish(selection) as told:
        chosen.write(draft, told)
        write_json(grid_draft, grid_json(box))
