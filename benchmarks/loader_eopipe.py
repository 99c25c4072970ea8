"""eopipe as a contestant of `loader.py`."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from loader_scene import BANDS, BATCH, CHIP, NAMES, Task

LIVE_BLOCKS = 4


def job_of(task: Task, shuffle: str, cache_mb: int) -> Any:
    """A training over the scene."""
    import torch

    from eopipe.chips.chips import Normaliser
    from eopipe.models import Architecture
    from eopipe.training_job import Job, Knobs, Settings, TrainingLength

    settings = Settings(
        width=8, depth=1, epochs=1, batch=BATCH, learning_rate=1e-3, weight_decay=0.0, warmup=0.1,
        shuffle=shuffle, window=LIVE_BLOCKS,
    )  # fmt: skip
    torch.set_num_threads(1)
    return Job(
        tiles=(task.folder / "tiles.zarr",), labels=(task.folder / "labels.zarr",),
        chips=task.folder / f"{'aligned' if task.aligned else 'random'}.json", bands=NAMES, chip=CHIP,
        state=task.folder, views=task.folder,
        architecture=Architecture("unet", BANDS, 3, 8, 1), normaliser=Normaliser((0.2,) * BANDS, (0.1,) * BANDS),
        settings=settings, length=TrainingLength(1, 1, 1, 1.0),
        knobs=Knobs(device="cpu", checkpoint_every=1, keep=2, cache_mb=cache_mb, timeout_s=60.0, workers=task.workers),
    )  # fmt: skip


def _epochs_of(loader: Any, epoch: int) -> Iterator[Any]:
    from eopipe.loader.prefetch import BatchRequest

    for step in range(-(-loader.count("train") // BATCH)):
        yield BatchRequest("train", loader.order.step(epoch, step, BATCH), epoch)


def _blocks_mb(task: Task) -> int:
    """Cache budget for the live blocks, and one more for each worker."""
    edge = 1024 if task.aligned else 1024 + CHIP
    return -(-(LIVE_BLOCKS + max(task.workers, 1)) * edge**2 * (2 * BANDS + 2) >> 20) + 1


def _stored_chips(task: Task, shuffle: str, cache_mb: int) -> Iterator[int]:
    """Chips as stored, as they are copied to a GPU."""
    import torch

    from eopipe.loader.loader import PREFETCHED_BATCHES, ChipLoader
    from eopipe.loader.prefetch import Prefetcher

    job = job_of(task, shuffle, cache_mb)
    loader = ChipLoader(job, torch.device("cpu"))
    with closing(
        Prefetcher(job, loader.samples, task.workers, PREFETCHED_BATCHES if task.workers else 1, finished=False)
    ) as prefetcher:
        for epoch in range(task.epochs):
            prefetcher.start(_epochs_of(loader, epoch))
            count = 0
            while batch := prefetcher.take():
                count += len(batch.request.numbers)
                prefetcher.free(batch)
            yield count


def eopipe(task: Task) -> Iterator[int]:
    """Blocks of 1024 pixels, 4 of them live."""
    yield from _stored_chips(task, "blocks", _blocks_mb(task))


def eopipe_chips(task: Task) -> Iterator[int]:
    """A permutation of all chips, each read from the store."""
    yield from _stored_chips(task, "chips", 16)


def eopipe_ready(task: Task) -> Iterator[int]:
    """As `eopipe`, finished for a model on this CPU: float32, normalised, masked, with symmetries."""
    import torch

    from eopipe.loader.loader import ChipLoader

    with closing(ChipLoader(job_of(task, "blocks", _blocks_mb(task)), torch.device("cpu"))) as loader:
        for epoch in range(task.epochs):
            yield sum(len(batch.images_NCHW) for batch in loader.stream(_epochs_of(loader, epoch)))
