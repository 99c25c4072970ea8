"""Files of a map: what is stored of each task, whole maps as COGs, and parts of a map that jobs of their own make."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.chips.map_places import MapPlaces
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.mosaic import task_predictions, task_predictor
from eopipe.inference.predictor import WindowPredictor
from eopipe.inference.temperature import Calibration
from eopipe.publish import publish
from eopipe.scenes.item import scene_tags
from eopipe.tasks import SEGMENTATION, TASKS
from eopipe.tasks.task import SPREAD
from eopipe.tiles.cells import Cell
from eopipe.tiles.geotiff import ColorTable, MapFormat, open_map, read_window
from eopipe.tiles.grid import PixelWindow, within

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

    from eopipe.models.model_folder import TrainedModel

# Both files of a map; the first has the values of a regression, the second their deviation.
KINDS = ("classes", "probabilities")
PART = re.compile(r"([1-9]\d*)-of-([1-9]\d*)")


@dataclass(frozen=True)
class MapPart:
    """The files of a part of a map, such as 3-of-16, and the cell of the map.

    Parts are runs of the windows of the map in their order, of nearly the same length.
    """

    name: str
    cell: str
    files: tuple[Path, Path]


def windows_of_part(name: str, windows: Sequence[PixelWindow]) -> Sequence[PixelWindow]:
    """The windows of the map that are in a part. Raises UsageError for a part that there cannot be."""
    match = PART.fullmatch(name)
    number, parts = (int(match[1]), int(match[2])) if match else (1, 0)
    if number > parts:
        raise UsageError(f"--part is {name}, but a part is its number and the number of all, such as 3-of-16")
    return windows[(number - 1) * len(windows) // parts : number * len(windows) // parts]


@contextmanager
def new_map(target: Path, grid: "GeoBox", description: MapFormat, *, sparse: bool = False) -> Iterator[Any]:
    """Publish a COG: the caller writes windows into a tiled GeoTIFF, which is then copied with overviews.

    That GeoTIFF has only the blocks that were written. A `sparse` one is published so, compressed, and is not a COG.
    """
    import rasterio
    from rasterio.shutil import copy

    height, width = grid.shape
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "dtype": description.dtype,
        "nodata": description.nodata,
        "count": len(description.names),
        "width": width,
        "height": height,
    }
    profile |= {"crs": str(grid.crs), "transform": grid.affine, "tiled": True, "blockxsize": 256, "blockysize": 256}
    profile |= {"sparse_ok": True} | ({"compress": "deflate"} if sparse else {})
    with publish(target) as draft:
        plain = draft if sparse else draft.with_name("windows.tif")
        with rasterio.open(plain, "w", **profile, BIGTIFF="IF_SAFER") as file:
            file.descriptions = description.names
            file.update_tags(**description.tags)
            if description.colors:
                file.write_colormap(1, description.colors)
            if description.steps != 1:
                file.scales = [1 / description.steps] * len(description.names)
            if description.units:
                file.units = description.units
            yield file
        if not sparse:
            copy(plain, draft, driver="COG", COMPRESS="DEFLATE", NUM_THREADS="1", OVERVIEW_RESAMPLING="NEAREST")
            plain.unlink()


def write_prediction(
    predictor: WindowPredictor,
    trained: "TrainedModel",
    cell: Cell,
    targets: tuple[Path, Path],
    calibration: Calibration | None = None,
    colors: ColorTable | None = None,
    *,
    model: str = "",
    part: str | None = None,
    parts: Sequence[MapPart] = (),
    places: MapPlaces | None = None,
) -> None:
    """Write both maps of a model's task on a cell: classes, in colours, and probabilities, or values and deviation.

    Pixels of another UTM zone than the cell's have no data. A calibration applies to probabilities. Only the windows of
    a `part` are written, into sparse files that also name the model; what is in `parts` of this cell is copied from
    them and not predicted again. With `places` only the windows that they reach are predicted, as wholes: a prediction
    of another window differs in its last bits. Raises BadInputError for parts of a map with other tags, UsageError for
    a part that there cannot be.
    """
    predictor = task_predictor(replace(predictor, area=cell.window), trained)
    of_map: dict[str, Any] = {"symmetries": predictor.symmetries} if predictor.symmetries > 1 else {}
    of_map |= ({"cell": cell.id} if cell.id else {}) | ({"places": places.name} if places else {})
    scenes = [store.scene for store in predictor.stores]
    both: Sequence[MapFormat] = map_files(trained, scenes, of_map, calibration, colors)
    of_part = {"window": predictor.edge, "halo": predictor.halo, "model": model}
    parts = [other for other in parts if other.cell == cell.id]
    for other in parts:
        _check_part(other, both, cell, of_part)
    task, temperature = TASKS[trained.task], calibration.temperature if calibration else 1.0
    every = predictor.windows()
    copied = {_start(window) for other in parts for window in windows_of_part(other.name, every)}
    remaining = windows_of_part(part, every) if part else places.windows(every) if places else every
    if part:
        both = _with_tags(both, of_part | {"part": part})
    with ExitStack() as stack:
        written = [
            stack.enter_context(new_map(target, cell.grid, description, sparse=bool(part)))
            for target, description in zip(targets, both, strict=True)
        ]
        for other in parts:
            _copy_part(other, [within(window, cell.window) for window in windows_of_part(other.name, every)], written)
        boxes = tuple(window for window in remaining if _start(window) not in copied)
        for y, x, prediction, scene_count in task_predictions(replace(predictor, boxes=boxes), trained):
            in_map = within((y, x), cell.window)
            count = np.where(cell.belongs(*in_map), scene_count, 0) if cell.id else scene_count
            layers = task.layers(prediction, count, len(trained.classes), temperature)
            _write(written, in_map, [stored(*pair, count > 0) for pair in zip(layers, both, strict=True)])


def _with_tags(both: Sequence[MapFormat], of_part: dict[str, Any]) -> list[MapFormat]:
    """Both files with the tags of a part."""
    return [
        replace(layers, tags=layers.tags | of_part | {"file": kind}) for layers, kind in zip(both, KINDS, strict=True)
    ]


def _start(window: PixelWindow) -> tuple[int, int]:
    return window[0].start, window[1].start


def _write(files: Sequence[Any], window: PixelWindow, layers: Sequence[AnyArray]) -> None:
    from rasterio.windows import Window

    for file, layer in zip(files, layers, strict=True):
        file.write(layer, window=Window.from_slices(*window))


def _copy_part(part: MapPart, windows: Sequence[PixelWindow], written: Sequence[Any]) -> None:
    """Copy the windows of a part into the files of the map."""
    with ExitStack() as stack:
        files = [stack.enter_context(open_map(path)) for path in part.files]
        for window in windows:
            _write(written, window, [read_window(file, *window) for file in files])


def read_parts(paths: Sequence[Path]) -> list[MapPart]:
    """Parts of maps by their files; raises BadInputError for other files, and for one without the other of the two."""
    parts: dict[tuple[str, str], dict[str, Path]] = {}
    for path in paths:
        tags = _tags_of(path)
        if "part" not in tags:
            raise BadInputError(f"{path} is not a part of a map: it has no tag part, which predict --part writes")
        files = parts.setdefault((tags.get("cell", ""), tags["part"]), {})
        if tags["file"] in files:
            raise BadInputError(f"{files[tags['file']]} and {path} are the same file of part {tags['part']}; give one")
        files[tags["file"]] = path
    for (_, name), files in parts.items():
        if missing := [kind for kind in KINDS if kind not in files]:
            raise BadInputError(f"part {name} has {', '.join(map(str, files.values()))}, but not its {missing[0]}")
    return [MapPart(name, cell, (files[KINDS[0]], files[KINDS[1]])) for (cell, name), files in parts.items()]


def _tags_of(path: Path) -> dict[str, str]:
    with open_map(path) as file:
        return {k: v for k, v in file.tags().items() if k != "AREA_OR_POINT"} | {"size": str(file.shape)}


def _check_part(part: MapPart, both: Sequence[MapFormat], cell: Cell, of_part: dict[str, Any]) -> None:
    """Raise BadInputError where a part has other tags than the map of its cell."""
    for path, layers in zip(part.files, _with_tags(both, of_part | {"part": part.name}), strict=True):
        present = _tags_of(path)
        needed = {k: str(v) for k, v in layers.tags.items()} | {"size": str(cell.shape)}
        if different := sorted(k for k in needed.keys() | present.keys() if needed.get(k) != present.get(k)):
            name = different[0]
            raise BadInputError(
                f"{path} is a part of another map: its {name} is {present.get(name)}, in this map it is "
                f"{needed.get(name)}; make the part again"
            )


def map_files(
    trained: "TrainedModel",
    scenes: list[str],
    of_map: dict[str, Any],
    calibration: Calibration | None,
    colors: ColorTable | None,
) -> tuple[MapFormat, MapFormat]:
    """How both files of a map are written. Tags of both have the scenes, the task and those `of_map`.

    The second file of an ensemble has one more band, the spread of its members, and a tag with their number.
    """
    is_ensemble, task = trained.members > 1, TASKS[trained.task]
    tags = scene_tags(scenes) | task.map_tags(trained.classes, trained.unit, trained.chip) | of_map
    tags |= {name: getattr(trained, name) for name in task.options}
    if task is SEGMENTATION:
        # The task of a map without one.
        del tags["task"]
    of_second = {"members": trained.members} if is_ensemble else {}
    of_second |= calibration.tags if calibration and not task.not_calibrated else {}
    first, second = task.map_formats(trained.classes, trained.unit, (SPREAD,) * is_ensemble)
    colors = colors if task.maps_classes else None
    return replace(first, tags=tags, colors=colors), replace(second, tags=tags | of_second)


def stored(layer: AnyArray, description: MapFormat, is_covered: BoolArray) -> AnyArray:
    """The numbers of a file for a layer (band, y, x), without data where nothing is covered (y, x)."""
    nodata: Any = description.nodata
    numbers: AnyArray = np.rint(layer * description.steps) if description.steps != 1 else layer
    return np.where(is_covered, numbers, nodata).astype(description.dtype)
