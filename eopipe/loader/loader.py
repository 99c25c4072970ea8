"""The data loader of a training: batches on the device, in a deterministic order."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eopipe.chips.splits import read_samples
from eopipe.loader.augment import augment
from eopipe.loader.device import DeviceCopy, DeviceFinisher, HostToDeviceCopier
from eopipe.loader.order import SampleOrder
from eopipe.loader.prefetch import BatchRequest, LoaderJob, Prefetcher, symmetries_of

# Batches read ahead: enough to hide the time of reading a block.
PREFETCHED_BATCHES = 4
# Batches on the GPU or being copied to it: one is copied while the previous one is used.
DEVICE_BATCHES = 2


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
