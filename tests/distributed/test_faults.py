"""What befalls a training from outside: killed and stopped workers, signals to the agent, a full disk, lost readers."""

import os
import signal
import time
from pathlib import Path

import pytest
from trainings import Training, agent, payload, ranks

from eopipe.launching.failures import noted


def test_a_killed_worker_is_started_again_within_fifteen_seconds_and_nothing_changes(
    training: Training, undisturbed: dict[str, bytes]
) -> None:
    process = training.start()
    training.wait_for_step(9, process)
    before = training.newest()
    os.kill(ranks(training.folder)[-1], signal.SIGKILL)
    sent = time.monotonic()
    _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert time.monotonic() - sent < 60
    resumed = [int(line.partition("step=")[2]) for line in told.splitlines() if line.startswith("event=resume")]
    assert len(resumed) == 1
    assert resumed[0] >= before, "no more than what came after the newest checkpoint is lost"
    assert payload(training.model) == undisturbed


@pytest.mark.parametrize(
    ("number", "code", "whole"), [(signal.SIGTERM, 75, False), (signal.SIGUSR1, 75, True), (signal.SIGINT, 130, False)]
)
def test_a_signal_to_the_agent_or_to_all_saves_the_state_even_when_it_comes_twice(
    training: Training, number: int, code: int, whole: bool
) -> None:
    process = training.start()
    training.wait_for_step(3, process)
    sent = time.monotonic()
    for _ in range(2):
        if whole:
            os.killpg(process.pid, number)
        else:
            os.kill(agent(training.folder), number)
        time.sleep(0.2)
    _, told = process.communicate(timeout=60)
    assert process.returncode == code, told
    assert time.monotonic() - sent < 25
    failure = noted(next(training.state.glob("*/status.json")))
    assert failure is not None
    assert (failure.kind, failure.code, failure.step) == ("pre-empted", 75, training.newest())


def test_no_worker_outlives_a_killed_agent(training: Training) -> None:
    process = training.start()
    training.wait_for_step(3, process)
    os.kill(agent(training.folder), signal.SIGKILL)
    until = time.monotonic() + 5
    while ranks(training.folder) and time.monotonic() < until:
        time.sleep(0.05)
    assert ranks(training.folder) == []
    _, told = process.communicate(timeout=60)
    assert process.returncode == 75, told


def test_a_hung_worker_is_noticed_and_the_training_goes_on(training: Training, undisturbed: dict[str, bytes]) -> None:
    process = training.start("--timeout-s", "15")
    training.wait_for_step(6, process)
    os.kill(ranks(training.folder)[-1], signal.SIGSTOP)
    _, told = process.communicate(timeout=150)
    assert process.returncode == 0, told
    assert "kind=hung" in told
    assert payload(training.model) == undisturbed


def test_what_cannot_be_healed_is_not_tried_again(training: Training, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from torch import nn\n"
        "from eopipe.errors import BadInputError\n"
        "class Broken(nn.Conv2d):\n"
        "    def __init__(self, bands, classes, width, depth):\n"
        "        super().__init__(bands, classes, 1)\n"
        "    def forward(self, x):\n"
        "        raise BadInputError('tile 7 is empty; fetch it again')\n"
    )
    paths = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    done = training.run("--architecture", "broken:Broken", PYTHONPATH=paths)
    assert done.returncode == 3, done.stderr
    assert done.stderr.rstrip().endswith("error: tile 7 is empty; fetch it again")
    assert "attempt" not in done.stderr
    failure = noted(next(training.state.glob("*/status.json")))
    assert failure is not None
    assert (failure.kind, failure.attempt, failure.final) == ("data", 0, True)
