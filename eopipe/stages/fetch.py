"""Assets of one scene, verified."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Knob, Output


def fetch(
    item: Annotated[Path, Input("STAC Item of the scene, from the frozen list", format="application/geo+json")],
    scene: Annotated[Path, Output("scene", "the item and its assets, verified", folder=True)],
    *,
    catalog: Annotated[Path | None, Input("folder that relative paths of the item lead into", folder=True)] = None,
    workers: Annotated[int, Knob("downloads at a time", ge=1, le=32)] = 4,
    parts: Annotated[Path | None, Knob("folder of unfinished downloads; beside the scene if not given")] = None,
) -> None:
    """Bring the assets of one scene to local disk and check size and checksum.

    A broken download goes on where it stopped. Raises BadInputError for missing assets, IntegrityError for
    damaged ones, UpstreamError when the server fails for good; the assets that came are kept for the rerun.
    """
    import shutil
    from functools import partial

    from eopipe.publish import publish, write_json
    from eopipe.scenes.content import suffix
    from eopipe.scenes.download import all_of, alone_in, bring, part_name
    from eopipe.scenes.item import ITEM_FILE, read_item, scene_name

    frozen = read_item(item)
    room = parts / scene_name(frozen["id"]) if parts else scene.parent / f".{scene.name}.parts"
    assets = dict(sorted(frozen["assets"].items()))
    where = {name: f"scene {frozen['id']}, asset {name}" for name in assets}
    tasks = [partial(bring, asset, where[n], catalog, room / part_name(n, asset)) for n, asset in assets.items()]
    with alone_in(room):
        come = dict(zip(assets, all_of(tasks, workers), strict=True))
        with publish(scene, folder=True) as draft:
            for name, part in come.items():
                file = scene_name(name) + suffix(part, where[name])
                shutil.copyfile(part, draft / file)
                frozen["assets"][name]["href"] = file
            write_json(draft / ITEM_FILE, frozen)
        shutil.rmtree(room)
