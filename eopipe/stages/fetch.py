"""Frozen STAC Item -> its assets on local disk, verified."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output


def fetch(
    item: Annotated[Path, Input("frozen STAC Item of the scene", format="application/geo+json")],
    scene: Annotated[Path, Output("scene", "scene folder: the item and its verified assets", folder=True)],
    *,
    catalog: Annotated[
        Path | None,
        Input(
            "catalog on disk, for items with relative asset hrefs: its folder, or its STAC-GeoParquet file", mixed=True
        ),
    ] = None,
    grid: Annotated[Path | None, Input("grid of the run; needed with windows", format="application/json")] = None,
    windows: Annotated[
        bool, Option("fetch windows: only the blocks of (cloud-optimised) GeoTIFFs that the grid needs")
    ] = False,
    workers: Annotated[int, Knob("parallel downloads", ge=1, le=32)] = 4,
    deadline: Annotated[
        float, Knob("time limit for one asset with all its retries, in seconds", gt=0, advanced=True)
    ] = 3600.0,
    sign: Annotated[
        Literal["auto", "none", "planetary-computer"],
        Knob("service that signs asset URLs; auto chooses by host", advanced=True),
    ] = "auto",
    private_hosts: Annotated[
        tuple[str, ...],
        Knob(
            "hosts inside a private network that assets may be fetched from, as name or name:port (in a config also "
            "the host of search.url)",
            advanced=True,
        ),
    ] = (),
    parts: Annotated[
        Path | None, Knob("folder of unfinished downloads, for resume; beside the scene if not given", advanced=True)
    ] = None,
) -> None:
    """Fetch the assets of one scene and verify size and checksum.

    An interrupted download is resumed with range requests. Hrefs are http(s), s3 (with the usual AWS_* variables) or
    paths; a login is read from EOPIPE_TOKEN_<HOST>, as in EOPIPE_TOKEN_DATA_ORG, or EOPIPE_TOKEN_<HOST>_<PORT> for
    another port than the usual one, or from ~/.netrc (`machine host` or `machine host:port`). Hosts that are not public
    get no request unless private_hosts names them.
    Raises BadInputError for missing assets, IntegrityError for damaged ones, UpstreamError when retries are used up,
    RefusedError for unsafe addresses; assets that were fetched are kept for the rerun.
    """
    import shutil

    from eopipe.errors import UsageError
    from eopipe.fetch.assets import fetch_assets, lock_folder, write_scene
    from eopipe.fetch.retry import FetchSession
    from eopipe.publish import publish
    from eopipe.scenes.item import read_item, scene_name
    from eopipe.tiles.cells import read_frame

    if windows and grid is None:
        raise UsageError("--windows needs --grid; give it, or fetch whole assets")
    frozen = read_item(item)
    folder = parts / scene_name(frozen["id"]) if parts else scene.parent / f".{scene.name}.parts"
    grids = [cell.grid for cell in read_frame(grid).cells] if windows and grid else []
    with FetchSession(deadline, sign, private_hosts) as session, lock_folder(folder, session):
        fetched = fetch_assets(frozen, catalog, folder, session, workers, grids)
        with publish(scene, folder=True) as draft:
            write_scene(frozen, fetched, draft, is_window=windows)
        shutil.rmtree(folder)
