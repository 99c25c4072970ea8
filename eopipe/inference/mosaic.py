"""Maps of a scene or a mosaic, written window by window in bounded memory."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, FloatArray, IntArray
from eopipe.inference.predictor import WindowPredictor, check_finite, read_padded
from eopipe.inference.temperature import Calibration, apply_label_temperature, apply_temperature
from eopipe.models.tasks import CHIPWISE, PRESENCE
from eopipe.publish import publish
from eopipe.scenes.item import scene_tags
from eopipe.tiles.cells import Cell
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.store import NO_LABEL, Tiles

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

    from eopipe.models.model_folder import TrainedModel

WindowResult = tuple[slice, slice, FloatArray, IntArray]
# Red, green and blue of 0 to 255 of each number.
ColorTable = dict[int, tuple[int, int, int]]
SCALE = 10_000
NO_PROBABILITY = 65_535


def probabilities(predictor: WindowPredictor, classes: int) -> Iterator[WindowResult]:
    """For each window: rows, columns, mean class probabilities over valid scenes (class, y, x), and scene count."""

    def of_window(window: PixelWindow) -> WindowResult:
        y, x = window
        total = np.zeros((classes, y.stop - y.start, x.stop - x.start), np.float64)
        scene_count = np.zeros(total.shape[1:], np.int64)
        for probability, valid in predictor.predictions(y, x):
            # A model may have no finite output for the zeros of invalid pixels.
            total += np.where(valid, probability, 0)
            scene_count += valid
        return y, x, (total / np.maximum(scene_count, 1)).astype(np.float32), scene_count

    return predictor.of_windows(of_window)


def values(predictor: WindowPredictor) -> Iterator[WindowResult]:
    """For each window: rows, columns, mean and standard deviation of the value over valid scenes, and scene count.

    Mean and squares are updated scene by scene (Welford 1962, doi:10.1080/00401706.1962.10490022).
    """

    def of_window(window: PixelWindow) -> WindowResult:
        y, x = window
        mean = np.zeros((y.stop - y.start, x.stop - x.start), np.float64)
        squares, scene_count = np.zeros_like(mean), np.zeros(mean.shape, np.int64)
        for (value, *_), valid in predictor.predictions(y, x):
            scene_count += valid
            delta = np.where(valid, value - mean, 0)
            mean += delta / np.maximum(scene_count, 1)
            squares += delta * np.where(valid, value - mean, 0)
        delta = np.sqrt(squares / np.maximum(scene_count, 1))
        return y, x, np.stack([mean, delta]).astype(np.float32), scene_count

    return predictor.of_windows(of_window)


def cells(predictor: WindowPredictor, classes: int, chip: int) -> Iterator[WindowResult]:
    """For each window: rows, columns, class probabilities (class, y, x), constant in each cell of `chip` pixels.

    Each cell is a chip that the model classifies by itself, so there are no seams except between cells. Scenes are
    weighted by their valid pixels in the cell; at the border a cell may extend beyond the grid. `predictor.edge` must
    be a multiple of `chip`.
    """

    def of_window(window: PixelWindow) -> WindowResult:
        y, x = window
        rows, columns = (-(-(part.stop - part.start) // chip) for part in (y, x))
        total, scene_count = np.zeros((rows * columns, classes), np.float64), np.zeros(rows * columns, np.int64)
        for store in predictor.stores:
            extent = slice(y.start, y.start + rows * chip), slice(x.start, x.start + columns * chip)
            image, valid = read_padded(store, predictor.bands, predictor.normalise, *extent)
            weight = _chips(valid[None], chip).sum((1, 2, 3))
            if valid_cells := np.flatnonzero(weight).tolist():
                check_finite(image, valid, f"scene {store.scene}", (y, x))
                output = predictor.predict_images(_chips(image, chip)[valid_cells])[:, :, 0, 0]
                check_finite(output.T, np.ones(len(output), bool), f"scene {store.scene}", (y, x), by_model=True)
                total[valid_cells] += output * weight[valid_cells, None]
                scene_count += weight
        probability = (total / np.maximum(scene_count, 1)[:, None]).astype(np.float32).T.reshape(classes, rows, columns)
        crop = np.s_[..., : y.stop - y.start, : x.stop - x.start]
        return y, x, _expand(probability, chip)[crop], _expand(scene_count.reshape(rows, columns), chip)[crop]

    return predictor.of_windows(of_window)


def _chips(image: AnyArray, chip: int) -> AnyArray:
    """Reshape (band, y, x) of whole cells to (cell, band, chip, chip), row by row."""
    bands, height, width = image.shape
    parts = image.reshape(bands, height // chip, chip, width // chip, chip).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(parts.reshape(-1, bands, chip, chip))


def _expand(numbers: AnyArray, chip: int) -> AnyArray:
    return numbers.repeat(chip, -2).repeat(chip, -1)


@contextmanager
def new_map(
    target: Path,
    grid: "GeoBox",
    dtype: str,
    nodata: float | None,
    names: tuple[str, ...],
    colors: ColorTable | None = None,
    **tags: Any,
) -> Iterator[Any]:
    """Publish a COG: the caller writes windows into a tiled GeoTIFF, which is then copied with overviews.

    The names are those of the bands, `colors` those of the numbers of a single band, nodata being transparent.
    """
    import rasterio
    from rasterio.shutil import copy

    height, width = grid.shape
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "dtype": dtype,
        "nodata": nodata,
        "count": len(names),
        "width": width,
        "height": height,
    }
    profile |= {"crs": str(grid.crs), "transform": grid.affine, "tiled": True, "blockxsize": 256, "blockysize": 256}
    with publish(target) as draft:
        plain = draft.with_name("windows.tif")
        with rasterio.open(plain, "w", **profile, BIGTIFF="IF_SAFER") as file:
            file.descriptions = names
            file.update_tags(**tags)
            if colors:
                file.write_colormap(1, colors)
            yield file
        copy(plain, draft, driver="COG", COMPRESS="DEFLATE", NUM_THREADS="1", OVERVIEW_RESAMPLING="NEAREST")
        plain.unlink()


def write_maps(
    parts: Iterator[WindowResult],
    grid: "GeoBox",
    names: tuple[str, ...],
    classes: Path,
    probabilities_path: Path,
    scenes: list[str],
    calibration: Calibration | None = None,
    colors: ColorTable | None = None,
    **tags: Any,
) -> None:
    """Write the COG of classes (uint8, 255 no scene) and the one of probabilities (uint16, scale 1/10000).

    Scenes (`scene_tags`) and the other `tags` are written as tags of both; the classes have a colour table. A
    calibration changes only the second file.
    """
    from rasterio.windows import Window

    with ExitStack() as stack:
        legend = ", ".join(f"{n}={name}" for n, name in enumerate(names))
        tags = {"classes": legend} | scene_tags(scenes) | tags
        class_map = stack.enter_context(new_map(classes, grid, "uint8", NO_LABEL, ("class",), colors, **tags))
        probability_tags = tags | (calibration.tags if calibration else {})
        probability_map = stack.enter_context(
            new_map(probabilities_path, grid, "uint16", NO_PROBABILITY, names, **probability_tags)
        )
        probability_map.scales = [1 / SCALE] * len(names)
        for y, x, probability, scene_count in parts:
            is_covered, window_box = scene_count > 0, Window.from_slices(y, x)
            class_map.write(
                np.where(is_covered, probability.argmax(0), NO_LABEL).astype(np.uint8), 1, window=window_box
            )
            calibrated = apply_temperature(probability, calibration.temperature) if calibration else probability
            stored = np.where(is_covered, np.rint(calibrated * SCALE), NO_PROBABILITY).astype(np.uint16)
            probability_map.write(stored, window=window_box)


def write_label_sets(
    parts: Iterator[WindowResult],
    trained: "TrainedModel",
    stores: list[Tiles],
    presence_path: Path,
    probabilities_path: Path,
    calibration: Calibration | None = None,
    **tags: Any,
) -> None:
    """Write the COG of labels (uint8, one band per class: 1 present, 0 absent, 255 no scene) and that of probabilities.

    The latter is uint16 with scale 1/10000; a calibration changes only it. Tags of both have the scenes, the edge of a
    cell, the share of its pixels that a label needs, and the other `tags`.
    """
    from rasterio.windows import Window

    grid, names = stores[0].grid, trained.classes
    tags |= scene_tags([store.scene for store in stores]) | {"task": trained.task, "chip": trained.chip}
    tags |= {"min_share": trained.min_share}
    described = tags | (calibration.tags if calibration else {})
    with (
        new_map(presence_path, grid, "uint8", NO_LABEL, names, **tags) as presence_map,
        new_map(probabilities_path, grid, "uint16", NO_PROBABILITY, names, **described) as probability_map,
    ):
        probability_map.scales = [1 / SCALE] * len(names)
        for y, x, probability, scene_count in parts:
            is_covered, window_box = scene_count > 0, Window.from_slices(y, x)
            presence = np.where(is_covered, probability >= PRESENCE, NO_LABEL).astype(np.uint8)
            presence_map.write(presence, window=window_box)
            calibrated = apply_label_temperature(probability, calibration.temperature if calibration else 1.0)
            stored = np.where(is_covered, np.rint(calibrated * SCALE), NO_PROBABILITY).astype(np.uint16)
            probability_map.write(stored, window=window_box)


def write_values(
    parts: Iterator[WindowResult],
    grid: "GeoBox",
    quantity: tuple[str, str],
    values_path: Path,
    deviation_path: Path,
    scenes: list[str],
    **tags: Any,
) -> None:
    """Write the COG of values (float32, NaN no scene) of a quantity with its unit, and one of their uncertainty.

    The latter has the standard deviation over the scenes of each pixel, 0 for a single one, and their number.
    """
    from rasterio.windows import Window

    name, unit = quantity
    tags = {"quantity": name, "unit": unit} | scene_tags(scenes) | {"task": "regression"} | tags
    bands = (f"standard deviation of {name}", "scenes")
    with (
        new_map(values_path, grid, "float32", math.nan, (name,), **tags) as values_map,
        new_map(deviation_path, grid, "float32", math.nan, bands, **tags) as deviation_map,
    ):
        values_map.units, deviation_map.units = (unit,), (unit, "1")
        for y, x, mean_and_deviation, scene_count in parts:
            is_covered, window_box = scene_count > 0, Window.from_slices(y, x)
            values_map.write(np.where(is_covered, mean_and_deviation[0], np.float32(math.nan)), 1, window=window_box)
            layers = np.stack([mean_and_deviation[1], scene_count]).astype(np.float32)
            deviation_map.write(np.where(is_covered, layers, np.float32(math.nan)), window=window_box)


def write_prediction(
    predictor: WindowPredictor,
    trained: "TrainedModel",
    cell: Cell,
    prediction_path: Path,
    uncertainty_path: Path,
    calibration: Calibration | None = None,
    colors: ColorTable | None = None,
) -> None:
    """Write both maps of a model's task on a cell: classes, in colours, and probabilities, or values and deviation.

    Pixels of another UTM zone than the cell's have no data. A calibration applies to probabilities.
    Tags of both name the symmetries where there are several.
    """
    predictor = replace(predictor, area=cell.window)
    scenes, names = [store.scene for store in predictor.stores], trained.classes
    averaged = {"symmetries": predictor.symmetries} if predictor.symmetries > 1 else {}
    tags: dict[str, Any] = averaged | ({"cell": cell.id} if cell.id else {})
    if trained.task == "regression":
        parts, quantity = _in_cell(values(predictor), cell), (names[0], trained.unit)
        write_values(parts, cell.grid, quantity, prediction_path, uncertainty_path, scenes, **tags)
        return
    parts = _in_cell(task_probabilities(predictor, trained), cell)
    if trained.task == "multilabel":
        stores = predictor.stores
        write_label_sets(parts, trained, stores, prediction_path, uncertainty_path, calibration, **averaged)
        return
    tags |= {"task": trained.task, "chip": trained.chip} if trained.task == "classification" else {}
    write_maps(parts, cell.grid, names, prediction_path, uncertainty_path, scenes, calibration, colors, **tags)


def _in_cell(parts: Iterator[WindowResult], cell: Cell) -> Iterator[WindowResult]:
    """Windows of a cell, by positions in it; pixels that do not belong to it count no scene."""
    for y, x, prediction, scene_count in parts:
        columns = slice(x.start - cell.column, x.stop - cell.column)
        yield y, columns, prediction, np.where(cell.belongs(y, columns), scene_count, 0) if cell.id else scene_count


def task_probabilities(predictor: WindowPredictor, trained: "TrainedModel") -> Iterator[WindowResult]:
    """The `probabilities` of pixels, or of the `cells` of a chip classifier."""
    if trained.task not in CHIPWISE:
        return probabilities(predictor, len(trained.classes))
    predictor = replace(predictor, edge=max(predictor.edge // trained.chip, 1) * trained.chip)
    return cells(predictor, len(trained.classes), trained.chip)
