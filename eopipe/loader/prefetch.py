"""Batches in the slots of a ring, filled ahead of time in the order of their requests."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import AnyArray, IntArray
from eopipe.chips.chips import is_continuous
from eopipe.errors import UsageError
from eopipe.loader.chip_reader import (
    CLASS_DTYPE,
    VALUE_DTYPE,
    Bounds,
    ChipArrays,
    ChipRequest,
    chip_sources,
    pixel_bytes,
)
from eopipe.loader.order import Shuffle, block_numbers, symmetry_of
from eopipe.loader.shared_memory import SharedMemorySlots, SlotLayout
from eopipe.loader.worker_main import WorkerSetup
from eopipe.loader.workers import InlineReader, ReadBackend, WorkerPool
from eopipe.tiles.shard_reader import open_array

if TYPE_CHECKING:
    from eopipe.training_job import Job, Settings

log = logging.getLogger("eopipe")


@dataclass(frozen=True)
class CachePlan:
    """The window to keep for each sample (n, 4) as top, left, bottom, right, by split; at most `live` at a time.

    Chips of a split that is not there are read one by one.
    """

    windows: Mapping[str, IntArray]
    live: int


def plan_cache(
    samples: Mapping[str, IntArray], chip: int, pixel: int, shuffle: Shuffle, room: int, crew: int
) -> CachePlan:
    """What fits into `room` bytes at `pixel` bytes a pixel: all, else the live blocks of the shuffle, else nothing.

    Each of a crew takes its share of the blocks, which may be one more than another's.
    """
    windows = {split: cache_windows(samples[split], chip, shuffle.block) for split in ("train", "val")}
    sizes = {split: _areas(samples[split], found) * pixel for split, found in windows.items()}
    every = np.concatenate(list(sizes.values()))
    largest = int(every.max(initial=0))
    if every.sum() + (crew - 1) * largest <= room:
        return CachePlan(windows, max(len(every), 1))
    need = (shuffle.window + crew - 1) * largest
    if shuffle.how == "blocks" and need <= room:
        return CachePlan({"train": windows["train"]}, shuffle.window)
    if shuffle.how == "blocks":
        log.warning("event=cache-small have_mb=%d need_mb=%d told='chips are read one by one'", room >> 20, need >> 20)
    return CachePlan({}, 1)


def cache_windows(samples: IntArray, chip: int, edge: int) -> IntArray:
    """For each sample the window (n, 4) that holds all chips whose corner lies in the same block."""
    block = block_numbers(samples, edge)
    count = int(block.max(initial=-1)) + 1
    low, high = np.full((count, 2), np.iinfo(np.int64).max), np.zeros((count, 2), np.int64)
    np.minimum.at(low, block, samples[:, 1:])
    np.maximum.at(high, block, samples[:, 1:])
    return np.concatenate([low, high + chip], 1)[block]


def _areas(samples: IntArray, windows: IntArray) -> AnyArray:
    """Pixels of each window that is kept, once for each scene."""
    top, left, bottom, right = np.unique(np.insert(windows, 0, samples[:, 0], 1), axis=0)[:, 1:].T
    return np.asarray((bottom - top) * (right - left))


MB = 1 << 20


@dataclass(frozen=True)
class BatchRequest:
    """Samples of a split by number, and the epoch that augments them; without one they come as they are."""

    split: str
    numbers: IntArray
    epoch: int | None = None


@dataclass(frozen=True)
class LoadedBatch:
    """A batch in the memory of its slot, which is its own until the slot is freed."""

    slot: int
    chips: ChipArrays
    request: BatchRequest


@dataclass
class Prefetcher:
    """Reads samples (n, 3) of scene, row and column by `workers` processes, or itself, into so many slots.

    Chips come as they are stored, or `finished` as a model sees them.
    """

    job: "Job"
    samples: Mapping[str, IntArray]
    workers: int
    slots: int
    finished: bool
    _crew: ReadBackend | None = None
    _reading: deque[tuple[int, BatchRequest]] = field(default_factory=deque)
    _free: deque[int] = field(default_factory=deque)
    _source: Iterator[BatchRequest] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        pairs, settings = self.job.pairs, self.job.settings
        self.sources = chip_sources(pairs, self.job.bands)
        self.dtype = np.result_type(*{open_array(Path(source.tiles) / "image").dtype for source in self.sources})
        self.label = VALUE_DTYPE if is_continuous(pairs[0][1]) else CLASS_DTYPE
        self.shuffle = Shuffle(settings.shuffle, settings.window, settings.block)
        self._room = self.job.cache_mb * MB

    def start(self, requests: Iterable[BatchRequest]) -> None:
        """Read these from now on; what was taken before is no longer valid."""
        while self._reading:
            self._wait()
        self._free, self._source = deque(range(self.slots)), iter(requests)

    def take(self, patient: bool = True) -> LoadedBatch | None:
        """The next batch, in a slot that the caller frees; None after the last, or where it needs patience.

        Raises IntegrityError for a damaged store, and LostWorkerError when a process that reads dies or hangs.
        """
        while self._free and (asked := next(self._source, None)) is not None:
            self._give(self._free[0], asked)
            self._reading.append((self._free.popleft(), asked))
        if not self._reading or not (patient or (self._crew and self._crew.ready(self._reading[0][0]))):
            return None
        slot, asked = self._wait()
        return LoadedBatch(slot, self.ring.slots[slot][: len(asked.numbers)], asked)

    def free(self, taken: LoadedBatch) -> None:
        """The slot may be filled again."""
        self._free.append(taken.slot)

    def close(self) -> None:
        """End the processes that read."""
        if self._crew:
            self._crew.close()

    def _give(self, slot: int, request: BatchRequest) -> None:
        if len(request.numbers) > self.ring.shape.rows:
            raise UsageError(f"a batch of {len(request.numbers)} chips is wanted of a feed for {self.ring.shape.rows}")
        if self._crew is None:
            self._crew = self._started()
        self._crew.give(slot, self._pieces(request))

    def _wait(self) -> tuple[int, BatchRequest]:
        slot, request = self._reading.popleft()
        if self._crew:
            self._crew.wait(slot)
        return slot, request

    @cached_property
    def _keeping(self) -> CachePlan:
        pixel = pixel_bytes(len(self.job.bands), self.dtype, self.label)
        return plan_cache(self.samples, self.job.chip, pixel, self.shuffle, self._room, max(self.workers, 1))

    @cached_property
    def ring(self) -> SharedMemorySlots:
        """The slots; their memory is taken as they are filled."""
        chips = min(self.job.settings.batch, max(len(self.samples["train"]), len(self.samples["val"])))
        seen = "<f4" if self.label == VALUE_DTYPE else "<i8"
        types = ("<f4", seen) if self.finished else (self.dtype.str, self.label.str)
        return SharedMemorySlots(SlotLayout(self.slots, max(chips, 1), len(self.job.bands), self.job.chip, *types))

    def _started(self) -> ReadBackend:
        see = self.job.normaliser if self.finished else None
        types, room = (self.dtype.str, self.label.str), self._room // max(self.workers, 1)
        brief = WorkerSetup(self.sources, self.ring.shape, *types, room, see)
        if not self.workers:
            return InlineReader(brief.cutter(), self.ring)
        # Sooner than other workers, who wait for this one, call it hung.
        patience = self.job.timeout_s / 2
        return WorkerPool(brief, self.ring, self.workers, self._keeping.live, patience)

    def _pieces(self, request: BatchRequest) -> list[ChipRequest]:
        """The chips of a batch by the block that is kept for them, or one by one."""
        where = self.samples[request.split][request.numbers].tolist()
        ways = symmetries_of(request, self.job.settings).tolist()
        blocks = self._keeping.windows.get(request.split)
        if blocks is None:
            return [
                ChipRequest(scene, None, (n,), ((row, col),), (ways[n],)) for n, (scene, row, col) in enumerate(where)
            ]
        windows = [tuple(window) for window in blocks[request.numbers].tolist()]
        places: dict[tuple[int, Bounds], list[int]] = {}
        for place, (key, window) in enumerate(zip(where, windows, strict=True)):
            places.setdefault((key[0], window), []).append(place)
        return [
            ChipRequest(s, w, here, [tuple(where[n][1:]) for n in here], [ways[n] for n in here])
            for (s, w), here in places.items()
        ]


def symmetries_of(request: BatchRequest, settings: "Settings") -> IntArray:
    """By which of the eight symmetries each sample is turned."""
    if request.epoch is None or "symmetries" not in settings.augment:
        return np.zeros(len(request.numbers), np.int64)
    ways = [symmetry_of(settings.seed, request.epoch, int(number)) for number in request.numbers]
    return np.array(ways, np.int64)
