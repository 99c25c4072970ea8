"""The data loader of a training: batches on the device, in a deterministic order, augmented.

A GPU finishes chips with the same result as `finish_chip` on a CPU. Each augmentation is a pure function of (seed,
epoch, sample) made of single products and sums, which every processor rounds alike: it depends on no other sample, no
worker and no device.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from eopipe.arrays import Float64Array, IntArray
from eopipe.chips.chips import Normaliser
from eopipe.chips.splits import read_samples
from eopipe.loader.chip_reader import SharedMemorySlots
from eopipe.loader.order import SampleOrder, generator
from eopipe.loader.prefetch import BatchRequest, LoadedBatch, LoaderJob, Prefetcher, symmetries_of
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from eopipe.training_job import Settings

DROP_PROBABILITY = 0.1  # probability that a band is dropped
MAX_GAIN, MAX_SHIFT = 0.1, 0.2  # largest change of brightness: share of the contrast, standard deviations of the band
MAX_HAZE, AIRLIGHT = 0.4, 2.0  # largest opacity of haze; brightness of the airlight in standard deviations
KNOTS = 4  # haze changes smoothly between this many knots along an edge
# Batches read ahead: enough to hide the time of reading a block.
PREFETCHED_BATCHES = 4
# Batches on the GPU or being copied to it: one is copied while the previous one is used.
DEVICE_BATCHES = 2


def augment(
    images_NCHW: Tensor, labels_NHW: Tensor, numbers: IntArray, epoch: int, settings: "Settings"
) -> tuple[Tensor, Tensor]:
    """Augment normalised images (N, band, H, W) of these sample numbers as listed in `settings.augment`.

    Values are standard deviations from the mean of a band. A pixel of zeros only is invalid and stays zero.
    Symmetries, which change the labels too, are applied by the chip reader.
    """
    kinds = [kind for kind in ("brightness", "haze", "bands") if kind in settings.augment]
    if not kinds or not len(numbers):
        return images_NCHW, labels_NHW
    is_measured = (images_NCHW != 0).any(1, keepdim=True)
    for kind in kinds:
        # A random stream for each kind: adding one to the list changes no other.
        generators = [generator(settings.seed, epoch, int(number), 1 + KINDS.index(kind)) for number in numbers]
        images_NCHW = _CHANGES[kind](images_NCHW, generators)
    return images_NCHW * is_measured, labels_NHW


def brightness(images_NCHW: Tensor, generators: list[np.random.Generator]) -> Tensor:
    """Random contrast and brightness, the same for all bands and pixels of a sample."""
    uniform = np.stack([g.uniform(-1, 1, 2) for g in generators])
    gain, shift = _like_tensor(
        images_NCHW, np.stack([1 + MAX_GAIN * uniform[:, 0], MAX_SHIFT * uniform[:, 1]], 1)[..., None, None]
    ).unbind(1)
    return images_NCHW * gain[:, None] + shift[:, None]


def haze(images_NCHW: Tensor, generators: list[np.random.Generator]) -> Tensor:
    """Haze that varies smoothly in space, with another opacity for each band.

    The atmospheric scattering model, I = J t + A (1 - t) (Narasimhan and Nayar 2002,
    doi:10.1023/A:1016328200723).
    """
    bands = images_NCHW.shape[1]
    knots = np.stack([g.uniform(0, MAX_HAZE) * g.uniform(0, 1, (KNOTS, KNOTS)) for g in generators])
    band_opacity = np.stack([g.uniform(0, 1, bands) for g in generators])[..., None, None]
    opacity = bilinear_field(_like_tensor(images_NCHW, knots), images_NCHW.shape[2:])[:, None] * _like_tensor(
        images_NCHW, band_opacity
    )
    return images_NCHW * (1 - opacity) + opacity * AIRLIGHT


def bilinear_field(knots_NKK: Tensor, shape: torch.Size) -> Tensor:
    """Bilinear fields (N, H, W) through knots (N, K, K) that are evenly spaced, the outer ones on the border."""
    for axis, edge in ((1, shape[0]), (2, shape[1])):
        count = knots_NKK.shape[axis] - 1
        position = torch.arange(edge, device=knots_NKK.device, dtype=knots_NKK.dtype) * (count / max(edge - 1, 1))
        lower = position.long().clamp(max=count - 1)
        weight = (position - lower).reshape(-1, 1) if axis == 1 else position - lower
        before, after = knots_NKK.index_select(axis, lower), knots_NKK.index_select(axis, lower + 1)
        knots_NKK = before * (1 - weight) + after * weight
    return knots_NKK


def drop_bands(images_NCHW: Tensor, generators: list[np.random.Generator]) -> Tensor:
    """Set random bands to their mean (0), but never all of a sample."""
    bands = images_NCHW.shape[1]
    keep_mask = np.stack([_keep_mask(g, bands) for g in generators])[..., None, None]
    return images_NCHW * _like_tensor(images_NCHW, keep_mask)


def _keep_mask(generator: np.random.Generator, bands: int) -> Float64Array:
    keep_mask = generator.uniform(size=bands) >= DROP_PROBABILITY
    keep_mask[generator.integers(bands)] = True
    return keep_mask.astype(float)


KINDS = ("brightness", "haze", "bands")
_CHANGES = {"brightness": brightness, "haze": haze, "bands": drop_bands}


def _like_tensor(images: Tensor, values: Float64Array) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(images)


class DeviceFinisher:
    """Normalises stored batches on the device, with scale and offset of each scene, mean and deviation of each band."""

    def __init__(self, normaliser: Normaliser, scaling: list[tuple[float, float]], device: torch.device) -> None:
        self._device = device
        self._mean, self._std = (self._to_device(values)[:, None, None] for values in (normaliser.mean, normaliser.std))
        self._scaling = self._to_device(scaling).reshape(-1, 2, 1, 1, 1)

    def _to_device(self, values: object) -> Tensor:
        return torch.from_numpy(np.array(values, np.float32)).to(self._device)

    def __call__(
        self, images: Tensor, valid: Tensor, labels: Tensor, scenes: IntArray, symmetries: IntArray
    ) -> tuple[Tensor, Tensor]:
        """Images (N, band, H, W) float32 and labels (N, H, W), 255 or NaN where invalid, after `symmetries`.

        Bit for bit equal to `finish_chip`: the same operations in the same order. The reader has filled pixels without
        data in the stored numbers; an image of nothing else is 0.
        """
        images, invalid = images.to(torch.float32), valid == 0
        scale, offset = self._scaling[_index(scenes, images)].unbind(1)
        images.mul_(scale).add_(offset).sub_(self._mean).div_(self._std)
        images.masked_fill_(invalid.flatten(1).all(1)[:, None, None, None], 0)
        if labels.is_floating_point():
            labels = labels.masked_fill_(invalid, math.nan)
        else:
            labels = labels.to(torch.int64).masked_fill_(invalid, NO_LABEL)
        return apply_symmetries(images, symmetries), apply_symmetries(labels, symmetries)


def apply_tensor_symmetry(tensor: Tensor, symmetry: int) -> Tensor:
    """Apply one of the eight symmetries of the square to the last two axes."""
    if symmetry & 4:
        tensor = tensor.transpose(-1, -2)
    axes = [axis for axis, bit in ((-2, 2), (-1, 1)) if symmetry & bit]
    return tensor.flip(axes) if axes else tensor


def apply_symmetries(tensor: Tensor, symmetries: IntArray) -> Tensor:
    """Apply to every sample of a batch its own symmetry; a few large operations rather than one for each sample."""
    if len(set(symmetries.tolist())) == 1:
        return apply_tensor_symmetry(tensor, int(symmetries[0]))
    groups = [np.flatnonzero(symmetries == symmetry) for symmetry in range(8)]
    parts = [
        apply_tensor_symmetry(tensor[_index(group, tensor)], symmetry)
        for symmetry, group in enumerate(groups)
        if len(group)
    ]
    return torch.cat(parts)[_index(np.argsort(np.concatenate(groups)), tensor)]


def _index(numbers: IntArray, reference: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(reference.device)


@dataclass(frozen=True)
class DeviceCopy:
    """An asynchronous copy of a batch: image, valid and label on the GPU, and the event at the end of the copy."""

    batch: LoadedBatch
    tensors: tuple[Tensor, Tensor, Tensor]
    copied: "torch.cuda.Event"

    @property
    def request(self) -> BatchRequest:
        return self.batch.request

    def ready_tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The tensors, for use on the current stream: the GPU waits for the copy, the CPU does not."""
        stream = torch.cuda.current_stream(self.tensors[0].device)
        stream.wait_event(self.copied)
        for tensor in self.tensors:
            # Their memory belongs to the copy stream, which must not reuse it while this one works.
            tensor.record_stream(stream)
        return self.tensors

    def wait_until_copied(self) -> LoadedBatch:
        """Wait for the end of the copy; return the batch in its slot, which may be freed then."""
        self.copied.synchronize()
        return self.batch


