"""All assets of a scene: brought side by side, then laid out as one folder with its item."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.fetch.clip import clip, describe
from eopipe.fetch.content import suffix
from eopipe.fetch.crew import all_of, check_room
from eopipe.fetch.download import bring, missing, part_name, place
from eopipe.fetch.retry import Terms
from eopipe.publish import write_json
from eopipe.scenes.item import ITEM_FILE, Item, scene_name

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox


def gather(
    item: Item, catalog: Path | None, room: Path, terms: Terms, workers: int, grid: "GeoBox | None"
) -> dict[str, Path]:
    """Bring all assets of a scene into the folder of parts, by name; with a grid only the blocks that it needs.

    Raises one error that tells of every asset that did not come; those that came are kept.
    """
    assets = dict(sorted(item["assets"].items()))
    tasks, need = [], 0
    for name, asset in assets.items():
        part = room / part_name(name, asset, *([repr(grid)] if grid else []))
        tasks.append(_task(asset, _where(item, name), catalog, part, terms, grid))
        need += 0 if grid else missing(asset, part)
    check_room(room, need)
    return dict(zip(assets, all_of(tasks, workers, terms.stop), strict=True))


def _task(
    asset: dict[str, Any], where: str, catalog: Path | None, part: Path, terms: Terms, grid: "GeoBox | None"
) -> Callable[[], Path]:
    if grid is None:
        return partial(bring, asset, where, catalog, part, terms)
    return partial(clip, asset, where, catalog, part, grid, terms)


def _where(item: Item, name: str) -> str:
    return f"scene {item['id']}, asset {name}"


def lay_out(item: Item, come: dict[str, Path], folder: Path, *, clipped: bool) -> None:
    """Write the scene: its assets under plain names, and the item that points to them."""
    assets = item["assets"]
    for name, part in come.items():
        file = folder / (scene_name(name) + suffix(part, _where(item, name)))
        place(part, file)
        told = describe(assets[name], file) if clipped else assets[name]
        assets = assets | {name: told | {"href": file.name}}
    write_json(folder / ITEM_FILE, item | {"assets": assets})
