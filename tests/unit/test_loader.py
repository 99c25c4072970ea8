"""Batches do not depend on workers or cache; a data-loader worker that dies or hangs is reported."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scenery import covered_area
from stores import OFFSET, SCALE, SHAPE, make_scene, nearest_by_hand, number

from eopipe.arrays import AnyArray
from eopipe.chips.chips import Normaliser, apply_symmetry
from eopipe.errors import IntegrityError, UsageError
from eopipe.launch.failures import classify
from eopipe.loader.chip_reader import ChipArrays, ChipReader, ChipRequest, TrainingPlaces, chip_sources
from eopipe.loader.loader import Batch, ChipLoader, DeviceFinisher, apply_symmetries, apply_tensor_symmetry
from eopipe.loader.order import Shuffle, crop_draw
from eopipe.loader.prefetch import BatchRequest, Prefetcher, cache_windows, plan_cache, symmetries_of
from eopipe.loader.workers import InlineReader, LostWorkerError, WorkerPool
from eopipe.models import Architecture
from eopipe.tiles.store import NO_LABEL, Tiles
from eopipe.training_job import Job, Knobs, Settings, TrainingLength

CPU = torch.device("cpu")
SETTINGS = Settings(width=8, depth=1, epochs=1, batch=8, learning_rate=1e-3, weight_decay=0.0, warmup=0.1, seed=3)
NORMALISER = Normaliser((700.0, 9000.0), (311.0, 1234.5))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("feed"))


def make_job(folder: Path) -> Job:
    """Two scenes of two bands in another order, and every fourth pixel a corner of a chip."""
    scenes = [make_scene(folder, *arguments) for arguments in (("a", ("red", "nir")), ("b", ("nir", "red")))]
    corners = [[s, y, x] for s in range(2) for y in range(0, 49, 4) for x in range(0, 33, 4)]
    samples = {"train": corners[::2], "val": corners[1::7], "test": []}
    (folder / "split.json").write_text(json.dumps({"samples": samples}))
    tiles, labels = (tuple(Path(scene[n]) for scene in scenes) for n in range(2))
    return Job(
        tiles=tiles, labels=labels, chips=folder / "split.json", state=folder, views=folder, chip=16,
        bands=("nir", "red"),
        architecture=Architecture("unet", 2, 3, 8, 1), normaliser=NORMALISER, settings=SETTINGS,
        knobs=Knobs(device="cpu", checkpoint_every=1, keep=2, cache_mb=16, timeout_s=60.0),
        length=TrainingLength(1, 1, 1, 1.0),
    )  # fmt: skip


@contextmanager
def loader_of(job: Job, **knobs: Any) -> Iterator[ChipLoader]:
    with closing(ChipLoader(job.replace(knobs=replace(job.knobs, **knobs)), CPU)) as loader:
        yield loader


def batch_plan(loader: ChipLoader, epochs: int = 2, batch: int = 8) -> list[BatchRequest]:
    """Some epochs of training, each with its validation."""
    val = np.arange(loader.count("val"))
    plan = []
    for epoch in range(epochs):
        steps = range(loader.count("train") // batch)
        plan += [BatchRequest("train", loader.order.step(epoch, step, batch), epoch) for step in steps]
        plan += [BatchRequest("val", val[start : start + batch]) for start in range(0, len(val), batch)]
    return plan


def batch_bytes(batches: Iterator[Batch]) -> list[tuple[str, bytes, bytes]]:
    return [(b.request.split, b.images_NCHW.numpy().tobytes(), b.labels_NHW.numpy().tobytes()) for b in batches]


def expected(loader: ChipLoader, scene: int, row: int, col: int, edge: int = 16) -> tuple[AnyArray, AnyArray]:
    """One chip through zarr and NumPy, as in prediction."""
    y, x, name = slice(row, row + edge), slice(col, col + edge), "ab"[scene]
    valid = np.broadcast_to(np.arange(SHAPE[1]) != 20, SHAPE)[y, x]
    stored = np.stack([number(name, band)[y, x] for band in ("nir", "red")])
    label = Tiles(Path(loader.job.labels[scene])).read("label", y, x)
    image = nearest_by_hand(NORMALISER(stored, (SCALE, OFFSET), valid), valid)
    return image, np.where(valid, label, NO_LABEL)


def test_the_eight_ways_to_turn_a_chip_are_all_different_and_symmetries() -> None:
    chip = torch.arange(16).reshape(4, 4)
    arrays = [apply_tensor_symmetry(chip, symmetry).numpy() for symmetry in range(8)]
    rotations = [np.rot90(array, k) for array in (chip.numpy(), chip.numpy().T) for k in range(4)]
    assert len({array.tobytes() for array in arrays}) == 8
    assert {array.tobytes() for array in arrays} == {np.ascontiguousarray(array).tobytes() for array in rotations}


def test_every_sample_of_a_batch_is_turned_by_its_own_way() -> None:
    batch, symmetries = torch.arange(6 * 2 * 9).reshape(6, 2, 3, 3), np.array([5, 0, 5, 7, 2, 1])
    for sample, chip, symmetry in zip(batch, apply_symmetries(batch, symmetries), symmetries, strict=True):
        assert torch.equal(chip, apply_tensor_symmetry(sample, int(symmetry)))


def test_chips_are_normalised_as_a_model_predicts_bit_by_bit(job: Job) -> None:
    with loader_of(job) as loader:
        sizes = []
        for batch in loader.stream([BatchRequest("val", np.arange(8)), BatchRequest("val", np.arange(8, 11))]):
            sizes.append(len(batch.labels_NHW))
            for number_, image, label in zip(batch.request.numbers, batch.images_NCHW, batch.labels_NHW, strict=True):
                expected_chip = expected(loader, *map(int, loader.samples["val"][number_]))
                assert image.numpy().tobytes() == expected_chip[0].tobytes()
                np.testing.assert_array_equal(label, expected_chip[1])
        assert sizes == [8, 3]


@pytest.mark.parametrize("crop", [0, 10])
def test_a_gpu_finishes_stored_numbers_as_a_cpu_does_bit_by_bit(job: Job, crop: int) -> None:
    job, numbers = job.replace(crop=crop), BatchRequest("train", np.arange(8), 3)
    with loader_of(job) as loader, closing(Prefetcher(job, loader.samples, 0, 1, finished=False)) as prefetcher:
        prefetcher.start([numbers])
        loaded = prefetcher.take()
        assert loaded
        assert loaded.chips.image.dtype == np.uint16
        stored = [torch.from_numpy(a.copy()) for a in (loaded.chips.image, loaded.chips.valid, loaded.chips.label)]
        scaling = [tiles.scaling for tiles, _ in job.pairs]
        scenes, symmetries = loader.samples["train"][numbers.numbers][:, 0], symmetries_of(numbers, job.settings)
        images, labels = DeviceFinisher(NORMALISER, scaling, CPU)(*stored, scenes, symmetries)
        batch = next(loader.stream([numbers]))
        assert images.numpy().tobytes() == batch.images_NCHW.numpy().tobytes()
        assert torch.equal(labels, batch.labels_NHW)


@pytest.mark.parametrize(("crop", "block"), [(6, 16), (10, 1024), (16, 16)])
def test_a_crop_is_around_a_labelled_pixel_and_has_the_labels_of_the_training_places_alone(
    job: Job, crop: int, block: int, tmp_path: Path
) -> None:
    # Training places with gaps, so that crops reach out of them.
    samples = {"train": [[s, y, x] for s in range(2) for y in (0, 16, 46) for x in (0, 8, 32)], "val": [], "test": []}
    (tmp_path / "split.json").write_text(json.dumps({"samples": samples}))
    settings = replace(job.settings, augment=("none",), block=block)
    job = job.replace(chips=tmp_path / "split.json", crop=crop, settings=settings)
    numbers, centres, outside = np.arange(len(samples["train"])), set(), 0
    with loader_of(job) as loader:
        places = TrainingPlaces(loader.samples["train"], 16)
        for epoch, half in product(range(4), (numbers[:8], numbers[8:16])):
            batch = next(loader.stream([BatchRequest("train", half, epoch)]))
            for sample, image, label in zip(half, batch.images_NCHW, batch.labels_NHW, strict=True):
                scene, row, col = samples["train"][sample]
                labelled = np.argwhere(expected(loader, scene, row, col)[1] != NO_LABEL)
                pixel = labelled[crop_draw(job.settings.seed, epoch, int(sample)) % len(labelled)]
                of_block = [s[1:] for s in samples["train"] if s[0] == scene and s[1] // block == row // block]
                of_block = [corner for corner in of_block if corner[1] // block == col // block]
                low, high = np.min(of_block, 0), np.max(of_block, 0) + 16
                y, x = np.clip(np.add([row, col], pixel) - crop // 2, low, high - crop).tolist()
                covered = covered_area(SHAPE, np.array([s for s in samples["train"] if s[0] == scene]), 16)
                covered = covered[y : y + crop, x : x + crop]
                np.testing.assert_array_equal(places.mask(scene, (y, x), crop), covered)
                chip = expected(loader, scene, y, x, crop)
                assert image.numpy().tobytes() == chip[0].tobytes()
                np.testing.assert_array_equal(label, np.where(covered, chip[1], NO_LABEL))
                inside = np.add([row, col], pixel) - [y, x]
                assert label[tuple(inside)] != NO_LABEL
                centres.add((scene, y, x))
                outside += int((~covered).sum())
    assert len(centres) > len(numbers) * (1.5 if crop < 16 or block > 16 else 0.9)
    assert outside or block == 16


def test_numpy_and_torch_turn_alike() -> None:
    chip = np.arange(2 * 16).reshape(2, 4, 4)
    for symmetry in range(8):
        np.testing.assert_array_equal(
            apply_symmetry(chip, symmetry), apply_tensor_symmetry(torch.from_numpy(chip), symmetry).numpy()
        )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_slot_is_not_filled_again_before_it_is_freed(job: Job, workers: int) -> None:
    """A copy to a GPU needs it, since it continues while the next batch is taken."""
    with loader_of(job) as loader, closing(Prefetcher(job, loader.samples, workers, 3, finished=False)) as prefetcher:
        prefetcher.start(batch_plan(loader))
        first, second = prefetcher.take(), prefetcher.take()
        assert first
        assert second
        known = first.chips.image.copy()
        third = prefetcher.take()
        assert third
        assert len({first.slot, second.slot, third.slot}) == 3
        assert prefetcher.take() is None, "no slot is free"
        np.testing.assert_array_equal(first.chips.image, known)
        prefetcher.free(second)
        again = prefetcher.take()
        assert again
        assert again.slot == second.slot
        np.testing.assert_array_equal(first.chips.image, known)


def test_who_has_no_patience_gets_nothing_from_readers_at_work_and_all_in_order_later(job: Job) -> None:
    with loader_of(job) as loader, closing(Prefetcher(job, loader.samples, 2, 3, finished=False)) as prefetcher:
        plan: list[BatchRequest] = batch_plan(loader, 1)
        received: list[BatchRequest] = []
        prefetcher.start(plan)
        assert prefetcher.take(wait=False) is None, "they have just been started"
        while loaded := prefetcher.take(wait=False) or prefetcher.take():
            received.append(loaded.request)
            prefetcher.free(loaded)
        assert received == plan


def test_image_and_label_turn_together_and_another_way_in_another_epoch(job: Job) -> None:
    with loader_of(job) as loader:
        numbers, orientations = np.arange(8), set()
        first = next(loader.stream([BatchRequest("train", numbers)]))
        # The next stream takes the memory of this one.
        plain = replace(first, images_NCHW=first.images_NCHW.clone(), labels_NHW=first.labels_NHW.clone())
        for epoch in range(6):
            batch = next(loader.stream([BatchRequest("train", numbers, epoch)]))
            for n in range(8):
                symmetries = [
                    candidate
                    for candidate in range(8)
                    if torch.equal(apply_tensor_symmetry(plain.images_NCHW[n], candidate), batch.images_NCHW[n])
                ]
                assert len(symmetries) == 1
                assert torch.equal(apply_tensor_symmetry(plain.labels_NHW[n], symmetries[0]), batch.labels_NHW[n])
                orientations.add((n, symmetries[0]))
        assert len(orientations) > 16


@pytest.mark.parametrize("crop", [0, 10])
@pytest.mark.parametrize("shuffle", ["chips", "blocks"])
def test_batches_are_the_same_whoever_reads_them_and_whatever_is_kept(
    job: Job, shuffle: str, crop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job.replace(settings=replace(job.settings, shuffle=shuffle, window=3, block=16), crop=crop)
    with loader_of(job) as loader:
        known = batch_bytes(loader.stream(batch_plan(loader)))
        assert len(known) == 2 * (loader.count("train") // 8) + 2 * -(-loader.count("val") // 8)
    inline = ((0, 0), (0, 20_000), (0, 60_000))
    processes = ((1, 0), (1, 16 << 20), (2, 20_000), (2, 60_000))
    # Every pair of order, crop and reader.
    has_processes = (shuffle == "chips") == (crop == 0)
    for workers, cache_bytes in (*inline, *(processes if has_processes else ())):
        monkeypatch.setattr("eopipe.loader.prefetch.MB", cache_bytes // 16)
        with loader_of(job, workers=workers) as loader:
            assert batch_bytes(loader.stream(batch_plan(loader))) == known, (workers, cache_bytes)


@pytest.mark.parametrize("shuffle", ["chips", "blocks"])
def test_a_store_larger_than_the_memory_that_is_allowed_stays_within_it(
    job: Job, shuffle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2 scenes of 64 x 48 pixels at 6 bytes: 37 KB.
    monkeypatch.setattr("eopipe.loader.prefetch.MB", 20_000 // 16)
    job = job.replace(settings=replace(job.settings, shuffle=shuffle, window=3, block=16))
    with loader_of(job) as loader:
        cached_bytes = []
        for _ in loader.stream(batch_plan(loader)):
            assert isinstance(loader.prefetcher._backend, InlineReader)
            cached_bytes.append(loader.prefetcher._backend._reader.cached_bytes)
    assert max(cached_bytes) <= 20_000
    assert (max(cached_bytes) > 5_000) == (shuffle == "blocks"), "what fits is kept"


def test_blocks_of_about_one_size_use_memory_again_and_never_more_than_allowed(job: Job) -> None:
    sources, size = chip_sources(job.pairs, job.bands), 30 * 30 * 6
    reader = ChipReader(sources, 16, np.dtype("u2"), 2 * size)
    image, raster = np.zeros((1, 2, 16, 16), np.uint16), np.zeros((1, 16, 16), np.uint8)
    addresses = set()
    for number_ in range(12):
        edge = 30 - number_ % 3
        window = (number_, 0, number_ + edge, edge)
        reader.read(ChipRequest(0, window, [0], [(number_, 3)], [0]), ChipArrays(image, raster, raster.copy()))
        np.testing.assert_array_equal(image[0, 1], number("a", "red")[number_ : number_ + 16, 3:19])
        assert reader.cached_bytes <= reader.budget
        addresses |= {block.memory.ctypes.data for block in reader._cache.values()}
        memory = [block.memory for block in reader._cache.values()]
        assert not np.may_share_memory(memory[0], memory[-1]) or len(memory) == 1
    assert len(addresses) <= 5, "twelve blocks"


def test_a_stream_that_was_left_disturbs_none_after_it(job: Job) -> None:
    with loader_of(job, workers=2) as loader:
        plan = batch_plan(loader, 1)
        whole = batch_bytes(loader.stream(plan))
        for left in (1, 3, 6):
            stream = loader.stream(plan)
            for _ in range(left):
                next(stream)
            assert batch_bytes(loader.stream(plan)) == whole


def test_a_worker_without_samples_gets_an_empty_batch(job: Job) -> None:
    for workers in (0, 1):
        with loader_of(job, workers=workers) as loader:
            batch = next(loader.stream([BatchRequest("train", np.empty(0, np.int64), 0)]))
            assert batch.images_NCHW.shape == (0, 2, 16, 16)
            assert batch.labels_NHW.shape == (0, 16, 16)


def test_a_batch_larger_than_the_training_said_is_refused(job: Job) -> None:
    with loader_of(job) as loader, pytest.raises(UsageError, match="a batch of 9 chips does not fit into a slot of 8"):
        next(loader.stream([BatchRequest("train", np.arange(9), 0)]))


def test_damage_reaches_the_training_by_its_name(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    shard = Path(job.tiles[1]) / "image/c/0/0/0"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\0")
    for workers in (0, 2):
        with loader_of(job, workers=workers) as loader, pytest.raises(IntegrityError, match=r"b\.zarr/image/c/0/0/0"):
            list(loader.stream(batch_plan(loader)))


def worker_pids(loader: ChipLoader) -> list[int]:
    assert isinstance(loader.prefetcher._backend, WorkerPool)
    return [process.pid for process in loader.prefetcher._backend._processes]


def test_a_reader_that_is_killed_ends_the_worker_with_an_error_that_is_tried_again(job: Job, tmp_path: Path) -> None:
    with loader_of(job, workers=2) as loader:
        stream = loader.stream(batch_plan(loader, 50))
        next(stream)
        os.kill(worker_pids(loader)[1], signal.SIGKILL)
        with pytest.raises(LostWorkerError, match="a data-loader worker was killed by signal 9") as error:
            list(stream)
    failure = classify(error.value, tmp_path)
    assert (failure.kind, failure.final) == ("reader", False)


def test_a_reader_that_is_stuck_is_told_with_its_chips_before_other_workers_call_this_one_hung(
    job: Job, tmp_path: Path
) -> None:
    with loader_of(job, workers=2, timeout_s=60.0) as loader:
        stream = loader.stream(batch_plan(loader, 50))
        next(stream)
        assert isinstance(loader.prefetcher._backend, WorkerPool)
        assert loader.prefetcher._backend._timeout_s == 30
        loader.prefetcher._backend._timeout_s = 1.0
        os.kill(worker_pids(loader)[1], signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(
            LostWorkerError, match=r"has been stuck for 1 s at [ab]\.zarr \(row \d+, column \d+\)"
        ) as error:
            list(stream)
        assert time.monotonic() - began >= 1
        pids = worker_pids(loader)
    failure = classify(error.value, tmp_path)
    assert (failure.kind, failure.final) == ("reader", False)
    assert "disk hangs" in failure.reason
    assert have_all_exited(pids)


def has_exited(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return not path.exists() or path.read_text().rpartition(")")[2].split()[0] == "Z"


def have_all_exited(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while not all(map(has_exited, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return all(map(has_exited, pids))


def test_readers_end_with_the_feed(job: Job) -> None:
    with loader_of(job, workers=2) as loader:
        list(loader.stream(batch_plan(loader, 1)))
        pids = worker_pids(loader)
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
loader = ChipLoader(read_job(Path(sys.argv[1])), torch.device("cpu"))
next(loader.stream([BatchRequest("train", np.arange(8), 0)]))
print(*[process.pid for process in loader.prefetcher._backend._processes], flush=True)
time.sleep(60)
"""


def test_readers_die_with_a_worker_that_is_killed_and_heed_no_signal_to_its_group(job: Job, tmp_path: Path) -> None:
    job.replace(knobs=replace(job.knobs, workers=2)).write(tmp_path / "job.json")
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
    positions = np.arange(0, edge, 64)
    corners = np.stack([g.reshape(-1) for g in np.meshgrid([0, 1], positions, positions, indexing="ij")], 1)
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
