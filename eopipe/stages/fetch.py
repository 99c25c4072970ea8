"""Assets of one scene, verified."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Knob, Output


def fetch(
    item: Annotated[Path, Input("STAC Item of the scene, from the frozen list", format="application/geo+json")],
    scene: Annotated[Path, Output("scene", "the item and its assets, verified", folder=True)],
    *,
    catalog: Annotated[
        Path | None, Input("folder that relative paths of the item lead into", folder=True)
    ] = None,
    workers: Annotated[int, Knob("downloads at a time", ge=1, le=32)] = 4,
    parts: Annotated[Path | None, Knob("folder of unfinished downloads; beside the scene if not given")] = None,
) -> None:
    """Bring the assets of one scene to local disk and check size and checksum.

    A broken download goes on where it stopped. Raises BadInputError for missing assets, IntegrityError for
    damaged ones, UpstreamError when the server fails for good; the assets that came are kept for the rerun.
    """
    import shutil

    from eopipe.publish import publish, read_json, write_json
    from eopipe.scenes.download import all_of, bring, suffix
    from eopipe.scenes.item import ITEM_FILE, scene_name

    frozen = read_json(item)
    room = parts or scene.parent / f".{scene.name}.parts"
    room.mkdir(parents=True, exist_ok=True)
    names = sorted(frozen["assets"])
    where = {name: f"scene {frozen['id']}, asset {name}" for name in names}
    tasks = [
        lambda name=name: bring(frozen["assets"][name], where[name], catalog, room / f"{scene_name(name)}.part")
        for name in names
    ]
    come = dict(zip(names, all_of(tasks, workers), strict=True))
    with publish(scene, folder=True) as draft:
        for name, part in come.items():
            file = scene_name(name) + suffix(part, where[name])
            shutil.copyfile(part, draft / file)
            frozen["assets"][name]["href"] = file
        write_json(draft / ITEM_FILE, frozen)
    shutil.rmtree(room)
