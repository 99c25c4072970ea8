"""Samples of a training as batches on the device, in an order that is known beforehand."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eopipe.errors import UsageError
from eopipe.feeding.augment import augment
from eopipe.feeding.crew import Alone, Crew, Producers
from eopipe.feeding.finishing import Finish, pin
from eopipe.feeding.keeping import Keeping, keeping
from eopipe.feeding.order import Order, Shuffle, way
from eopipe.feeding.producer import Brief
from eopipe.feeding.ring import Ring, Shape
from eopipe.samples.arrays import open_array
from eopipe.samples.chips import measured
from eopipe.samples.cutting import CLASSES, VALUES, Piece, Rows, Window, pixel_bytes, sources_of
from eopipe.samples.splits import read_split

if TYPE_CHECKING:
    from eopipe.launching.job import Job

Numbers = npt.NDArray[np.int64]
# Batches that are read ahead: enough to ride out the reading of a block.
AHEAD = 4
MB = 1 << 20


@dataclass(frozen=True)
class Wanted:
    """Samples of a split by number, and the epoch that augments them; without one they come as they are."""

    split: str
    numbers: Numbers
    epoch: int | None = None


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

    They are the same whatever `workers`, `cache_mb` and the device: each is a function of what is wanted.
    """

    def __init__(self, job: "Job", device: torch.device) -> None:
        self.job, self.device = job, device
        self.samples: dict[str, Any] = read_split(Path(job.chips))["samples"]
        pairs = job.pairs()
        self._scenes = [tiles.scene for tiles, _ in pairs]
        self._sources = sources_of(pairs, job.bands)
        types = {open_array(Path(source.tiles) / "image").dtype for source in self._sources}
        self._dtype = np.result_type(*types)
        self._label = VALUES if measured(pairs[0][1]) else CLASSES
        self._finish = Finish(job.normaliser, [tiles.scaling for tiles, _ in pairs], device)
        self._workers = (2 if device.type == "cuda" else 0) if job.workers is None else job.workers
        settings = job.settings
        self.order = Order(
            self.samples["train"], settings.seed, Shuffle(settings.shuffle, settings.window, settings.block)
        )
        self._room = job.cache_mb * MB
        self._crew: Crew | None = None
        self._reading: deque[tuple[int, Wanted]] = deque()

    def count(self, split: str) -> int:
        """How many samples a split has."""
        return len(self.samples[split])

    def scenes(self, wanted: Wanted) -> list[str]:
        """The scenes that these samples come from."""
        rows = self.samples[wanted.split][wanted.numbers]
        return sorted({self._scenes[scene] for scene in rows[:, 0]})

    def stream(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        """Load what is wanted, batch by batch; a new stream ends the one before.

        Raises IntegrityError for a damaged store, and LostProducerError when a process that reads is killed.
        """
        return (self._finished(rows, asked) for rows, asked in self.stored(wanted))

    def stored(self, wanted: Iterable[Wanted]) -> Iterator[tuple[Rows, Wanted]]:
        """Batches as they are stored, neither normalised nor turned, in memory that the next one may take."""
        while self._reading:
            self._wait()
        free, source = deque(range(len(self._ring.slots))), iter(wanted)
        while True:
            while free and (asked := next(source, None)) is not None:
                self._give(free[0], asked)
                self._reading.append((free.popleft(), asked))
            if not self._reading:
                return
            slot, asked = self._wait()
            yield self._ring.slots[slot][: len(asked.numbers)], asked
            free.append(slot)

    def close(self) -> None:
        """End the processes that read."""
        if self._crew:
            self._crew.close()

    def _give(self, slot: int, wanted: Wanted) -> None:
        if len(wanted.numbers) > self._ring.shape.rows:
            raise UsageError(f"a batch of {len(wanted.numbers)} chips is wanted of a feed for {self._ring.shape.rows}")
        if self._crew is None:
            self._crew = self._started()
        self._crew.give(slot, self._pieces(wanted))

    def _wait(self) -> tuple[int, Wanted]:
        slot, wanted = self._reading.popleft()
        if self._crew:
            self._crew.wait(slot)
        return slot, wanted

    def _finished(self, rows: Rows, wanted: Wanted) -> Batch:
        epoch, seed, numbers = wanted.epoch, self.job.settings.seed, wanted.numbers
        ways = np.zeros(len(numbers), np.int64)
        if epoch is not None and "symmetries" in self.job.settings.augment:
            ways[:] = [way(seed, epoch, int(number)) for number in numbers]
        scenes = self.samples[wanted.split][numbers][:, 0]
        images, labels = self._finish(rows, scenes, ways)
        if self.device.type == "cuda":
            # The slot is filled again only after it was copied.
            torch.cuda.current_stream(self.device).synchronize()
        if epoch is not None:
            images, labels = augment(images, labels, numbers, epoch, self.job.settings)
        return Batch(images, labels, wanted)

    @cached_property
    def _keeping(self) -> Keeping:
        pixel = pixel_bytes(len(self.job.bands), self._dtype, self._label)
        return keeping(self.samples, self.job.chip, pixel, self.order.shuffle, self._room, max(self._workers, 1))

    @cached_property
    def _ring(self) -> Ring:
        chips = min(self.job.settings.batch, max(self.count("train"), self.count("val")))
        slots = AHEAD if self._workers else 1
        bands, types = len(self.job.bands), (self._dtype.str, self._label.str)
        ring = Ring(Shape(slots, max(chips, 1), bands, self.job.chip, *types))
        if self.device.type == "cuda":
            for slot in ring.slots:
                pin(slot)
        return ring

    def _started(self) -> Crew:
        brief = Brief(self._sources, self._ring.shape, self._room // max(self._workers, 1))
        if not self._workers:
            return Alone(brief.cutter(), self._ring)
        return Producers(brief, self._ring, self._workers, self._keeping.live)

    def _pieces(self, wanted: Wanted) -> list[Piece]:
        """The chips of a batch by the block that is kept for them, or one by one."""
        where = self.samples[wanted.split][wanted.numbers].tolist()
        blocks = self._keeping.windows.get(wanted.split)
        if blocks is None:
            return [Piece(scene, None, (n,), ((row, col),)) for n, (scene, row, col) in enumerate(where)]
        windows = [tuple(window) for window in blocks[wanted.numbers].tolist()]
        places: dict[tuple[int, Window], list[int]] = {}
        for place, (key, window) in enumerate(zip(where, windows, strict=True)):
            places.setdefault((key[0], window), []).append(place)
        return [Piece(s, w, here, [tuple(where[n][1:]) for n in here]) for (s, w), here in places.items()]
