"""Checkpoints: whole or passed over, written off the training path, never those of another training."""

import errno
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from torch import Tensor

from eopipe.checkpoints import checkpoint
from eopipe.checkpoints.checkpoint import Parts, Progress
from eopipe.checkpoints.manager import CheckpointWriter, adopt_checkpoint, write_checkpoint
from eopipe.errors import BadInputError, IntegrityError, NoSpaceError, UsageError
from eopipe.publish import digest, write_manifest
from eopipe.text_files import write_json

IDENTITY = {"settings": {"seed": 0, "epochs": 3}, "data": {"chips": "ab"}}


def parts(step: int) -> Parts:
    stream = torch.Generator().manual_seed(step)
    weights: dict[str, Tensor] = {"a": torch.rand(5, 3, generator=stream), "b": torch.tensor(step)}
    return {"model": weights, "optimiser": {"0.exp_avg": torch.rand(7, generator=stream)}, "ema": {}}


def restored(folder: Path, identity: Any = None) -> tuple[Progress, Parts]:
    """The newest whole checkpoint, which there is."""
    newest = checkpoint.restore(folder, identity)
    assert newest is not None
    return newest


def kept_steps(folder: Path) -> list[int]:
    return [int(path.name[5:]) for path in checkpoint.steps(folder)]


def same(first: Parts, second: Parts) -> bool:
    return first.keys() == second.keys() and all(
        first[part].keys() == second[part].keys()
        and all(torch.equal(first[part][k], second[part][k]) for k in first[part])
        for part in first
    )


def test_what_is_saved_is_restored_to_the_last_bit(tmp_path: Path) -> None:
    before = Progress(3, 0.1 + 0.2, [{"step": 1, "loss": 0.5}], 0.25)
    checkpoint.save(tmp_path, before, parts(3), keep=2, identity=IDENTITY)
    progress, state_parts = restored(tmp_path, IDENTITY)
    assert progress == before
    assert same(state_parts, parts(3))


def test_without_a_checkpoint_there_is_nothing_to_restore(tmp_path: Path) -> None:
    assert checkpoint.restore(tmp_path, IDENTITY) is None


def paused(model: Path) -> Path:
    """A model folder with the checkpoints of steps 2, which has the best score, and 4."""
    state = model.parent / "state"
    for step, score in ((2, 0.9), (3, 0.5), (4, 0.6)):
        checkpoint.save(state, Progress(step, score=score), parts(step), keep=1, identity=IDENTITY, token=step)
    write_json(state / "identity.json", IDENTITY)
    lines = [{"event": "step", "step": step, "time": 0.5} for step in range(1, 7)]
    (state / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (model / "checkpoint").mkdir(parents=True)
    write_checkpoint(model / "checkpoint", state, with_best=True)
    return model


def test_a_checkpoint_in_a_model_folder_is_copied_once_whole_and_without_what_a_run_alone_has(tmp_path: Path) -> None:
    model, state = paused(tmp_path / "model"), tmp_path / "other"
    # A process that was killed meanwhile had copied the first one.
    shutil.copytree(model / "checkpoint/step-000000002", state / "step-000000002")
    adopt_checkpoint(model, state, IDENTITY)
    assert kept_steps(state) == [2, 4]
    progress, state_parts = restored(state, IDENTITY)
    assert progress == Progress(4, score=0.6)
    assert same(state_parts, parts(4))
    assert b"time" not in (state / "metrics.jsonl").read_bytes()
    assert json.loads((state / "step-000000004/state.json").read_text())["token"] == 0
    checkpoint.save(state, Progress(5), parts(5), keep=1, identity=IDENTITY)
    (state / "metrics.jsonl").write_text("later")
    adopt_checkpoint(model, state, IDENTITY)
    assert kept_steps(state) == [2, 5]
    assert (state / "metrics.jsonl").read_text() == "later"


def test_a_checkpoint_in_a_model_folder_that_is_damaged_or_of_another_training_is_refused(tmp_path: Path) -> None:
    model = paused(tmp_path / "model")
    other = IDENTITY | {"settings": {"seed": 1, "epochs": 3}}
    with pytest.raises(BadInputError, match=r"settings\.seed is 1 here and 0 there"):
        adopt_checkpoint(model, tmp_path / "other", other)
    weights = model / "checkpoint/step-000000004/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match="bytes instead of"):
        adopt_checkpoint(model, tmp_path / "other", IDENTITY)
    assert kept_steps(tmp_path / "other") == [2]


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 100, 1000):
        checkpoint.save(tmp_path, Progress(step), parts(step), keep=2)
    assert kept_steps(tmp_path) == [100, 1000]


