"""Processes that read chips change no byte of a model, and one that is killed or hangs costs no training."""

import os
import signal
import time
from pathlib import Path

import pytest
from trainings import Training, payload, workers

pytestmark = pytest.mark.launch
READERS = ("--workers", "1", "--timeout-s", "40")


def readers(folder: Path) -> list[int]:
    """The processes that read chips for the workers of a training."""
    worker_pids, reader_pids = set(workers(folder)), []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, parent = (path / "cmdline").read_bytes(), (path / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"eopipe.loader.worker_main" in command and int(parent) in worker_pids:
            reader_pids.append(int(path.name))
    return reader_pids


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, "a data-loader worker was killed by signal 9"),
        (signal.SIGSTOP, "a data-loader worker has been stuck for 20 s at "),
    ],
)
def test_t19_a_lost_or_stuck_reader_is_started_again_and_the_model_is_that_of_a_training_without_readers(
    training: Training, undisturbed: dict[str, bytes], number: int, message: str
) -> None:
    process = training.start(*READERS)
    deadline = time.monotonic() + 120
    # One for each of two workers; they start with the first batch.
    while len(pids := readers(training.folder)) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(pids) == 2
    os.kill(pids[0], number)
    _, log = process.communicate(timeout=240)
    assert process.returncode == 0, log
    assert message in log
    assert payload(training.model) == undisturbed
    assert not readers(training.folder)


@pytest.mark.exhaustive
def test_a_training_ends_the_same_in_a_temporary_folder_whose_path_is_too_long_for_a_socket(
    training: Training, undisturbed: dict[str, bytes]
) -> None:
    # As Toil gives its jobs under --workDir: 107 letters is what a socket may have.
    temporary_folder = training.folder / ("t" * 120) / ("u" * 120)
    temporary_folder.mkdir(parents=True)
    completed = training.run(*READERS, TMPDIR=str(temporary_folder))
    assert completed.returncode == 0, completed.stderr
    assert payload(training.model) == undisturbed
