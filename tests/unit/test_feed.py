"""Batches are the same whoever reads them, whatever memory they may take; a reader that dies is told."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stores import OFFSET, SCALE, SHAPE, make_scene, number

from eopipe.arrays import AnyArray
from eopipe.chips.chips import Normaliser
from eopipe.errors import IntegrityError, UsageError
from eopipe.launch.failures import classify
from eopipe.loader.chip_reader import ChipArrays, ChipReader, ChipRequest, apply_symmetry, chip_sources
from eopipe.loader.device import DeviceFinisher, apply_symmetries, apply_tensor_symmetry
from eopipe.loader.loader import Batch, ChipLoader
from eopipe.loader.order import Shuffle
from eopipe.loader.prefetch import BatchRequest, Prefetcher, cache_windows, plan_cache, symmetries_of
from eopipe.loader.workers import InlineReader, LostWorkerError, WorkerPool
from eopipe.models import Architecture
from eopipe.tiles.store import NO_LABEL, Tiles
from eopipe.training_job import Job, Settings

CPU = torch.device("cpu")
SETTINGS = Settings(width=8, depth=1, epochs=1, batch=8, learning_rate=1e-3, weight_decay=0.0, warmup=0.1, seed=3)
NORMALISER = Normaliser((700.0, 9000.0), (311.0, 1234.5))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("feed"))


def make_job(place: Path) -> Job:
    """Two scenes of two bands in another order, and every fourth pixel a corner of a chip."""
    scenes = [make_scene(place, *arguments) for arguments in (("a", ("red", "nir")), ("b", ("nir", "red")))]
    corners = [[s, y, x] for s in range(2) for y in range(0, 49, 4) for x in range(0, 33, 4)]
    samples = {"train": corners[::2], "val": corners[1::7], "test": []}
    (place / "split.json").write_text(json.dumps({"samples": samples}))
    tiles, labels = (tuple(Path(scene[n]) for scene in scenes) for n in range(2))
    return Job(
        tiles=tiles, labels=labels, chips=place / "split.json", state=place, views=place, chip=16, bands=("nir", "red"),
        architecture=Architecture("unet", 2, 3, 8, 1), normaliser=NORMALISER, settings=SETTINGS, device="cpu",
        checkpoint_every=1, keep=2, cache_mb=16, timeout_s=60.0,
    )  # fmt: skip


@contextmanager
def feeding(job: Job, **knobs: Any) -> Iterator[ChipLoader]:
    with closing(ChipLoader(job.replace(**knobs), CPU)) as feed:
        yield feed


def batch_plan(feed: ChipLoader, epochs: int = 2, batch: int = 8) -> list[BatchRequest]:
    """Some epochs of training, each with its validation."""
    val = np.arange(feed.count("val"))
    plan = []
    for epoch in range(epochs):
        steps = range(feed.count("train") // batch)
        plan += [BatchRequest("train", feed.order.step(epoch, step, batch), epoch) for step in steps]
        plan += [BatchRequest("val", val[start : start + batch]) for start in range(0, len(val), batch)]
    return plan


def batch_bytes(batches: Iterator[Batch]) -> list[tuple[str, bytes, bytes]]:
    return [(b.request.split, b.images_NCHW.numpy().tobytes(), b.labels_NHW.numpy().tobytes()) for b in batches]


def expected(feed: ChipLoader, scene: int, row: int, col: int) -> tuple[AnyArray, AnyArray]:
    """One chip by way of zarr and NumPy: what eopipe predicts with."""
    y, x, name = slice(row, row + 16), slice(col, col + 16), "ab"[scene]
    valid = np.broadcast_to(np.arange(SHAPE[1]) != 20, SHAPE)[y, x]
    stored = np.stack([number(name, band)[y, x] for band in ("nir", "red")])
    label = Tiles(Path(feed.job.labels[scene])).read("label", y, x)
    return NORMALISER(stored, (SCALE, OFFSET), valid), np.where(valid, label, NO_LABEL)


def test_the_eight_ways_to_turn_a_chip_are_all_different_and_symmetries() -> None:
    chip = torch.arange(16).reshape(4, 4)
    arrays = [apply_tensor_symmetry(chip, way).numpy() for way in range(8)]
    known = [np.rot90(array, k) for array in (chip.numpy(), chip.numpy().T) for k in range(4)]
    assert len({array.tobytes() for array in arrays}) == 8
    assert {array.tobytes() for array in arrays} == {np.ascontiguousarray(array).tobytes() for array in known}


def test_every_sample_of_a_batch_is_turned_by_its_own_way() -> None:
    batch, ways = torch.arange(6 * 2 * 9).reshape(6, 2, 3, 3), np.array([5, 0, 5, 7, 2, 1])
    for sample, chip, way in zip(batch, apply_symmetries(batch, ways), ways, strict=True):
        assert torch.equal(chip, apply_tensor_symmetry(sample, int(way)))


def test_chips_are_normalised_as_a_model_predicts_bit_by_bit(job: Job) -> None:
    with feeding(job) as feed:
        sizes = []
        for batch in feed.stream([BatchRequest("val", np.arange(8)), BatchRequest("val", np.arange(8, 11))]):
            sizes.append(len(batch.labels_NHW))
            for number_, image, label in zip(batch.request.numbers, batch.images_NCHW, batch.labels_NHW, strict=True):
                known = expected(feed, *map(int, feed.samples["val"][number_]))
                assert image.numpy().tobytes() == known[0].tobytes()
                np.testing.assert_array_equal(label, known[1])
        assert sizes == [8, 3]


def test_a_gpu_finishes_stored_numbers_as_a_cpu_does_bit_by_bit(job: Job) -> None:
    numbers = BatchRequest("train", np.arange(8), 3)
    with feeding(job) as feed, closing(Prefetcher(job, feed.samples, 0, 1, finished=False)) as reader:
        reader.start([numbers])
        finished = reader.take()
        assert finished
        assert finished.chips.image.dtype == np.uint16
        stored = [
            torch.from_numpy(a.copy()) for a in (finished.chips.image, finished.chips.valid, finished.chips.label)
        ]
        scaling = [tiles.scaling for tiles, _ in job.pairs]
        scenes, ways = feed.samples["train"][numbers.numbers][:, 0], symmetries_of(numbers, job.settings)
        images, labels = DeviceFinisher(NORMALISER, scaling, CPU)(*stored, scenes, ways)
        batch = next(feed.stream([numbers]))
        assert images.numpy().tobytes() == batch.images_NCHW.numpy().tobytes()
        assert torch.equal(labels, batch.labels_NHW)


def test_numpy_and_torch_turn_alike() -> None:
    chip = np.arange(2 * 16).reshape(2, 4, 4)
    for way in range(8):
        np.testing.assert_array_equal(
            apply_symmetry(chip, way), apply_tensor_symmetry(torch.from_numpy(chip), way).numpy()
        )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_slot_is_not_filled_again_before_it_is_freed(job: Job, workers: int) -> None:
    """What a copy to a GPU needs, which goes on while the next batch is taken."""
    with feeding(job) as feed, closing(Prefetcher(job, feed.samples, workers, 3, finished=False)) as reader:
        reader.start(batch_plan(feed))
        first, second = reader.take(), reader.take()
        assert first
        assert second
        known = first.chips.image.copy()
        third = reader.take()
        assert third
        assert len({first.slot, second.slot, third.slot}) == 3
        assert reader.take() is None, "no slot is free"
        np.testing.assert_array_equal(first.chips.image, known)
        reader.free(second)
        again = reader.take()
        assert again
        assert again.slot == second.slot
        np.testing.assert_array_equal(first.chips.image, known)


def test_who_has_no_patience_gets_nothing_from_readers_at_work_and_all_in_order_later(job: Job) -> None:
    with feeding(job) as feed, closing(Prefetcher(job, feed.samples, 2, 3, finished=False)) as reader:
        plan: list[BatchRequest] = batch_plan(feed, 1)
        received: list[BatchRequest] = []
        reader.start(plan)
        assert reader.take(patient=False) is None, "they have just been started"
        while finished := reader.take(patient=False) or reader.take():
            received.append(finished.request)
            reader.free(finished)
        assert received == plan


def test_image_and_label_turn_together_and_another_way_in_another_epoch(job: Job) -> None:
    with feeding(job) as feed:
        numbers, orientations = np.arange(8), set()
        first = next(feed.stream([BatchRequest("train", numbers)]))
        # The next stream takes the memory of this one.
        plain = replace(first, images_NCHW=first.images_NCHW.clone(), labels_NHW=first.labels_NHW.clone())
        for epoch in range(6):
            batch = next(feed.stream([BatchRequest("train", numbers, epoch)]))
            for n in range(8):
                ways = [
                    w
                    for w in range(8)
                    if torch.equal(apply_tensor_symmetry(plain.images_NCHW[n], w), batch.images_NCHW[n])
                ]
                assert len(ways) == 1
                assert torch.equal(apply_tensor_symmetry(plain.labels_NHW[n], ways[0]), batch.labels_NHW[n])
                orientations.add((n, ways[0]))
        assert len(orientations) > 16


@pytest.mark.parametrize("shuffle", ["chips", "blocks"])
def test_batches_are_the_same_whoever_reads_them_and_whatever_is_kept(
    job: Job, shuffle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job.replace(settings=job.settings.replace(shuffle=shuffle, window=3, block=16))
    with feeding(job) as feed:
        known = batch_bytes(feed.stream(batch_plan(feed)))
        assert len(known) == 2 * (feed.count("train") // 8) + 2 * -(-feed.count("val") // 8)
    for workers, cache_bytes in ((0, 0), (0, 20_000), (0, 60_000), (1, 0), (1, 16 << 20), (2, 20_000), (2, 60_000)):
        monkeypatch.setattr("eopipe.loader.prefetch.MB", cache_bytes // 16)
        with feeding(job, workers=workers) as feed:
            assert batch_bytes(feed.stream(batch_plan(feed))) == known, (workers, cache_bytes)


@pytest.mark.parametrize("shuffle", ["chips", "blocks"])
def test_a_store_larger_than_the_memory_that_is_allowed_stays_within_it(
    job: Job, shuffle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2 scenes of 64 x 48 pixels at 6 bytes: 37 KB.
    monkeypatch.setattr("eopipe.loader.prefetch.MB", 20_000 // 16)
    job = job.replace(settings=job.settings.replace(shuffle=shuffle, window=3, block=16))
    with feeding(job) as feed:
        cached_bytes = []
        for _ in feed.stream(batch_plan(feed)):
            assert isinstance(feed.reader._crew, InlineReader)
            cached_bytes.append(feed.reader._crew._cutter.held)
    assert max(cached_bytes) <= 20_000
    assert (max(cached_bytes) > 5_000) == (shuffle == "blocks"), "what fits is kept"


def test_blocks_of_about_one_size_use_memory_again_and_never_more_than_allowed(job: Job) -> None:
    sources, size = chip_sources(job.pairs, job.bands), 30 * 30 * 6
    cutter = ChipReader(sources, 16, np.dtype("u2"), 2 * size)
    image, raster = np.zeros((1, 2, 16, 16), np.uint16), np.zeros((1, 16, 16), np.uint8)
    places = set()
    for turn_ in range(12):
        edge = 30 - turn_ % 3
        window = (turn_, 0, turn_ + edge, edge)
        cutter.cut(ChipRequest(0, window, [0], [(turn_, 3)], [0]), ChipArrays(image, raster, raster.copy()))
        np.testing.assert_array_equal(image[0, 1], number("a", "red")[turn_ : turn_ + 16, 3:19])
        assert cutter.held <= cutter.budget
        places |= {block.memory.ctypes.data for block in cutter._kept.values()}
        memory = [block.memory for block in cutter._kept.values()]
        assert not np.may_share_memory(memory[0], memory[-1]) or len(memory) == 1
    assert len(places) <= 5, "twelve blocks"


def test_a_stream_that_was_left_disturbs_none_after_it(job: Job) -> None:
    with feeding(job, workers=2) as feed:
        plan = batch_plan(feed, 1)
        whole = batch_bytes(feed.stream(plan))
        for left in (1, 3, 6):
            stream = feed.stream(plan)
            for _ in range(left):
                next(stream)
            assert batch_bytes(feed.stream(plan)) == whole


def test_a_worker_without_samples_gets_an_empty_batch(job: Job) -> None:
    for workers in (0, 1):
        with feeding(job, workers=workers) as feed:
            batch = next(feed.stream([BatchRequest("train", np.empty(0, np.int64), 0)]))
            assert batch.images_NCHW.shape == (0, 2, 16, 16)
            assert batch.labels_NHW.shape == (0, 16, 16)


def test_a_batch_larger_than_the_training_said_is_refused(job: Job) -> None:
    with feeding(job) as feed, pytest.raises(UsageError, match="batch of 9 chips is wanted of a feed for 8"):
        next(feed.stream([BatchRequest("train", np.arange(9), 0)]))


def test_damage_reaches_the_training_by_its_name(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    shard = Path(job.tiles[1]) / "image/c/0/0/0"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\0")
    for workers in (0, 2):
        with feeding(job, workers=workers) as feed, pytest.raises(IntegrityError, match=r"b\.zarr/image/c/0/0/0"):
            list(feed.stream(batch_plan(feed)))


def producers(feed: ChipLoader) -> list[int]:
    assert isinstance(feed.reader._crew, WorkerPool)
    return [process.pid for process in feed.reader._crew._processes]


def test_a_reader_that_is_killed_ends_the_worker_with_an_error_that_is_tried_again(job: Job, tmp_path: Path) -> None:
    with feeding(job, workers=2) as feed:
        stream = feed.stream(batch_plan(feed, 50))
        next(stream)
        os.kill(producers(feed)[1], signal.SIGKILL)
        with pytest.raises(LostWorkerError, match="a process that reads chips was killed by signal 9") as error:
            list(stream)
    failure = classify(error.value, tmp_path)
    assert (failure.kind, failure.final) == ("reader", False)


def test_a_reader_that_is_stuck_is_told_with_its_chips_before_other_workers_call_this_one_hung(
    job: Job, tmp_path: Path
) -> None:
    with feeding(job, workers=2, timeout_s=60.0) as feed:
        stream = feed.stream(batch_plan(feed, 50))
        next(stream)
        assert isinstance(feed.reader._crew, WorkerPool)
        assert feed.reader._crew._patience == 30
        feed.reader._crew._patience = 1.0
        os.kill(producers(feed)[1], signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(LostWorkerError, match=r"is stuck for 1 s at [ab]\.zarr \(row \d+, column \d+\)") as error:
            list(stream)
        assert time.monotonic() - began >= 1
        pids = producers(feed)
    failure = classify(error.value, tmp_path)
    assert (failure.kind, failure.final) == ("reader", False)
    assert "disk hangs" in failure.reason
    assert have_all_exited(pids)


def has_exited(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return not path.exists() or path.read_text().rpartition(")")[2].split()[0] == "Z"


def have_all_exited(pids: list[int]) -> bool:
    until = time.monotonic() + 20
    while not all(map(has_exited, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return all(map(has_exited, pids))


def test_readers_end_with_the_feed(job: Job) -> None:
    with feeding(job, workers=2) as feed:
        list(feed.stream(batch_plan(feed, 1)))
        pids = producers(feed)
        assert not any(map(has_exited, pids))
    assert have_all_exited(pids)


PROGRAM = """
import sys, signal, time
from pathlib import Path
import torch
from eopipe.loader.loader import ChipLoader
from eopipe.loader.prefetch import BatchRequest
from eopipe.training_job import read_job
import numpy as np
feed = ChipLoader(read_job(Path(sys.argv[1])), torch.device("cpu"))
next(feed.stream([BatchRequest("train", np.arange(8), 0)]))
print(*[process.pid for process in feed.reader._crew._processes], flush=True)
time.sleep(60)
"""


def test_readers_die_with_a_worker_that_is_killed_and_heed_no_signal_to_its_group(job: Job, tmp_path: Path) -> None:
    job.replace(workers=2).write(tmp_path / "job.json")
    worker = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PROGRAM,
         str(tmp_path / "job.json")], stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with worker:
        assert worker.stdout
        pids = [int(word) for word in worker.stdout.readline().split()]
        assert len(pids) == 2
        os.killpg(worker.pid, signal.SIGTERM)
        time.sleep(0.3)
        assert not any(map(has_exited, pids))
        worker.kill()
    assert have_all_exited(pids)


def test_the_window_of_a_block_holds_the_chips_whose_corners_lie_in_it() -> None:
    samples = np.array([[0, 0, 0], [0, 40, 60], [0, 70, 10], [1, 0, 0]])
    windows = cache_windows(samples, 16, 64).tolist()
    assert windows == [[0, 0, 56, 76], [0, 0, 56, 76], [70, 10, 86, 26], [0, 0, 16, 16]]


def grid(edge: int) -> dict[str, Any]:
    places = np.arange(0, edge, 64)
    corners = np.stack([g.reshape(-1) for g in np.meshgrid([0, 1], places, places, indexing="ij")], 1)
    return {"train": corners, "val": corners[:5]}


def test_only_what_fits_is_kept() -> None:
    block = 256 * 256 * 22
    samples = grid(1024)
    every, blocks = Shuffle("chips", 4, 256), Shuffle("blocks", 4, 256)
    assert set(plan_cache(samples, 64, 22, every, 40 * block, 1).windows) == {"train", "val"}
    assert set(plan_cache(samples, 64, 22, every, 16 * block, 1).windows) == set()
    assert set(plan_cache(samples, 64, 22, blocks, 16 * block, 2).windows) == {"train"}
    assert set(plan_cache(samples, 64, 22, blocks, 4 * block, 2).windows) == set(), (
        "each of two may hold one block more"
    )
    assert plan_cache(samples, 64, 22, blocks, 4 * block, 1).live == 4
