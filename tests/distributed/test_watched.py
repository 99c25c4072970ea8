"""What a training tells through torchrun: every step once, whatever happened to it, and where the time went."""

import json
import os
import re
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from trainings import Training, payload, workers

from eopipe.telemetry.journal import missing, read
from eopipe.telemetry.prometheus import GAUGES


def steps_of(history: dict[str, bytes]) -> int:
    return max(json.loads(line)["step"] for line in history["metrics.jsonl"].splitlines())


def test_the_payload_has_every_step_once_and_no_clock(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(undisturbed["metrics.jsonl"])
    events = read(tmp_path / "metrics.jsonl")
    assert missing(events, steps_of(undisturbed)) == []
    assert {event["event"] for event in events} == {"step", "epoch"}
    assert not any("time" in event for event in events)
    epochs = json.loads(undisturbed["history.json"])["epochs"]
    assert [event["val"] for event in events if event["event"] == "epoch"] == [row["val"] for row in epochs]
    first = [event["loss"] for event in events if event["event"] == "step"][: steps_of(undisturbed) // 3]
    assert sum(first) / len(first) == pytest.approx(epochs[0]["loss"], abs=1e-5)


def test_killed_between_checkpoints_and_watched_by_all_trackers_it_ends_with_the_same_lines(
    training: Training, undisturbed: dict[str, bytes]
) -> None:
    more = ["tensorboard"] if find_spec("tensorboard") else []
    watched = ("--track", "prometheus", "mlflow", *more, "--tell-every-s", "0.05", "--profile")
    process = training.start(*watched)
    training.wait_for_step(6, process)
    for pid in workers(training.folder):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    again = training.run(*watched)
    assert again.returncode == 0, again.stderr
    # Neither looking at it nor killing it changes the model by a bit.
    assert payload(training.model) == undisturbed
    assert "event=progress step=" in again.stderr
    assert "data_wait=" in again.stderr
    assert re.search(r"^event=device name=(cpu|cuda) memory_mb=[1-9]\d*$", again.stderr, re.MULTILINE)
    for word in ("data", "forward", "backward", "communication", "optimiser", "validation", "checkpoint", "all"):
        assert f"\n{word} " in again.stderr.partition("where the time")[2], word
    steps, views = steps_of(undisturbed), training.folder / "model.views"
    losses = next(views.glob("mlruns/0/*/metrics/loss")).read_text().splitlines()
    assert [int(line.split()[2]) for line in losses] == list(range(1, steps + 1))
    scraped = dict(line.split() for line in (views / "eopipe.prom").read_text().splitlines() if line[0] != "#")
    assert {name.partition("{")[0].removeprefix("eopipe_train_") for name in scraped} <= set(GAUGES)
    assert [float(v) for k, v in scraped.items() if k.startswith("eopipe_train_step{")] == [steps]
    if more:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        board = EventAccumulator(str(views / "tensorboard"))
        board.Reload()
        assert [event.step for event in board.Scalars("loss")] == list(range(1, steps + 1))
        assert len(board.Images("predictions")) == 3
    assert "tracker-off" not in again.stderr
    trace = json.loads((views / "trace.json").read_text())["traceEvents"]
    assert any("convolution" in str(event.get("name")) for event in trace)
    assert "collectives: " in (views / "operators.txt").read_text()


def test_a_tracker_that_cannot_write_ends_no_training(training: Training, undisturbed: dict[str, bytes]) -> None:
    (training.folder / "model.views").write_text("a file where a folder is wanted")
    done = training.run("--track", "prometheus", "mlflow")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("event=tracker-off") == 2
    assert payload(training.model) == undisturbed