def test_the_best_checkpoint_outlives_newer_ones(tmp_path: Path) -> None:
    for step, score in ((1, 0.2), (2, 0.9), (3, 0.4), (4, None), (5, 0.5), (6, None)):
        checkpoint.save(tmp_path, Progress(step, score=score), parts(step), keep=2)
    assert kept_steps(tmp_path) == [2, 5, 6]
    best = checkpoint.best(tmp_path)
    assert best is not None
    assert best.name == "step-000000002"


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        ([{"loss": 1.0, "val": {"miou": 0.5}}, {"loss": 2.0, "val": {"miou": 0.6}}], True),
        ([{"loss": 2.0, "val": {"miou": 0.6}}, {"loss": 1.0, "val": {"miou": 0.5}}], False),
        ([{"loss": 2.0, "val": None}, {"loss": 1.0, "val": None}], True),
        ([{"loss": 2.0, "val": {"loss": 0.1}}, {"loss": 1.0, "val": {"loss": 0.2}}], False),
    ],
)
def test_a_validation_is_the_best_by_miou_or_by_loss_where_there_is_none(
    rows: list[dict[str, object]], best: bool
) -> None:
    progress = Progress()
    for row in rows:
        progress.add_validation(row)
    assert progress.is_best is best


def test_weights_that_were_not_measured_are_never_the_best() -> None:
    assert not Progress(3, 0.0, [{"step": 1, "loss": 0.5, "val": None}]).is_best


def test_latest_names_the_newest_checkpoint_and_its_manifest(tmp_path: Path) -> None:
    for step in (1, 2):
        saved = checkpoint.save(tmp_path, Progress(step), parts(step), keep=2, token=7)
    latest = json.loads((tmp_path / "latest.json").read_text())
    assert latest == {"checkpoint": "step-000000002", "manifest": digest(saved), "token": 7}


@pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "ema.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "swap"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, name: str, harm: str) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, Progress(step), parts(step), keep=2)
    path = tmp_path / "step-000000002" / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    other = (tmp_path / "step-000000001" / name).read_bytes()
    changed = {"flip": bytes(content), "cut": path.read_bytes()[:-5], "swap": other}
    path.unlink() if harm == "remove" else path.write_bytes(changed[harm])
    progress, state_parts = restored(tmp_path)
    assert progress.step == 1
    assert same(state_parts, parts(1))


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_parts_of_two_steps_never_load_even_under_a_manifest_that_fits(tmp_path: Path, name: str) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, Progress(step), parts(step), keep=2)
    shutil.copy(tmp_path / "step-000000001" / name, tmp_path / "step-000000002" / name)
    (tmp_path / "step-000000002" / "manifest.json").unlink()
    write_manifest(tmp_path / "step-000000002")
    assert restored(tmp_path)[0].step == 1


def test_the_checkpoint_of_another_training_is_refused_with_the_difference(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, Progress(1), parts(1), keep=2, identity=IDENTITY)
    other = {"settings": {"seed": 1, "epochs": 3}, "data": {"chips": "cd"}}
    with pytest.raises(BadInputError, match=r"data.chips is cd here and ab there; settings.seed is 1 here and 0 there"):
        checkpoint.restore(tmp_path, other)
    assert kept_steps(tmp_path) == [1]


