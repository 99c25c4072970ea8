"""What befalls a training from outside: killed and stopped workers, signals, failures for good."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from patience import PATIENCE
from trainings import STOPPED_WITHIN_S, Training, payload, ranks

from eopipe.launch.failures import read_failure
from eopipe.launch.torchrun import STOP_WITHIN_S
from eopipe.telemetry.journal import read_journal

pytestmark = pytest.mark.launch
KILLS, AGAIN_WITHIN_S = 3, 15


def first_step_after(training: Training, moment: float) -> float:
    """When the journal noted the first step that workers took which started after a moment (seconds since 1970)."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        events = [event for path in training.state.glob("*/metrics.jsonl") for event in read_journal(path)]
        at = next((n for n, event in enumerate(events) if event["event"] == "resume" and event["time"] > moment), None)
        times = [event["time"] for event in events[at:] if event["event"] == "step"] if at is not None else []
        if times:
            return min(times)
        time.sleep(0.02)
    raise TimeoutError("no step was taken")


@pytest.mark.exhaustive
def test_t01_a_worker_killed_again_and_again_takes_its_next_step_within_fifteen_seconds_and_nothing_changes(
    training: Training, undisturbed: dict[str, bytes]
) -> None:
    draw, before, started = random.Random(5), [], time.time()
    process = training.start("--checkpoint-every", "1")
    training.wait_for_step(1, process)
    # On a machine that is busy with other things, no longer than a start takes there.
    bound = max(AGAIN_WITHIN_S, time.time() - started)
    for _ in range(KILLS):
        training.wait_for_step(training.newest() + draw.randint(1, 4), process)
        before.append(training.newest())
        sent = time.time()
        os.kill(draw.choice(ranks(training.folder)), signal.SIGKILL)
        assert first_step_after(training, sent) - sent < bound
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, log
    resumed = [int(line.partition("step=")[2]) for line in log.splitlines() if " event=resume " in line]
    assert len(resumed) == KILLS
    # No more than what came after the newest checkpoint is lost.
    assert all(now >= then for now, then in zip(resumed, before, strict=True))
    assert payload(training.model) == undisturbed


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "code", "to_process_group"),
    [(signal.SIGTERM, 75, False), (signal.SIGUSR1, 75, True), (signal.SIGINT, 130, False)],
)
def test_a_signal_to_the_command_or_to_all_saves_the_state_even_when_it_comes_again_and_again(
    training: Training, number: int, code: int, to_process_group: bool
) -> None:
    started = time.monotonic()
    process = training.start()
    training.wait_for_step(3, process)
    sent = time.monotonic()
    while process.poll() is None and time.monotonic() - sent < PATIENCE:
        if to_process_group:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
        time.sleep(0.05)
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, log
    assert time.monotonic() - sent < max(STOPPED_WITHIN_S, sent - started)
    failure = read_failure(next(training.state.glob("*/status.json")))
    assert failure is not None
    assert (failure.kind, failure.code, failure.step) == ("pre-empted", 75, training.newest())


SILENT_S = 15


@pytest.mark.exhaustive
def test_t06_a_hung_worker_is_noticed_in_time_and_the_training_goes_on(
    training: Training, undisturbed: dict[str, bytes]
) -> None:
    started = time.monotonic()
    process = training.start("--timeout-s", str(SILENT_S))
    training.wait_for_step(3, process)
    # The others notice it in their next step, which takes no longer than a start with three steps.
    three_steps_s = time.monotonic() - started
    hung = ranks(training.folder)[-1]
    os.kill(hung, signal.SIGSTOP)
    sent, bound = time.monotonic(), SILENT_S + STOP_WITHIN_S + 10 + three_steps_s
    while hung in ranks(training.folder) and time.monotonic() < sent + 2 * bound:
        time.sleep(0.1)
    noticed = time.monotonic() - sent
    _, log = process.communicate(timeout=PATIENCE)
    assert noticed < bound
    assert process.returncode == 0, log
    assert "kind=hung" in log
    assert payload(training.model) == undisturbed


@pytest.mark.exhaustive
def test_what_cannot_be_healed_is_not_tried_again(training: Training, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from torch import nn\n"
        "from eopipe.errors import BadInputError\n"
        "class Broken(nn.Conv2d):\n"
        "    def __init__(self, bands, classes, width, depth):\n"
        "        super().__init__(bands, classes, 1)\n"
        "    def forward(self, x):\n"
        "        if self.training:\n"
        "            raise BadInputError('tile 7 is empty; fetch it again')\n"
        "        return super().forward(x)\n"
    )
    paths = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    completed = training.run("--architecture", "broken:Broken", PYTHONPATH=paths)
    assert completed.returncode == 3, completed.stderr
    assert completed.stderr.rstrip().endswith("error: tile 7 is empty; fetch it again")
    assert "attempt" not in completed.stderr
    failure = read_failure(next(training.state.glob("*/status.json")))
    assert failure is not None
    assert (failure.kind, failure.attempt, failure.final) == ("data", 0, True)
