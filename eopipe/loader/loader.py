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
from eopipe.loader.device import Finish, Mover, Moving
from eopipe.loader.order import Order
from eopipe.loader.prefetch import Reader, Wanted, turns

if TYPE_CHECKING:
    from eopipe.training_job import Job

# Batches that are read ahead: enough to ride out the reading of a block.
AHEAD = 4
# Batches on their way to a GPU or there: one is copied while the one before it is computed.
MOVING = 2


@dataclass(frozen=True)
class Batch:
    """Images (N, band, chip, chip) and labels (N, chip, chip) on the device, and what was wanted.

    Labels are class numbers (int64, 255 where there is none) or values (float32, NaN).
    """

    images_NCHW: Tensor
    labels_NHW: Tensor
    wanted: Wanted


class Feed:
    """The data of a training. Batches come in the order in which they are wanted.

    They are the same whatever `workers`, `cache_mb` and the device: each is a function of what is wanted. A GPU gets
    the numbers as they are stored, fewer bytes, and finishes them itself; a CPU has it done where they are read.
    """

    def __init__(self, job: "Job", device: torch.device) -> None:
        self.job, self.device = job, device
        self.samples: dict[str, Any] = read_split(Path(job.chips))["samples"]
        pairs = job.pairs
        self._scenes = [tiles.scene for tiles, _ in pairs]
        gpu = device.type == "cuda"
        workers = (2 if gpu else 0) if job.workers is None else job.workers
        slots = (AHEAD if workers else 1) + (MOVING - 1 if gpu else 0)
        self.reader = Reader(job, self.samples, workers, slots, finished=not gpu)
        self._finish = Finish(job.normaliser, [tiles.scaling for tiles, _ in pairs], device)
        self.order = Order(self.samples["train"], job.settings.seed, self.reader.shuffle)

    def count(self, split: str) -> int:
        """How many samples a split has."""
        return len(self.samples[split])

    def scenes(self, wanted: Wanted) -> list[str]:
        """The scenes that these samples come from."""
        rows = self.samples[wanted.split][wanted.numbers]
        return sorted({self._scenes[scene] for scene in rows[:, 0]})

    def stream(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        """Load what is wanted, batch by batch, in memory that the next one may take; a new stream ends the one before.

        Raises IntegrityError for a damaged store, and LostProducerError when a process that reads dies or hangs.
        """
        self.reader.start(wanted)
        return self._moved() if self.device.type == "cuda" else self._here()

    def close(self) -> None:
        """End the processes that read."""
        self.reader.close()

    def _here(self) -> Iterator[Batch]:
        while taken := self.reader.take():
            images, labels = torch.from_numpy(taken.rows.image), torch.from_numpy(taken.rows.label)
            yield self._augmented(images, labels, taken.wanted)
            self.reader.free(taken)

    def _moved(self) -> Iterator[Batch]:
        moving = deque[Moving]()
        while True:
            # The first is waited for; the next sets out now if it is there, and is copied during the step.
            while len(moving) < MOVING and (taken := self.reader.take(patient=not moving)):
                moving.append(self._mover.move(taken))
            if not moving:
                return
            now = moving.popleft()
            scenes = self.samples[now.wanted.split][now.wanted.numbers][:, 0]
            images, labels = self._finish(*now.arrived(), scenes, turns(now.wanted, self.job.settings))
            yield self._augmented(images, labels, now.wanted)
            self.reader.free(now.left())

    @cached_property
    def _mover(self) -> Mover:
        return Mover(self.reader.ring, self.device)

    def _augmented(self, images: Tensor, labels: Tensor, wanted: Wanted) -> Batch:
        if wanted.epoch is not None:
            images, labels = augment(images, labels, wanted.numbers, wanted.epoch, self.job.settings)
        return Batch(images, labels, wanted)