def test_a_fence_keeps_an_older_writer_from_publishing(tmp_path: Path) -> None:
    def fence() -> None:
        raise UsageError("another training has taken over")

    checkpoint.save(tmp_path, Progress(1), parts(1), keep=2)
    with pytest.raises(UsageError):
        checkpoint.save(tmp_path, Progress(2), parts(2), keep=2, fence=fence)
    assert kept_steps(tmp_path) == [1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest.json", "step-000000001"]


def test_the_writer_saves_the_state_of_the_step_whatever_happens_to_it_after() -> None:
    go, saved = Event(), []

    def save(progress: Progress, state: Parts) -> None:
        go.wait(60)
        saved.append((progress.step, {k: v.clone() for k, v in state["model"].items()}))

    writer, now, live = CheckpointWriter(save), Progress(1), parts(1)
    writer.put(now, live)
    now.step = 99
    live["model"]["a"].zero_()
    assert not saved, "put returns before the state is written"
    go.set()
    writer.wait()
    writer.put(now, live)
    writer.wait()
    assert [step for step, _ in saved] == [1, 99]
    assert torch.equal(saved[0][1]["a"], parts(1)["model"]["a"])
    assert not saved[1][1]["a"].any()


def test_a_save_waits_for_the_one_before() -> None:
    running, concurrent_saves = [], []

    def save(progress: Progress, state: Parts) -> None:
        running.append(progress.step)
        concurrent_saves.append(len(running))
        time.sleep(0.02)
        running.remove(progress.step)

    writer = CheckpointWriter(save)
    for step in range(5):
        writer.put(Progress(step), parts(step))
    writer.wait()
    assert concurrent_saves == [1] * 5


@pytest.mark.parametrize("call", ["raise_failure", "wait", "put"])
def test_what_the_writer_meets_is_raised_at_the_next_call(tmp_path: Path, call: str) -> None:
    def save(progress: Progress, state: Parts) -> None:
        from eopipe.publish import publish

        with publish(tmp_path / "file"):
            raise OSError(errno.ENOSPC, "no space")

    writer = CheckpointWriter(save)
    writer.put(Progress(1), parts(1))
    assert writer._thread is not None
    writer._thread.join()
    with pytest.raises(NoSpaceError):
        writer.put(Progress(2), parts(2)) if call == "put" else getattr(writer, call)()


def test_a_full_disk_stops_the_training_and_leaves_the_checkpoint_before(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=3m")

    def large(step: int) -> Parts:
        return {"model": {"a": torch.full((500_000,), float(step))}}

    writer = CheckpointWriter(lambda progress, state: checkpoint.save(disk, progress, state, keep=2))
    for step in (1, 2):
        writer.put(Progress(step), large(step))
    with pytest.raises(NoSpaceError, match=r"MB and .* files are free"):
        writer.wait()
    progress, state_parts = restored(disk)
    assert progress.step == 1
    assert same(state_parts, large(1))
    assert sorted(path.name for path in disk.iterdir()) == ["latest.json", "step-000000001"]


SAVING = """
import os, random, signal, sys, time
import torch
from pathlib import Path
from eopipe.checkpoints import checkpoint
from eopipe.checkpoints.checkpoint import Progress
folder, draw = Path(sys.argv[1]), random.Random(4)

def save(first, count):
    for step in range(first, first + count):
        weights, moments = torch.full((200_000,), float(step)), torch.full((400_000,), float(step))
        checkpoint.save(folder, Progress(step), {"model": {"a": weights}, "optimiser": {"0.m": moments}}, keep=2)

# A fork would wait for ever for the threads of its parent.
torch.set_num_threads(1)
started = time.monotonic()
save(1, 3)
lasts, last, cut = (time.monotonic() - started) / 3, 3, 0
for _ in range(50):
    pid = os.fork()
    if not pid:
        save(last + 1, 10_000)
    time.sleep(draw.uniform(0, 3 * lasts))
    newest = max(int(path.name[5:]) for path in checkpoint.steps(folder))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    cut += any(folder.glob(".step-*"))
    progress, parts = checkpoint.restore(folder)
    values = {value for part in parts.values() for tensor in part.values() for value in tensor.unique().tolist()}
    assert values == {float(progress.step)}, "it is mixed of several steps"
    assert progress.step >= max(last, newest), "it is older than one that was there"
    last = progress.step
print(last, cut)
"""


@pytest.mark.exhaustive
def test_t07_saves_killed_at_fifty_random_moments_leave_the_newest_checkpoint_whole(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", SAVING, str(tmp_path / "state")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    last, cut = map(int, done.stdout.split())
    # Some saves came to their end, others were cut in the middle.
    assert last > 3
    assert cut > 0
