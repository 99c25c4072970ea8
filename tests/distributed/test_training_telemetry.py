"""What a training tells through torchrun: every step once, whatever happened to it, and where the time went."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainings import Training, payload, workers

from eopipe.telemetry.follow import GAUGES
from eopipe.telemetry.journal import missing_steps, read_journal


def steps_of(history: dict[str, bytes]) -> int:
    return max(json.loads(line)["step"] for line in history["metrics.jsonl"].splitlines())


def test_the_payload_has_every_step_once_and_no_clock(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(undisturbed["metrics.jsonl"])
    events = read_journal(tmp_path / "metrics.jsonl")
    assert missing_steps(events, steps_of(undisturbed)) == []
    assert {event["event"] for event in events} == {"step", "validation"}
    assert not any("time" in event for event in events)
    validations = json.loads(undisturbed["history.json"])["validations"]
    assert [event["val"] for event in events if event["event"] == "validation"] == [row["val"] for row in validations]
    first = [event["loss"] for event in events if event["event"] == "step"][: steps_of(undisturbed) // 3]
    assert sum(first) / len(first) == pytest.approx(validations[0]["loss"], abs=1e-5)


def followers(folder: Path) -> list[int]:
    """The processes that follow a training."""
    line = b"-m\0eopipe\0follow"
    return [pid for pid in workers(folder) if line in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.exhaustive
def test_killed_between_checkpoints_and_followed_by_all_trackers_it_ends_with_the_same_lines(
    training: Training, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = ("--track", "prometheus", "mlflow", "tensorboard", "--tell-every-s", "0.05", "--profile")
    process = training.start(*watched)
    training.wait_for_step(6, process)
    for pid in workers(training.folder):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    again = training.run(*watched)
    assert again.returncode == 0, again.stderr
    # Neither looking at it nor killing it changes the model by a bit.
    assert payload(training.model) == undisturbed
    assert not followers(training.folder)
    assert "event=progress step=" in again.stderr
    assert "data_wait=" in again.stderr
    assert re.search(r"\bevent=device name=(cpu|cuda) memory_mb=[1-9]\d*$", again.stderr, re.MULTILINE)
    for word in ("data", "forward", "backward", "communication", "optimiser", "validation", "checkpoint", "all"):
        assert f"\n{word} " in again.stderr.partition("where the time")[2], word
    assert "tracker_off" not in again.stderr
    assert "previews_off" not in again.stderr
    steps, views = steps_of(undisturbed), training.folder / "model.views"

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = MlflowClient((views / "mlruns").as_uri())
    (recorded,) = client.search_runs([client.get_experiment_by_name("eopipe train").experiment_id])
    history = client.get_metric_history(recorded.info.run_id, "loss")
    assert [metric.step for metric in history] == list(range(1, steps + 1))
    assert (recorded.info.status, recorded.data.params["width"]) == ("FINISHED", "8")
    assert len(client.list_artifacts(recorded.info.run_id, "predictions")) == 3

    scraped = dict(line.split() for line in (views / "eopipe.prom").read_text().splitlines() if line[0] != "#")
    assert {name.partition("{")[0].removeprefix("eopipe_train_") for name in scraped} == set(GAUGES)
    assert [float(v) for k, v in scraped.items() if k.startswith("eopipe_train_step{")] == [steps]

    board = EventAccumulator(str(next((views / "tensorboard").iterdir())))
    board.Reload()
    assert [event.step for event in board.Scalars("loss")] == list(range(1, steps + 1))
    assert len(board.Images("predictions")) == 3
    trace = json.loads((views / "trace.json").read_text())["traceEvents"]
    assert any("convolution" in str(event.get("name")) for event in trace)
    assert "collectives: " in (views / "operators.txt").read_text()


@pytest.mark.exhaustive
def test_a_follower_that_is_killed_or_cannot_write_ends_no_training(
    training: Training, undisturbed: dict[str, bytes]
) -> None:
    process = training.start("--track", "prometheus")
    deadline = time.monotonic() + 60
    while not (follower_pids := followers(training.folder)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(follower_pids[0], signal.SIGKILL)
    stderr = process.communicate()[1]
    assert process.returncode == 0, stderr
    assert payload(training.model) == undisturbed
    assert stderr.count("event=tracker_off tracker=all reason='killed by signal 9'") == 1
    # As on a disk that is full: a folder cannot be made where a file is.
    shutil.rmtree(training.model)
    shutil.rmtree(training.folder / "model.views", ignore_errors=True)
    (training.folder / "model.views").write_text("a file in place of the folder")
    completed = training.run("--track", "prometheus", "mlflow")
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr.count("event=tracker_off") == 2
    assert payload(training.model) == undisturbed


@pytest.mark.exhaustive
def test_a_tracker_whose_library_is_missing_costs_one_warning_that_names_the_extra(
    training: Training, undisturbed: dict[str, bytes]
) -> None:
    (training.folder / "mlflow.py").write_text("raise ModuleNotFoundError(\"No module named 'mlflow'\")\n")
    completed = training.run("--track", "mlflow", "prometheus", PYTHONPATH=str(training.folder))
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr.count("tracker_off") == 1
    assert "pip install 'eopipe[mlflow]'" in completed.stderr
    assert (training.folder / "model.views/eopipe.prom").is_file()
    assert payload(training.model) == undisturbed
