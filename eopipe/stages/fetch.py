"""Assets of one scene, verified."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output


def fetch(
    item: Annotated[Path, Input("STAC Item of the scene, from the frozen list", format="application/geo+json")],
    scene: Annotated[Path, Output("scene", "the item and its assets, verified", folder=True)],
    *,
    catalog: Annotated[Path | None, Input("folder that relative paths of the item lead into", folder=True)] = None,
    grid: Annotated[Path | None, Input("grid of the run, for windows", format="application/json")] = None,
    windows: Annotated[bool, Option("only the blocks of cloud-optimised GeoTIFFs that the grid needs")] = False,
    workers: Annotated[int, Knob("downloads at a time", ge=1, le=32)] = 4,
    per_host: Annotated[int, Knob("connections to one host at a time", ge=1, le=64, advanced=True)] = 8,
    deadline: Annotated[
        float, Knob("seconds that one asset may take, with all its retries", gt=0, advanced=True)
    ] = 3600.0,
    sign: Annotated[
        Literal["auto", "none", "planetary-computer"],
        Knob("who signs addresses; auto knows them by their host", advanced=True),
    ] = "auto",
    parts: Annotated[
        Path | None, Knob("folder of unfinished downloads; beside the scene if not given", advanced=True)
    ] = None,
) -> None:
    """Bring the assets of one scene to local disk and check size and checksum.

    A broken download goes on where it stopped. Addresses are http(s), s3 (with the usual AWS_* variables) or paths;
    a login comes from EOPIPE_TOKEN_<HOST>, as in EOPIPE_TOKEN_DATA_ORG, or from ~/.netrc.
    Raises BadInputError for missing assets, IntegrityError for damaged ones, UpstreamError when the server fails
    for good; the assets that came are kept for the rerun.
    """
    import shutil

    from eopipe.errors import UsageError
    from eopipe.fetch.assets import fetch_assets, lock_folder, write_scene
    from eopipe.fetch.retry import FetchSession
    from eopipe.publish import publish
    from eopipe.scenes.item import read_item, scene_name
    from eopipe.tiles.grid import read_grid

    if windows and grid is None:
        raise UsageError("windows need a grid: give --grid, or fetch whole assets")
    frozen = read_item(item)
    folder = parts / scene_name(frozen["id"]) if parts else scene.parent / f".{scene.name}.parts"
    area = read_grid(grid) if windows and grid else None
    with FetchSession(deadline, per_host, sign) as session, lock_folder(folder, session):
        fetched = fetch_assets(frozen, catalog, folder, session, workers, area)
        with publish(scene, folder=True) as draft:
            write_scene(frozen, fetched, draft, is_window=windows)
        shutil.rmtree(folder)
