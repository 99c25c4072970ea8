"""Prefetching: batches are read ahead of time, in the order of their requests, into the slots of shared memory."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from eopipe.arrays import AnyArray, IntArray
from eopipe.chips.chips import is_continuous
from eopipe.chips.polygons import polygon_numbers
from eopipe.chips.splits import SPLITS
from eopipe.errors import UsageError
from eopipe.loader.chip_reader import (
    CLASS_DTYPE,
    VALUE_DTYPE,
    Bounds,
    ChipArrays,
    ChipRequest,
    SharedMemorySlots,
    SlotLayout,
    chip_sources,
    pixel_bytes,
)
from eopipe.loader.order import Shuffle, block_numbers, crop_draw, symmetry_of
from eopipe.loader.worker_main import WorkerSetup
from eopipe.loader.workers import InlineReader, ReadBackend, WorkerPool
from eopipe.tiles.shard_reader import open_array
from eopipe.tiles.store import CHIP_SET

if TYPE_CHECKING:
    from eopipe.chips.chips import Normaliser
    from eopipe.training_job import Knobs, Pairs, Settings

log = logging.getLogger("eopipe")
# Where polygons are split, each scene is a source of its own for each of these splits, with other labels.
SOURCES_OF_POLYGONS = SPLITS


@dataclass(frozen=True)
class CachePlan:
    """The window to cache for each sample (n, 4) as top, left, bottom, right, by split; at most `live` at a time.

    Chips of a split without windows are read one by one.
    """

    windows: Mapping[str, IntArray]
    live: int


def plan_cache(
    samples: Mapping[str, IntArray], chip: int, bytes_per_pixel: int, shuffle: Shuffle, budget: int, workers: int
) -> CachePlan:
    """Plan what to cache in `budget` bytes: all windows, else the live blocks of the shuffle, else nothing.

    Each worker caches its share of the blocks; shares differ by at most one block.
    """
    windows = {split: cache_windows(samples[split], chip, shuffle.block) for split in ("train", "val")}
    sizes = {split: _window_areas(samples[split], window) * bytes_per_pixel for split, window in windows.items()}
    window_sizes = np.concatenate(list(sizes.values()))
    largest = int(window_sizes.max(initial=0))
    if window_sizes.sum() + (workers - 1) * largest <= budget:
        return CachePlan(windows, max(len(window_sizes), 1))
    required_bytes = (shuffle.window + workers - 1) * largest
    if shuffle.mode == "blocks" and required_bytes <= budget:
        return CachePlan({"train": windows["train"]}, shuffle.window)
    if shuffle.mode == "blocks":
        log.warning(
            "event=cache_small have_mb=%d need_mb=%d action=read-single-chips",
            budget >> 20,
            required_bytes >> 20,
        )
    return CachePlan({}, 1)


def cache_windows(samples: IntArray, chip: int, edge: int) -> IntArray:
    """The window (n, 4) of each sample: it contains all chips whose corner is in the same block."""
    block = block_numbers(samples, edge)
    count = int(block.max(initial=-1)) + 1
    first_corners, last_corners = np.full((count, 2), np.iinfo(np.int64).max), np.zeros((count, 2), np.int64)
    np.minimum.at(first_corners, block, samples[:, 1:])
    np.maximum.at(last_corners, block, samples[:, 1:])
    return np.concatenate([first_corners, last_corners + chip], 1)[block]


def _window_areas(samples: IntArray, windows: IntArray) -> AnyArray:
    """Pixels of each distinct window of a scene."""
    top, left, bottom, right = np.unique(np.insert(windows, 0, samples[:, 0], 1), axis=0)[:, 1:].T
    return np.asarray((bottom - top) * (right - left))


MB = 1 << 20


@dataclass(frozen=True)
class BatchRequest:
    """Sample numbers of a split, and the epoch of their augmentation (None: not augmented)."""

    split: str
    numbers: IntArray
    epoch: int | None = None


@dataclass(frozen=True)
class LoadedBatch:
    """A batch in the memory of its slot; valid until the slot is freed."""

    slot: int
    chips: ChipArrays
    request: BatchRequest


class LoaderJob(Protocol):
    """What is read of a training: stores, split file, bands, normalisation, order and augmentation.

    `chip` and `crop` are edges in pixels; without crops it is 0.
    """

    @property
    def pairs(self) -> "Pairs":
        """The tile store of each scene, or composite, with its labels."""

    @property
    def chips(self) -> Path:
        """The split file."""

    @property
    def bands(self) -> tuple[str, ...]: ...

    @property
    def normaliser(self) -> "Normaliser":
        """Mean and standard deviation of each band."""

    @property
    def chip(self) -> int:
        """Edge of a chip."""

    @property
    def crop(self) -> int:
        """Edge of a crop in training."""

    @property
    def settings(self) -> "Settings":
        """Seed, shuffle, augmentation and the largest batch."""

    @property
    def knobs(self) -> "Knobs":
        """Workers, cache and time-out."""


@dataclass
class Prefetcher:
    """Reads samples (n, 3) of scene, row and column into `slots` batches ahead, by `workers` processes or inline (0).

    Chips are returned as stored, or, if `finished`, symmetry-transformed and normalised as the model's input.
    `polygons` are the splits of the polygons by scene of the labels: polygons of other splits have no label.
    """

    job: LoaderJob
    samples: Mapping[str, IntArray]
    workers: int
    slots: int
    finished: bool
    polygons: Mapping[str, list[int]] | None = None
    _backend: ReadBackend | None = None
    _in_flight: deque[tuple[int, BatchRequest]] = field(default_factory=deque)
    _free_slots: deque[int] = field(default_factory=deque)
    _requests: Iterator[BatchRequest] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        pairs, settings = self.job.pairs, self.job.settings
        self.sources = chip_sources(pairs, self.job.bands)
        if self.polygons:
            self.sources = [
                replace(source, polygons=tuple(polygon_numbers(self.polygons, label, split).tolist()))
                for split in SOURCES_OF_POLYGONS
                for source, (_, label) in zip(self.sources, pairs, strict=True)
            ]
        self.dtype = np.result_type(*{open_array(Path(source.tiles) / "image").dtype for source in self.sources})
        self.label_dtype = VALUE_DTYPE if is_continuous(pairs[0][1]) else CLASS_DTYPE
        self.shuffle = Shuffle(settings.shuffle, settings.window, settings.block)
        self._cache_bytes = self.job.knobs.cache_mb * MB

    def start(self, requests: Iterable[BatchRequest]) -> None:
        """Start to read these requests; batches taken before are no longer valid."""
        while self._in_flight:
            self._wait_for_oldest()
        self._free_slots, self._requests = deque(range(self.slots)), iter(requests)

    def take(self, wait: bool = True) -> LoadedBatch | None:
        """Return the next batch, in a slot that the caller frees; None after the last, or if not ready and not `wait`.

        Raises IntegrityError for a damaged store, and LostWorkerError when a data-loader worker dies or hangs.
        """
        while self._free_slots and (request := next(self._requests, None)) is not None:
            self._submit(self._free_slots[0], request)
            self._in_flight.append((self._free_slots.popleft(), request))
        if not self._in_flight or not (wait or (self._backend and self._backend.is_ready(self._in_flight[0][0]))):
            return None
        slot, request = self._wait_for_oldest()
        edge = self.job.crop if self._is_cropped(request) else self.job.chip
        return LoadedBatch(slot, self.ring.batch(slot, edge)[: len(request.numbers)], request)

    def free(self, batch: LoadedBatch) -> None:
        """Release the slot of a batch for reuse."""
        self._free_slots.append(batch.slot)

    def close(self) -> None:
        if self._backend:
            self._backend.close()

    def _submit(self, slot: int, request: BatchRequest) -> None:
        if len(request.numbers) > self.ring.layout.chips:
            raise UsageError(
                f"a batch of {len(request.numbers)} chips does not fit into a slot of {self.ring.layout.chips} chips"
            )
        if self._backend is None:
            self._backend = self._start_backend()
        self._backend.submit(slot, self._chip_requests(request))

    def _wait_for_oldest(self) -> tuple[int, BatchRequest]:
        slot, request = self._in_flight.popleft()
        if self._backend:
            self._backend.wait(slot)
        return slot, request

    @cached_property
    def _cache_plan(self) -> CachePlan:
        bytes_per_pixel = pixel_bytes(len(self.job.bands), self.dtype, self.label_dtype)
        return plan_cache(
            self.samples, self.job.chip, bytes_per_pixel, self.shuffle, self._cache_bytes, max(self.workers, 1)
        )

    @cached_property
    def ring(self) -> SharedMemorySlots:
        """The ring buffer of slots; pages are allocated as they are filled."""
        chips = min(self.job.settings.batch, max(len(self.samples["train"]), len(self.samples["val"])))
        finished_label_dtype = "<f4" if self.label_dtype == VALUE_DTYPE else "<i8"
        types = ("<f4", finished_label_dtype) if self.finished else (self.dtype.str, self.label_dtype.str)
        return SharedMemorySlots(SlotLayout(self.slots, max(chips, 1), len(self.job.bands), self.job.chip, *types))

    def _start_backend(self) -> ReadBackend:
        normaliser = self.job.normaliser if self.finished else None
        types, budget = (self.dtype.str, self.label_dtype.str), self._cache_bytes // max(self.workers, 1)
        crops = (self.job.crop, self.samples["train"].tolist()) if self.job.crop else ()
        setup = WorkerSetup(self.sources, self.ring.layout, *types, budget, normaliser, *crops)
        if not self.workers:
            return InlineReader(setup.chip_reader(), self.ring)
        # Before the collective time-out of the other ranks, which wait for this one.
        timeout_s = self.job.knobs.timeout_s / 2
        return WorkerPool(setup, self.ring, self.workers, self._cache_plan.live, timeout_s)

    def _chip_requests(self, request: BatchRequest) -> list[ChipRequest]:
        """The chips of a batch grouped by cached window, or one by one without a cache."""
        rows = self.samples[request.split][request.numbers]
        if self.polygons:
            rows = np.add(rows, [SOURCES_OF_POLYGONS.index(request.split) * len(self.job.pairs), 0, 0])
        corners = [(row, col) for _, row, col in rows.tolist()]
        symmetries, (draws, bounds) = symmetries_of(request, self.job.settings).tolist(), self._crops(request)
        blocks = self._cache_plan.windows.get(request.split)
        if blocks is None:
            return [
                ChipRequest(scene, None, (n,), ((row, col),), (symmetries[n],), draws[n : n + 1], bounds[n : n + 1])
                for n, (scene, row, col) in enumerate(rows.tolist())
            ]
        windows = [tuple(window) for window in blocks[request.numbers].tolist()]
        positions: dict[tuple[int, Bounds], list[int]] = {}
        for position, (scene, window) in enumerate(zip(rows[:, 0].tolist(), windows, strict=True)):
            positions.setdefault((scene, window), []).append(position)
        return [
            ChipRequest(
                scene,
                window,
                members,
                [corners[n] for n in members],
                [symmetries[n] for n in members],
                [draws[n] for n in members if draws],
                [bounds[n] for n in members if bounds],
            )
            for (scene, window), members in positions.items()
        ]

    def _is_cropped(self, request: BatchRequest) -> bool:
        return bool(self.job.crop) and request.epoch is not None

    def _crops(self, request: BatchRequest) -> tuple[list[int], list[Bounds]]:
        """A random number for each chip, and the bounds of its crop; none for whole chips.

        The crop stays in the chips of a block, whose pixels are read anyway, and in a chip set in the chip.
        """
        if not self._is_cropped(request):
            return [], []
        draws = [crop_draw(self.job.settings.seed, request.epoch or 0, int(number)) for number in request.numbers]
        return draws, [
            (top, left, bottom, right) for top, left, bottom, right in self._crop_bounds[request.numbers].tolist()
        ]

    @cached_property
    def _crop_bounds(self) -> IntArray:
        samples = self.samples["train"]
        if CHIP_SET in self.job.pairs[0][0].attributes:
            return np.concatenate([samples[:, 1:], samples[:, 1:] + self.job.chip], 1)
        return cache_windows(samples, self.job.chip, self.shuffle.block)


def symmetries_of(request: BatchRequest, settings: "Settings") -> IntArray:
    """Which of the eight symmetries of the square is applied to each sample."""
    if request.epoch is None or "symmetries" not in settings.augment:
        return np.zeros(len(request.numbers), np.int64)
    symmetries = [symmetry_of(settings.seed, request.epoch, int(number)) for number in request.numbers]
    return np.array(symmetries, np.int64)