class HostToDeviceCopier:
    """Copies slots to the GPU asynchronously, from page-locked (pinned) memory, on a stream of its own."""

    def __init__(self, ring: SharedMemorySlots, device: torch.device) -> None:
        self._device = device
        self._copy_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        for slot in ring.slots:
            for array in (slot.image, slot.valid, slot.label):
                torch.cuda.check_error(cudart.cudaHostRegister(array.ctypes.data, array.nbytes, 0))

    def start_copy(self, batch: LoadedBatch) -> DeviceCopy:
        """Start the asynchronous copy of a batch."""
        chips = batch.chips
        with torch.cuda.stream(self._copy_stream):
            image, valid, label = (
                torch.from_numpy(array).to(self._device, non_blocking=True)
                for array in (chips.image, chips.valid, chips.label)
            )
            return DeviceCopy(batch, (image, valid, label), self._copy_stream.record_event())


@dataclass(frozen=True)
class Batch:
    """Images (N, band, chip, chip) and labels (N, chip, chip) on the device, and their request.

    Labels are class numbers (int64, 255 where there is none) or values (float32, NaN).
    """

    images_NCHW: Tensor
    labels_NHW: Tensor
    request: BatchRequest


class ChipLoader:
    """The data loader of a training. Batches come in the order of their requests.

    They are the same whatever `workers`, `cache_mb` and the device: each is a function of its request. For a GPU,
    stored numbers are copied (fewer bytes) and finished there; for a CPU, the worker that reads them finishes them.
    """

    def __init__(self, job: LoaderJob, device: torch.device) -> None:
        self.job, self.device = job, device
        split = read_samples(Path(job.chips))
        self.samples: dict[str, Any] = split.samples
        pairs = job.pairs
        self._scenes = [tiles.scene for tiles, _ in pairs]
        is_gpu = device.type == "cuda"
        workers = (2 if is_gpu else 0) if job.knobs.workers is None else job.knobs.workers
        slots = (PREFETCHED_BATCHES if workers else 1) + (DEVICE_BATCHES - 1 if is_gpu else 0)
        self.prefetcher = Prefetcher(job, self.samples, workers, slots, not is_gpu, split.polygons)
        self._finisher = DeviceFinisher(job.normaliser, [tiles.scaling for tiles, _ in pairs], device)
        self.order = SampleOrder(self.samples["train"], job.settings.seed, self.prefetcher.shuffle)

    def count(self, split: str) -> int:
        """The number of samples of a split."""
        return len(self.samples[split])

    def scenes(self, request: BatchRequest) -> list[str]:
        """Names of the scenes of these samples."""
        rows = self.samples[request.split][request.numbers]
        return sorted({self._scenes[scene] for scene in rows[:, 0]})

    def stream(self, requests: Iterable[BatchRequest]) -> Iterator[Batch]:
        """Load batch by batch, in memory that the next batch may overwrite; a new stream ends the one before.

        Raises IntegrityError for a damaged store, and LostWorkerError when a data-loader worker dies or hangs.
        """
        self.prefetcher.start(requests)
        return self._gpu_batches() if self.device.type == "cuda" else self._cpu_batches()

    def close(self) -> None:
        self.prefetcher.close()

    def _cpu_batches(self) -> Iterator[Batch]:
        while loaded := self.prefetcher.take():
            images, labels = torch.from_numpy(loaded.chips.image), torch.from_numpy(loaded.chips.label)
            yield self._augmented_batch(images, labels, loaded.request)
            self.prefetcher.free(loaded)

    def _gpu_batches(self) -> Iterator[Batch]:
        copies = deque[DeviceCopy]()
        while True:
            # Wait for the first batch; start the copy of the next, if it is ready, so that it overlaps with the step.
            while len(copies) < DEVICE_BATCHES and (loaded := self.prefetcher.take(wait=not copies)):
                copies.append(self._copier.start_copy(loaded))
            if not copies:
                return
            copy = copies.popleft()
            scenes = self.samples[copy.request.split][copy.request.numbers][:, 0]
            images, labels = self._finisher(
                *copy.ready_tensors(), scenes, symmetries_of(copy.request, self.job.settings)
            )
            yield self._augmented_batch(images, labels, copy.request)
            self.prefetcher.free(copy.wait_until_copied())

    @cached_property
    def _copier(self) -> HostToDeviceCopier:
        return HostToDeviceCopier(self.prefetcher.ring, self.device)

    def _augmented_batch(self, images: Tensor, labels: Tensor, request: BatchRequest) -> Batch:
        if request.epoch is not None:
            images, labels = augment(images, labels, request.numbers, request.epoch, self.job.settings)
        return Batch(images, labels, request)
