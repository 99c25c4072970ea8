"""A trained model on the windows of scenes, without seams: windows with a halo, or windows that overlap."""

import copy
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray
from eopipe.chips.chips import FILLS, ZERO, Fill, Normaliser, copy_pixels, fill_nearest, nearest_valid
from eopipe.errors import BadInputError, DivergedError, UsageError
from eopipe.inference.images import (
    PredictableImage,
    check_symmetries,
    mean_prediction,
    read_normalised,
    read_valid,
    widened,
)
from eopipe.models.model_files import module_of
from eopipe.models.model_folder import TrainedModel
from eopipe.processes import map_in_order
from eopipe.tasks import TASKS
from eopipe.tiles.cells import GAP
from eopipe.tiles.grid import PixelWindow, windows, within
from eopipe.tiles.store import CHIP_SET, Tiles

if TYPE_CHECKING:
    from torch import Tensor

    from eopipe.models.networks import Ensemble

Predict = Callable[[FloatArray], FloatArray]
Result = TypeVar("Result")
# Windows along the edge of a block in which they are blended.
BLOCK_OF_WINDOWS = 4
# Four windows of 32 and of 64 pixels in a batch take half to two thirds of their time one by one; a window of 224
# pixels keeps a core busy by itself, is slower in a batch, and four of them need four times the memory.
LARGEST_OF_BATCH = 64
# Windows that are predicted at a time where nothing else is asked for: memory grows with them.
MOST_THREADS = 8


