"""Training through torchrun: two gloo processes, interrupted in every way, always the same weights."""

import json
import os
import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import torch
from patience import PATIENCE
from trainings import STOPPED_WITHIN_S, Data, Training, payload, workers

from eopipe import publish
from eopipe.launch.failures import read_failure
from eopipe.loader.loader import ChipLoader
from eopipe.models.model_folder import read_model_card
from eopipe.tiles.store import Tiles
from eopipe.training import data as training_data
from eopipe.training.data import TrainingData, TrainingInputs
from eopipe.training_job import Knobs, Settings, read_job


def test_training_learns_and_writes_no_pickle(undisturbed: dict[str, bytes]) -> None:
    assert sorted(undisturbed) == ["history.json", "manifest.json", "metrics.jsonl", "model.json", "model.safetensors"]
    validations = json.loads(undisturbed["history.json"])["validations"]
    steps = [row["step"] for row in validations]
    assert steps == [steps[0], 2 * steps[0], 3 * steps[0]], "one at the end of each epoch"
    assert validations[-1]["loss"] < 0.8 * validations[0]["loss"]
    assert validations[-1]["val"]["accuracy"] > 0.85


def test_each_input_is_opened_and_digested_once_by_the_launcher_and_opened_once_by_a_worker(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, digested = Counter[str](), Counter[str]()

    def open_store(store: Tiles, path: Path) -> None:
        opened[path.name] += 1
        original(store, path)

    def digest(path: Path) -> str:
        digested[path.name] += 1
        return publish.digest(path)

    original = Tiles.__init__
    monkeypatch.setattr(Tiles, "__init__", open_store)
    monkeypatch.setattr(training_data, "digest", digest)
    tiles = tuple(map(Path, data.tiles))
    inputs = TrainingInputs(tiles, (data.root / "all.zarr",), data.root / "split.json", data.root / "statistics.json")
    stores = {path.name for path in (*inputs.tiles, *inputs.labels)}
    training = TrainingData.open(inputs)
    job = training.job(Settings(), Knobs(device="cpu"), tmp_path, tmp_path / "views")
    assert training.identity(job)["data"]["tiles"].keys() == {path.name for path in tiles}
    assert training.extent.bbox
    assert opened == dict.fromkeys(stores, 1)
    assert digested == dict.fromkeys({*stores, "split.json", "statistics.json"}, 1)
    opened.clear()
    job.write(tmp_path / "job.json")
    with closing(ChipLoader(read_job(tmp_path / "job.json"), torch.device("cpu"))):
        assert opened == dict.fromkeys(stores, 1)


@pytest.mark.launch
def test_killed_with_everything_and_run_again_it_ends_with_the_same_bytes(
    training: Training, undisturbed: dict[str, bytes]
) -> None:
    process = training.start()
    training.wait_for_step(6, process)
    for pid in workers(training.folder):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert not training.model.exists()
    again = training.run()
    assert again.returncode == 0, again.stderr
    assert "event=resume" in again.stderr
    assert payload(training.model) == undisturbed


# That each signal is heard, tests/unit/test_train_step.py shows with each change.
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 75),
        pytest.param(signal.SIGUSR1, 75, marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.exhaustive),
    ],
)
def test_a_signal_saves_the_state_and_the_rerun_ends_with_the_same_bytes(
    training: Training, undisturbed: dict[str, bytes], number: int, code: int
) -> None:
    # So that none is due by chance when the signal comes: without it only better scores have a checkpoint.
    started = time.monotonic()
    process = training.start("--checkpoint-every", "1000")
    training.wait_for_step(1, process)
    before = training.newest()
    sent = time.monotonic()
    process.send_signal(number)
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, log
    # On a machine that is busy with other things, no longer than a start takes there.
    assert time.monotonic() - sent < max(STOPPED_WITHIN_S, sent - started)
    failure = read_failure(next(training.state.glob("*/status.json")))
    assert failure is not None
    assert (failure.kind, failure.code, failure.step) == ("pre-empted", 75, training.newest())
    assert training.newest() > before, "no step is lost"
    assert not training.model.exists()
    again = training.run()
    assert again.returncode == 0, again.stderr
    assert "event=resume" in again.stderr
    assert payload(training.model) == undisturbed


@pytest.mark.launch
def test_no_worker_outlives_a_killed_command(training: Training) -> None:
    process = training.start()
    training.wait_for_step(3, process)
    assert len(workers(training.folder)) >= 3
    process.kill()
    process.communicate()
    deadline = time.monotonic() + PATIENCE
    while workers(training.folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers(training.folder) == []


@pytest.mark.launch
@pytest.mark.exhaustive
def test_two_trainings_never_share_a_state(training: Training) -> None:
    # Long enough that the first still runs when the second has started.
    process = training.start("--epochs", "200")
    training.wait_for_step(3, process)
    second = training.run("--epochs", "200")
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert second.returncode == 2
    assert f"already running (process {process.pid} on " in second.stderr
    assert process.returncode == 75, "the first one was not disturbed"


@pytest.mark.exhaustive
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    training: Training, undisturbed: dict[str, bytes]
) -> None:
    process = training.start()
    training.wait_for_step(9, process)
    process.kill()
    process.communicate()
    newest = sorted(training.state.glob("*/step-*/model.safetensors"))[-1]
    flipped = bytearray(newest.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    newest.write_bytes(flipped)
    again = training.run()
    assert again.returncode == 0, again.stderr
    assert "event=checkpoint_damaged" in again.stderr
    assert payload(training.model) == undisturbed


def test_other_settings_never_resume_a_state(training: Training) -> None:
    process = training.start()
    training.wait_for_step(3, process)
    process.kill()
    process.communicate()
    other = training.run("--seed", "1")
    assert other.returncode == 0, other.stderr
    assert "event=resume" not in other.stderr


def test_a_loss_that_is_not_finite_ends_with_code_7_and_no_model(training: Training) -> None:
    completed = training.run("--learning-rate", "1e30", "--processes", "1")
    assert completed.returncode == 7, completed.stderr
    assert "lower train.learning_rate, or check the chips S2_ROMANIA_" in completed.stderr
    assert not training.model.exists()


def test_chips_that_the_model_cannot_halve_are_refused_before_torchrun(training: Training) -> None:
    completed = training.run("--depth", "5")
    assert completed.returncode == 2
    assert "choose split.chip as a multiple of 32" in completed.stderr
    assert "torch.distributed" not in completed.stderr


def test_a_split_of_other_scenes_is_refused(training: Training) -> None:
    training.data.tiles.pop()
    try:
        completed = training.run()
    finally:
        training.data.tiles.append(str(training.data.root / "tiles" / "S2_ROMANIA_20191009.zarr"))
    assert completed.returncode == 3
    assert "these differ: S2_ROMANIA_20191009" in completed.stderr


def test_a_model_of_ones_own_is_trained_by_its_name(training: Training, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "class Pixel(nn.Conv2d):\n"
        "    def __init__(self, bands, classes, width, depth):\n"
        "        super().__init__(bands, classes, 1)\n"
    )
    os.environ["PYTHONPATH"] = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    try:
        completed = training.run("--architecture", "mine:Pixel", "--epochs", "1")
    finally:
        os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(":")[2]
    assert completed.returncode == 0, completed.stderr
    assert read_model_card(training.model)["parameters"] == 10
