"""No room for a checkpoint: the training stops, what was saved stays, and with room it ends with the same bytes."""

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from trainings import Data, Training, payload, ranks

from eopipe.checkpoints.checkpoint import restore
from eopipe.launch.failures import read_failure

ALONE = ("--epochs", "1", "--processes", "1", "--width", "8", "--checkpoint-every", "1")


@pytest.fixture(scope="module")
def calm(data: Data, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a model that was trained with enough room."""
    training = Training(data, tmp_path_factory.mktemp("calm"), ALONE)
    completed = training.run()
    assert completed.returncode == 0, completed.stderr
    return payload(training.model)


@pytest.fixture(scope="module")
def stopped(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A training whose worker may write no larger files from its third step on (`ulimit -f`; it needs no root)."""
    training = Training(data, tmp_path_factory.mktemp("stopped"), ALONE, cold_start=True)
    process = training.start()
    training.wait_for_step(3, process)
    for pid in ranks(training.folder):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
    _, log = process.communicate(timeout=120)
    assert process.returncode == 6, log
    assert "no space left while writing step-" in log.splitlines()[-1]
    return training


def copy(stopped: Training, folder: Path) -> Training:
    shutil.copytree(stopped.state, folder / "state")
    return Training(stopped.data, folder, stopped.settings)


@pytest.mark.exhaustive
def test_t08_a_training_without_room_keeps_its_checkpoint_and_ends_with_the_same_bytes(
    stopped: Training, calm: dict[str, bytes], tmp_path: Path
) -> None:
    (state,) = stopped.state.iterdir()
    restored, failure = restore(state), read_failure(state / "status.json")
    assert restored is not None
    assert failure is not None
    assert (failure.kind, failure.attempt, failure.final) == ("full", 0, True)
    assert 3 <= restored[0].step <= failure.step
    assert not list(state.glob(".step-*")), "nothing is left half written"
    again = copy(stopped, tmp_path)
    completed = again.run()
    assert completed.returncode == 0, completed.stderr
    assert f"event=resume step={restored[0].step}" in completed.stderr
    assert payload(again.model) == calm


@pytest.mark.exhaustive
def test_t08_a_disk_that_fills_up_is_told_and_made_room_on(
    data: Data, small_disk: Callable[[str], Path], calm: dict[str, bytes], tmp_path: Path
) -> None:
    disk, training = small_disk("size=3m"), Training(data, tmp_path, ALONE)
    training.state.symlink_to(disk)
    process = training.start()
    training.wait_for_step(2, process)
    filler, block = disk / "other", bytes(100_000)
    with filler.open("wb", buffering=0) as file:
        while process.poll() is None:
            try:
                file.write(block)
            except OSError:
                break
    _, log = process.communicate(timeout=120)
    assert process.returncode == 6, log
    assert "no space left while writing" in log.splitlines()[-1]
    (state,) = (path.parent for path in training.state.glob("*/job.json"))
    restored = restore(state)
    assert restored is not None
    assert restored[0].step >= 2
    filler.unlink()
    completed = training.run()
    assert completed.returncode == 0, completed.stderr
    assert "event=resume" in completed.stderr
    assert payload(training.model) == calm


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda identity: identity["settings"].update(seed=5), "settings.seed is 0 here and 5 there"),
        (lambda identity: identity["data"].update(chips="ab"), "data.chips is "),
        (lambda identity: identity["tensors"].update(more=[1]), "tensors.more is None here and [1] there"),
    ],
    ids=["settings", "data", "model"],
)
def test_t18_the_state_of_another_training_is_refused_with_the_difference(
    stopped: Training, tmp_path: Path, change: Callable[[dict[str, dict[str, object]]], None], message: str
) -> None:
    other = copy(stopped, tmp_path)
    (path,) = other.state.glob("*/identity.json")
    identity = json.loads(path.read_text())
    change(identity)
    path.write_text(json.dumps(identity))
    completed = other.run()
    assert completed.returncode == 3, completed.stderr
    assert f"is the state of another training: {message}" in completed.stderr.splitlines()[-1]
    assert "torch.distributed" not in completed.stderr
    assert json.loads(path.read_text()) == identity
