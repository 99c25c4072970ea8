"""eopipe as a contestant of `loader.py`."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from loader_scene import BANDS, BATCH, CHIP, NAMES, Task

LIVE = 4


def job_of(task: Task, shuffle: str, cache_mb: int) -> Any:
    """A training over the scene."""
    import torch

    from eopipe.chips.chips import Normaliser
    from eopipe.models import Architecture
    from eopipe.training_job import Job, Settings

    settings = Settings(
        width=8, depth=1, epochs=1, batch=BATCH, learning_rate=1e-3, weight_decay=0.0, warmup=0.1,
        shuffle=shuffle, window=LIVE,
    )  # fmt: skip
    torch.set_num_threads(1)
    return Job(
        tiles=(task.folder / "tiles.zarr",), labels=(task.folder / "labels.zarr",),
        chips=task.folder / f"{'aligned' if task.aligned else 'random'}.json", bands=NAMES, chip=CHIP,
        state=task.folder, views=task.folder,
        architecture=Architecture("unet", BANDS, 3, 8, 1), normaliser=Normaliser((0.2,) * BANDS, (0.1,) * BANDS),
        settings=settings, device="cpu", checkpoint_every=1, keep=2, cache_mb=cache_mb, timeout_s=60.0,
        workers=task.workers,
    )  # fmt: skip


def _epochs_of(feed: Any, epoch: int) -> Iterator[Any]:
    from eopipe.loader.prefetch import BatchRequest

    for step in range(-(-feed.count("train") // BATCH)):
        yield BatchRequest("train", feed.order.step(epoch, step, BATCH), epoch)


def _blocks_mb(task: Task) -> int:
    """Room for the live blocks, and one more for each worker."""
    edge = 1024 if task.aligned else 1024 + CHIP
    return -(-(LIVE + max(task.workers, 1)) * edge**2 * (2 * BANDS + 2) >> 20) + 1


def _stored(task: Task, shuffle: str, cache_mb: int) -> Iterator[int]:
    """As a GPU gets them."""
    import torch

    from eopipe.loader.loader import PREFETCHED_BATCHES, ChipLoader
    from eopipe.loader.prefetch import Prefetcher

    job = job_of(task, shuffle, cache_mb)
    feed = ChipLoader(job, torch.device("cpu"))
    with closing(
        Prefetcher(job, feed.samples, task.workers, PREFETCHED_BATCHES if task.workers else 1, finished=False)
    ) as reader:
        for epoch in range(task.epochs):
            reader.start(_epochs_of(feed, epoch))
            count = 0
            while taken := reader.take():
                count += len(taken.request.numbers)
                reader.free(taken)
            yield count


def eopipe(task: Task) -> Iterator[int]:
    """Blocks of 1024 pixels, 4 of them live."""
    yield from _stored(task, "blocks", _blocks_mb(task))


def eopipe_chips(task: Task) -> Iterator[int]:
    """A permutation of all chips, each read from the store."""
    yield from _stored(task, "chips", 16)


def eopipe_ready(task: Task) -> Iterator[int]:
    """As `eopipe`, and as a model on this CPU sees them: float32, normalised, masked, turned."""
    import torch

    from eopipe.loader.loader import ChipLoader

    with closing(ChipLoader(job_of(task, "blocks", _blocks_mb(task)), torch.device("cpu"))) as feed:
        for epoch in range(task.epochs):
            yield sum(len(batch.images_NCHW) for batch in feed.stream(_epochs_of(feed, epoch)))