def padded_slice(edge: int, window: slice, halo: int, factor: int) -> slice:
    """A window with its halo, widened so that it starts on a multiple of the model's factor.

    Pooling then falls on the same pixels in every window. It may extend beyond the raster.
    """
    start = (window.start - halo) // factor * factor
    stop = -(-(min(window.stop, edge) + halo) // factor) * factor
    return slice(start, stop)


@dataclass(frozen=True)
class WindowPredictor:
    """A model applied to scenes of one grid: windows of `edge` pixels with a halo, aligned to the model's factor.

    Where `overlap` is the edge of the windows that the model takes, these overlap by half and are blended instead
    (`blend_windows`). `area` is the part of the frame to predict, None all of it; `boxes` are windows to do so instead.
    `threads` windows are predicted at a time, each by one thread, so that their number changes no byte. A prediction is
    the mean over `symmetries` of the square; windows begin and end at multiples of the factor, so pooling falls on the
    same pixels in each of them. The channels of an ensemble's `members` may follow the model's channels, each with
    the prediction of that member alone.

    Pixels without data are filled (`eopipe.chips.chips`). Where windows have a halo, from valid pixels within `reach`
    pixels, the halo or the model's own, so that what a valid pixel sees depends on its place alone: all that it sees is
    within reach, so has itself within reach, and what is nearer is within twice the reach. Blended windows, chips, and
    with a `reach` of None all windows are filled from their own valid pixels.
    Raises DivergedError where the model's output for a valid pixel is not finite, BadInputError where its input is not.
    """

    stores: Sequence[PredictableImage]
    bands: tuple[str, ...]
    normalise: Normaliser
    predict: Predict
    edge: int
    halo: int
    factor: int
    overlap: int = 0
    boxes: tuple[PixelWindow, ...] | None = None
    area: PixelWindow | None = None
    threads: int = 1
    symmetries: int = 1
    members: int = 0
    reach: int | None = 0
    fill: Fill = fill_nearest

    def windows(self) -> list[PixelWindow]:
        """Windows (rows, columns) that cover the area, or the boxes."""
        if self.boxes is not None:
            return [*self.boxes]
        height, width = self.stores[0].shape
        rows, columns = self.area or (slice(0, height), slice(0, width))
        parts = windows((rows.stop - rows.start, columns.stop - columns.start), self.edge)
        top, left = rows.start, columns.start
        return [(slice(top + y.start, top + y.stop), slice(left + x.start, left + x.stop)) for y, x in parts]

    def of_windows(self, function: Callable[[PixelWindow], Result]) -> Iterator[Result]:
        """What a function gives for each window, in their order; several windows at a time."""
        return map_in_order(function, self.windows(), self.threads, _use_one_thread)

    def predict_images(self, images: FloatArray) -> FloatArray:
        """Predictions (N, channel, H, W), or (N, channel, 1, 1) of chips, of normalised images (N, band, H, W)."""
        return mean_prediction(self.predict, images, self.symmetries)

    def predictions(self, y: slice, x: slice) -> Iterator[tuple[FloatArray, BoolArray]]:
        """Predictions (channel, y, x) and valid mask of a window, for each scene with valid pixels in it."""
        shape = self.stores[0].shape
        padded_y, padded_x = (
            blended_slice(axis, self.overlap) if self.overlap else padded_slice(edge, axis, self.halo, self.factor)
            for edge, axis in zip(shape, (y, x), strict=True)
        )
        core = within((y, x), (padded_y, padded_x))
        for store in self.stores:
            if not store.reaches((y, x)):
                continue
            valid = read_valid(store, padded_y, padded_x)
            if valid[core].any():
                image = self.filled_image(store, (y, x), (padded_y, padded_x), valid)
                whole = self.predict_images(image[None])[0] if not self.overlap else blend_windows(self, image, valid)
                output = whole[(slice(None), *core)]
                check_finite(output, valid[core], f"scene {store.scene}", (y, x), by_model=True)
                yield output, valid[core]

    def filled_image(
        self, store: PredictableImage, window: PixelWindow, padded: PixelWindow, valid: BoolArray
    ) -> FloatArray:
        """Normalised image (band, y, x) of a window with its halo, `padded`, and its valid mask; filled where invalid.

        Only as much of the reach around it (twice the reach around the window) is read as has a pixel that it takes.
        What is blended is filled later, by window. Raises BadInputError where valid pixels are NaN or infinite.
        """
        reach = 0 if self.overlap or valid.all() else self.reach or 0
        if not reach:
            image = read_normalised(store, self.bands, self.normalise, padded, valid)
            check_finite(image, valid, f"scene {store.scene}", window)
            if not self.overlap:
                self.fill(image, valid, self.reach)
            return image
        known = read_valid(store, *widened(padded, reach))
        filled, sources = nearest_valid(known, reach, margin=reach)
        last = np.array(known.shape)[:, None] - 1
        unread = int(np.minimum(sources, last - sources).min(initial=reach))
        known = known[unread : known.shape[0] - unread, unread : known.shape[1] - unread]
        image = read_normalised(store, self.bands, self.normalise, widened(padded, reach - unread), known)
        check_finite(image, known, f"scene {store.scene}", window)
        copy_pixels(image, filled - unread, sources - unread)
        edge = reach - unread
        return np.ascontiguousarray(image[:, edge : image.shape[1] - edge, edge : image.shape[2] - edge])


def _use_one_thread() -> None:
    """Let PyTorch compute in the calling thread alone: how it divides sums would depend on their number."""
    import torch

    torch.set_num_threads(1)


def blended_slice(window: slice, size: int) -> slice:
    """A window widened to all batches of the windows of `size` pixels that reach it.

    Windows begin at multiples of half of it. Batches are squares of windows at fixed places, so that what a window is
    predicted with depends on no partition.
    """
    step, edge = size // 2, batch_edge(size)
    first, last = window.start // step // edge * edge, -(-window.stop // step) // edge * edge + edge - 1
    return slice((first - 1) * step, (last + 1) * step)


def batch_edge(size: int) -> int:
    """Windows of `size` pixels along the edge of a batch."""
    return 2 if size <= LARGEST_OF_BATCH else 1


def blend_windows(predictor: WindowPredictor, image: FloatArray, valid: BoolArray) -> FloatArray:
    """Predictions (channel, y, x) of windows that overlap by half, weighted by a Hann window; 0 where none is valid.

    `image` and `valid` begin and end where batches of windows do (`blended_slice`). The weights of the four windows of
    a pixel add up to 1, as the squares of sine and cosine do, so that no pixel is seen from the edge of a window alone,
    and results depend on no partition (Pielawski and Wahlby 2020, doi:10.1371/journal.pone.0229839).
    """
    size, step, edge = predictor.overlap, predictor.overlap // 2, batch_edge(predictor.overlap)
    ramp = np.sin(np.pi * (np.arange(size) + 0.5) / size) ** 2
    weight = np.outer(ramp, ramp)
    total: AnyArray | None = None
    for top, left in product(*(range(0, length - step, edge * step) for length in valid.shape)):
        corners = product(*(range(begin, begin + edge * step, step) for begin in (top, left)))
        batch = [np.s_[y : y + size, x : x + size] for y, x in corners]
        if not any(valid[window].any() for window in batch):
            continue
        images = np.stack([image[:, *window] for window in batch])
        for pixels, window in zip(images, batch, strict=True):
            predictor.fill(pixels, valid[window], None)
        outputs = predictor.predict_images(images)
        if total is None:
            total = np.zeros((outputs.shape[1], *valid.shape), np.float64)
        for window, output in zip(batch, outputs, strict=True):
            # A model may have no finite output where pixels are not valid.
            total[:, *window] += np.where(valid[window], output, 0) * weight
    if total is None:
        raise ValueError("no window has a valid pixel")
    return total.astype(np.float32)


def check_finite(
    numbers: AnyArray, valid: BoolArray, label: str, window: PixelWindow, *, by_model: bool = False
) -> None:
    """Raise BadInputError for NaN or infinite input (channel, ...) of a model where valid, DivergedError for output."""
    count = int(np.count_nonzero(valid & ~np.isfinite(numbers).all(0)))
    if not count:
        return
    y, x = window
    place = f"{label}, rows {y.start} to {y.stop}, columns {x.start} to {x.stop}"
    if by_model:
        raise DivergedError(
            f"the model's output is NaN or infinite at {count} of {valid.sum()} valid places of {place}, although its "
            "input is finite; train again with a lower train.learning_rate, or check the code of the model"
        )
    raise BadInputError(f"{count} valid pixels of {place} with its halo are NaN or infinite; mask them in the tiles")


def uses_gpu(device: str) -> bool:
    """Whether a device of that name, or `auto`, is a GPU."""
    import torch

    return device == "cuda" or (device == "auto" and torch.cuda.is_available())


def load_predict_function(
    trained: TrainedModel, folder: Path, device: str, *, with_members: bool = False
) -> Callable[[FloatArray], FloatArray]:
    """Return a function from normalised images (N, band, H, W) to the `predictions` of the model's task.

    `with_members` each member's predictions follow as channels. Threads may call it at the same time.
    """
    import torch

    torch_device = torch.device("cuda" if uses_gpu(device) else "cpu")
    module, copies = trained.build(folder).to(torch_device), threading.local()

    @torch.inference_mode()
    def predict(images: FloatArray) -> FloatArray:
        if not hasattr(copies, "module"):
            # A model of a user may keep values of one forward in itself.
            copies.module = copy.deepcopy(module) if module_of(trained.architecture.name) else module
        pixels = torch.from_numpy(images).to(torch_device)
        if with_members and trained.members > 1:
            output = member_predictions(trained, copies.module, pixels)
        else:
            output = TASKS[trained.task].predictions(copies.module(pixels), trained.target)
        outputs: FloatArray = output.cpu().numpy()
        return outputs

    return predict


def member_predictions(trained: TrainedModel, ensemble: "Ensemble", pixels_NCHW: "Tensor") -> "Tensor":
    """The predictions of an ensemble, and then of each of its members, one after the other as channels."""
    import torch

    outputs_MNCHW, task = ensemble.member_outputs(pixels_NCHW), TASKS[trained.task]
    outputs = (task.mean_output(outputs_MNCHW), *outputs_MNCHW)
    return torch.cat([task.predictions(output, trained.target) for output in outputs], 1)


@dataclass(frozen=True)
class PredictorSettings:
    """How a model predicts; of an ensemble `with_members` as channels."""

    window: int
    halo: int | None
    device: str
    threads: int
    symmetries: int = 1
    with_members: bool = False


def open_predictor(
    trained: TrainedModel, model: Path | Predict, stores: list[Tiles], settings: PredictorSettings
) -> WindowPredictor:
    """A trained model on stores, sorted by scene; of a chip set a window is a slot, and has no halo.

    `model` is its folder, or a function of images that takes its place.

    Raises BadInputError where grids do not fit, UsageError for a halo that reaches another cell, and as
    `predictor_of_images`.
    """
    for store in stores[1:]:
        if not store.frame.is_same(stores[0].frame):
            raise BadInputError(f"scenes {stores[0].scene} and {store.scene} are on different grids")
    chip_set = stores[0].attributes.get(CHIP_SET)
    if chip_set:
        settings = replace(settings, window=chip_set["slot"], halo=None)
    predictor = predictor_of_images(trained, model, stores, settings)
    if len(stores[0].frame.cells) > 1:
        check_gap(predictor)
    if not chip_set:
        return predictor
    # Neighbouring slots are not neighbours on the ground.
    return replace(predictor, edge=chip_set["slot"], halo=0, overlap=0, reach=None)


def check_gap(predictor: WindowPredictor) -> None:
    """Raise UsageError where a pixel of one cell sees another, or is beside pixels with the values of another."""
    if max(predictor.halo, 2 * (predictor.reach or 0)) >= GAP:
        raise UsageError(
            f"predict.halo is {predictor.halo}: pixels of another cell begin at {GAP}, and pixels without data have "
            f"values from as far away again; choose one below {GAP // 2}"
        )
    if predictor.overlap > GAP:
        raise UsageError(
            f"windows of {predictor.overlap} pixels reach two cells, which are {GAP} pixels apart; choose a smaller "
            "predict.window"
        )


def predictor_of_images(
    trained: TrainedModel, model: Path | Predict, images: Sequence[PredictableImage], settings: PredictorSettings
) -> WindowPredictor:
    """A trained model on images of one grid; `model` as `open_predictor` takes it.

    Windows of a model that takes one size only, or sees the whole of its window, are blended. 0 `threads` means one for
    each core, at most 8, since each needs the memory of a window; a GPU has one. Raises BadInputError for bands that
    images lack one, UsageError for a halo of blended windows, and for symmetries other than 1, 2, 4 or 8.
    """
    check_symmetries(settings.symmetries)
    window, halo, overlap = settings.window, settings.halo, 0
    if not TASKS[trained.task].is_of_chips and (
        trained.window or any(kind.sees_whole_window for kind in trained.architectures)
    ):
        if halo is not None:
            raise UsageError("windows of this model overlap by half and are blended, so there is no halo; remove it")
        overlap = trained.window or -(-window // (2 * trained.factor)) * 2 * trained.factor
        # Blocks of several windows, since the windows across their edges are predicted for each of two blocks.
        window = max(window, BLOCK_OF_WINDOWS * overlap) // overlap * overlap
    for image in images:
        missing_bands = [band for band in trained.bands if band not in image.names]
        if missing_bands:
            raise BadInputError(
                f"scene {image.scene} has no band {', '.join(missing_bands)}, which the model needs; "
                f"it has {', '.join(image.names)}"
            )
    radius, predict = max(kind.receptive_field_radius for kind in trained.architectures), model
    if isinstance(predict, Path):
        predict = load_predict_function(trained, predict, settings.device, with_members=settings.with_members)
    return WindowPredictor(
        images,
        trained.bands,
        trained.normaliser,
        predict,
        edge=window,
        halo=radius if halo is None else halo,
        factor=trained.factor,
        overlap=overlap,
        threads=1 if uses_gpu(settings.device) else settings.threads or min(len(os.sched_getaffinity(0)), MOST_THREADS),
        symmetries=settings.symmetries,
        members=trained.members if settings.with_members and trained.members > 1 else 0,
        reach=0 if trained.fill == ZERO else halo or radius,
        fill=FILLS[trained.fill],
    )
