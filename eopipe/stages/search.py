"""STAC query -> frozen list of scenes and the grid of the run."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output

# 2: a frozen item is one line. 3: its polygons are counter-clockwise.
REVISION = 3


def search(
    items: Annotated[
        Path,
        Output(
            "items",
            "frozen STAC Items, one file per scene",
            folder=True,
            each="*.geojson",
            format="application/geo+json",
        ),
    ],
    grid: Annotated[
        Path,
        Output(
            "grid.json",
            "grid of the run: CRS, transform, shape; of several UTM zones their cells",
            format="application/json",
        ),
    ],
    selection: Annotated[
        Path,
        Output("selection.json", "digest of the item list; dropped scenes with the reason", format="application/json"),
    ],
    *,
    catalog: Annotated[
        Path | None,
        Input(
            "folder of a static STAC catalog, or STAC-GeoParquet: a file, or a folder of such files",
            mixed=True,
            user=True,
        ),
    ] = None,
    area: Annotated[Path | None, Input("GeoJSON of the area of interest, in degrees", user=True)] = None,
    url: Annotated[str | None, Option("URL of a STAC API or of a static catalog")] = None,
    collections: Annotated[tuple[str, ...], Option("STAC collections to search; all if empty")] = (),
    bbox: Annotated[tuple[float, ...], Option("bounding box: west south east north, in degrees")] = (),
    datetime: Annotated[str | None, Option("date or interval of acquisition, e.g. 2020-05-01/2020-09-30")] = None,
    max_cloud: Annotated[
        float, Option("maximum cloud cover of a scene (eo:cloud_cover), in percent", ge=0, le=100)
    ] = 100.0,
    ids: Annotated[tuple[str, ...], Option("only these scenes, by id", advanced=True)] = (),
    assets: Annotated[tuple[str, ...], Option("keys of the assets to fetch; every scene must have them")] = (
        "blue",
        "green",
        "red",
        "nir",
        "scl",
    ),
    on_missing: Annotated[
        Literal["fail", "skip"],
        Option("scenes that lack one of the assets: fail and list them, or skip them", advanced=True),
    ] = "fail",
    best: Annotated[
        int | None, Option("number of least cloudy scenes to keep in each time window (default: all)", ge=1)
    ] = None,
    per: Annotated[Literal["all", "year", "month", "week", "day"], Option("time window that best applies to")] = "all",
    group: Annotated[
        Literal["scene", "solar-day"],
        Option(
            "what best counts: single scenes, or all scenes of a local solar day (UTC + 1 h per 15 degrees) together"
        ),
    ] = "scene",
    crs: Annotated[
        str,
        Option(
            "CRS of the grid as EPSG:code; auto: the one of the scenes, or the UTM zone of the area; utm: cells, one "
            "for each UTM zone and distant part of the area",
            pattern=r"^(auto|utm|EPSG:\d+)$",
        ),
    ] = "auto",
    resolution: Annotated[
        float | None, Option("pixel size of the grid in units of the CRS (default: the finest of grid_assets)", gt=0)
    ] = None,
    grid_assets: Annotated[
        tuple[str, ...],
        Option(
            "assets whose CRS and pixels the grid follows (default: all assets; in a config preprocess.bands, so that "
            "neither masks nor labels set the pixel size)",
            advanced=True,
        ),
    ] = (),
    deadline: Annotated[float, Knob("time limit for the whole search, in seconds", gt=0, advanced=True)] = 900.0,
) -> None:
    """Find scenes in a STAC catalog or API and freeze the list and the grid.

    Every later stage uses only this list. Among several versions of a Sentinel-2 scene, the one with the newest
    processing baseline is kept. `best` ranks scenes by cloud cover, and solar days by the share of the area that
    is cloudy or not covered. An area may cross the antimeridian: bbox then has west larger than east. Raises
    BadInputError when no scene matches or an asset is missing, UpstreamError when the server does not answer,
    RefusedError when it leads to another host.
    """
    from eopipe.errors import BadInputError, UsageError
    from eopipe.publish import publish
    from eopipe.scenes.item import asset_key
    from eopipe.stac.api import collection_names, from_url
    from eopipe.stac.choose_grid import choose_cells
    from eopipe.stac.query import Query, area_geometry, explain_no_match
    from eopipe.stac.read import from_disk
    from eopipe.stac.select import Ranking, select
    from eopipe.text_files import write_json

    if (catalog is None) == (url is None):
        raise UsageError("search needs exactly one of --catalog and --url")
    if area is not None and bbox:
        raise UsageError("search takes at most one of --area and --bbox")
    # Bands of one asset, such as visual#1 and visual#2, are one file.
    assets, grid_assets = (tuple(dict.fromkeys(map(asset_key, names))) for names in (assets, grid_assets))
    if absent := [asset for asset in grid_assets if asset not in assets]:
        raise UsageError(f"search.grid_assets has {', '.join(absent)}, which search.assets does not have")
    geometry = area_geometry(area, bbox)
    query = Query(collections, geometry, datetime, max_cloud, ids)
    candidates = from_disk(catalog, query) if catalog else from_url(url or "", query, deadline)
    selected = select(candidates, query, assets, on_missing, Ranking(best, per, group, geometry))
    if not selected.items:
        names = () if catalog else collection_names(url or "", query, deadline)
        unknown = f"not all of these collections exist; there are {', '.join(names)}"
        advice = unknown if names else explain_no_match(candidates, query)
        raise BadInputError(f"no scene matches in {catalog or url}: {query}; {advice}")
    frame = choose_cells(selected.items, grid_assets or assets, geometry, crs, resolution)
    with publish(items, folder=True) as draft, publish(grid) as grid_draft, publish(selection) as summary_draft:
        selected.write(draft, summary_draft)
        write_json(grid_draft, frame.json())
