"""Samples of a training as batches on the device, in an order that is known beforehand."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from eopipe.chips.splits import read_split
from eopipe.loader.augment import augment
from eopipe.loader.device import DeviceCopy, DeviceFinisher, HostToDeviceCopier
from eopipe.loader.order import SampleOrder
from eopipe.loader.prefetch import BatchRequest, Prefetcher, symmetries_of

if TYPE_CHECKING:
    from eopipe.training_job import Job

# Batches that are read ahead: enough to ride out the reading of a block.
PREFETCHED_BATCHES = 4
# Batches on their way to a GPU or there: one is copied while the one before it is computed.
DEVICE_BATCHES = 2


@dataclass(frozen=True)
class Batch:
    """Images (N, band, chip, chip) and labels (N, chip, chip) on the device, and the request that they answer.

    Labels are class numbers (int64, 255 where there is none) or values (float32, NaN).
    """

    images_NCHW: Tensor
    labels_NHW: Tensor
    request: BatchRequest


class ChipLoader:
    """The data of a training. Batches come in the order of their requests.

    They are the same whatever `workers`, `cache_mb` and the device: each is a function of its request. A GPU gets
    the numbers as they are stored, fewer bytes, and finishes them itself; a CPU has it done where they are read.
    """

    def __init__(self, job: "Job", device: torch.device) -> None:
        self.job, self.device = job, device
        self.samples: dict[str, Any] = read_split(Path(job.chips))["samples"]
        pairs = job.pairs
        self._scenes = [tiles.scene for tiles, _ in pairs]
        gpu = device.type == "cuda"
        workers = (2 if gpu else 0) if job.workers is None else job.workers
        slots = (PREFETCHED_BATCHES if workers else 1) + (DEVICE_BATCHES - 1 if gpu else 0)
        self.reader = Prefetcher(job, self.samples, workers, slots, finished=not gpu)
        self._finish = DeviceFinisher(job.normaliser, [tiles.scaling for tiles, _ in pairs], device)
        self.order = SampleOrder(self.samples["train"], job.settings.seed, self.reader.shuffle)

    def count(self, split: str) -> int:
        """How many samples a split has."""
        return len(self.samples[split])

    def scenes(self, request: BatchRequest) -> list[str]:
        """The scenes that these samples come from."""
        rows = self.samples[request.split][request.numbers]
        return sorted({self._scenes[scene] for scene in rows[:, 0]})

    def stream(self, requests: Iterable[BatchRequest]) -> Iterator[Batch]:
        """Load batch by batch, in memory that the next batch may overwrite; a new stream ends the one before.

        Raises IntegrityError for a damaged store, and LostWorkerError when a process that reads dies or hangs.
        """
        self.reader.start(requests)
        return self._moved() if self.device.type == "cuda" else self._here()

    def close(self) -> None:
        """End the processes that read."""
        self.reader.close()

    def _here(self) -> Iterator[Batch]:
        while taken := self.reader.take():
            images, labels = torch.from_numpy(taken.chips.image), torch.from_numpy(taken.chips.label)
            yield self._augmented(images, labels, taken.request)
            self.reader.free(taken)

    def _moved(self) -> Iterator[Batch]:
        moving = deque[DeviceCopy]()
        while True:
            # The first is waited for; the next sets out now if it is there, and is copied during the step.
            while len(moving) < DEVICE_BATCHES and (taken := self.reader.take(patient=not moving)):
                moving.append(self._mover.move(taken))
            if not moving:
                return
            now = moving.popleft()
            scenes = self.samples[now.request.split][now.request.numbers][:, 0]
            images, labels = self._finish(*now.arrived(), scenes, symmetries_of(now.request, self.job.settings))
            yield self._augmented(images, labels, now.request)
            self.reader.free(now.left())

    @cached_property
    def _mover(self) -> HostToDeviceCopier:
        return HostToDeviceCopier(self.reader.ring, self.device)

    def _augmented(self, images: Tensor, labels: Tensor, request: BatchRequest) -> Batch:
        if request.epoch is not None:
            images, labels = augment(images, labels, request.numbers, request.epoch, self.job.settings)
        return Batch(images, labels, request)
