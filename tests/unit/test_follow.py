"""`eopipe follow`: the journal of a training in the real TensorBoard, MLflow and Prometheus libraries."""

import json
import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from mlflow import MlflowClient
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from scenery import Run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from eopipe.telemetry import follow
from eopipe.telemetry.follow import TRACKERS, follow_run, follower
from eopipe.telemetry.journal import FollowedRun, Journal, find_run, published_lines
from eopipe.training_job import JOB

NAME = "f00dcafe12345678"
OPTIONS = {"epochs": 3, "batch": 8, "augment": ["none"], "deterministic": False}
JOB_VALUES = {"settings": OPTIONS, "loss_weights": [], "target": []}
SETTINGS = OPTIONS | {"weights": [], "target": []}


@pytest.fixture(autouse=True)
def local_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of a training, with nothing but its description."""
    folder = tmp_path / ".model.state" / NAME
    folder.mkdir(parents=True)
    (folder / JOB).write_text(json.dumps(JOB_VALUES | {"views": str(tmp_path / "model.views")}))
    return folder


@pytest.fixture
def views(tmp_path: Path) -> Path:
    return tmp_path / "model.views"


def train(state: Path, begin: int, end: int, *, is_done: bool = False, factor: float = 1.0) -> None:
    """The journal of the steps after `begin` up to `end`, a validation after each third."""
    journal = Journal(state, begin)
    if begin:
        journal.add("resume", begin)
    for step in range(begin + 1, end + 1):
        journal.add("step", step, loss=factor / step, learning_rate=0.1, gradient_norm=float("inf"))
        if step % 3 == 0:
            journal.add("progress", step, samples_per_second=80.0, data_wait_ratio=0.25, memory_bytes=1000)
            journal.add("validation", step, loss=9.0, val={"miou": step / 10, "f1": None})
    if is_done:
        journal.add("end", end)
    journal.close()


def draw(state: Path, step: int) -> bytes:
    """A picture of the validation chips."""
    file = BytesIO()
    Image.new("RGB", (6, 4), (step, 0, 0)).save(file, "PNG")
    (state / "predictions").mkdir(exist_ok=True)
    (state / f"predictions/step-{step:09d}.png").write_bytes(file.getvalue())
    return file.getvalue()


def events(views: Path) -> EventAccumulator:
    (folder,) = (views / "tensorboard").iterdir()
    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


def losses(views: Path) -> list[tuple[int, float]]:
    return [(event.step, round(event.value, 4)) for event in events(views).Scalars("loss")]


def mlflow_run(views: Path) -> tuple[MlflowClient, Any]:
    client = MlflowClient((views / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("eopipe train").experiment_id])
    return client, run


def mlflow_losses(views: Path) -> list[tuple[int, float]]:
    client, run = mlflow_run(views)
    return [(metric.step, round(metric.value, 4)) for metric in client.get_metric_history(run.info.run_id, "loss")]


def follow_once(state: Path) -> bool:
    return follow_run(find_run(state, None), TRACKERS, Event(), once=True)


def gauges(views: Path) -> dict[str, float]:
    file = views / "eopipe.prom"
    families = text_string_to_metric_families(file.read_text() if file.exists() else "")
    return {sample.name: sample.value for family in families for sample in family.samples}


@contextmanager
def following(state: Path, *names: str) -> Iterator[Event]:
    """Follow a training in another thread until the block ends."""
    stop, run = Event(), find_run(state, None)
    thread = Thread(target=follow_run, args=(run, names, stop))
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_finished_training_is_in_all_trackers_with_settings_and_pictures(state: Path, views: Path, run: Run) -> None:
    began = time.time()
    train(state, 0, 6, is_done=True)
    png = draw(state, 6)
    assert run("follow", state, "--to", *TRACKERS, "--once").ends(0).stderr == ""

    board = events(views)
    assert losses(views) == mlflow_losses(views) == [(step, round(1 / step, 4)) for step in range(1, 7)]
    assert [event.value for event in board.Scalars("val/miou")] == pytest.approx([0.3, 0.6])
    # The journal rounds to milliseconds.
    assert began - 0.001 <= board.Scalars("loss")[0].wall_time <= time.time() + 0.001
    (picture,) = board.Images("predictions")
    assert (picture.encoded_image_string, picture.step, picture.width, picture.height) == (png, 6, 6, 4)
    assert {"_hparams_/session_start_info", "_hparams_/experiment"} <= set(board.summary_metadata)

    client, recorded = mlflow_run(views)
    history = client.get_metric_history(recorded.info.run_id, "loss")
    assert began - 0.002 <= history[0].timestamp / 1000 <= time.time() + 0.001
    assert recorded.data.params == {name: str(value) for name, value in SETTINGS.items()}
    assert (recorded.info.status, recorded.info.run_name) == ("FINISHED", "train-f00dcafe")
    (file,) = client.list_artifacts(recorded.info.run_id, "predictions")
    assert file.path == "predictions/step-000000006.png"

    # A gradient norm that is not finite is in no tracker, nor is a score without a value.
    expected = {"step": 6.0, "loss": pytest.approx(1 / 6), "learning_rate": 0.1, "samples_per_second": 80.0}
    expected |= {"data_wait_ratio": 0.25, "memory_bytes": 1000.0, "val_miou": 0.6}
    assert gauges(views) == {f"eopipe_train_{name}": value for name, value in expected.items()}
    text = (views / "eopipe.prom").read_text()
    assert "# HELP eopipe_train_loss mean loss of the last step\n" in text
    assert f'{{run="{NAME}"}}' in text


def test_a_published_model_can_be_followed_afterwards_and_twice_gives_the_same(tmp_path: Path, state: Path) -> None:
    train(state, 0, 4, is_done=True)
    model, views = tmp_path / "forest", tmp_path / "shown"
    model.mkdir()
    (model / "metrics.jsonl").write_bytes(published_lines(state / "metrics.jsonl"))
    item = {"properties": {"mlm:hyperparameters": SETTINGS | {"model": {"width": 8}}}}
    (model / "model.json").write_text(json.dumps(item))
    training = find_run(model, None)
    assert (training.views, training.settings, training.is_finished) == (tmp_path / "forest.views", SETTINGS, True)
    for _ in range(2):
        # Without a request to stop, since nothing is added to a model.
        assert follow_run(find_run(model, views), ("tensorboard", "mlflow"), Event())
    assert losses(views) == mlflow_losses(views) == [(1, 1.0), (2, 0.5), (3, 0.3333), (4, 0.25)]
    assert mlflow_run(views)[1].info.status == "FINISHED"


def test_lines_appear_while_they_are_written_and_a_torn_line_when_it_is_whole(state: Path, views: Path) -> None:
    with following(state, "prometheus", "tensorboard"):
        # The journal does not even exist at first.
        train(state, 0, 2)
        wait_for(lambda: gauges(views).get("eopipe_train_step") == 2)
        line = json.dumps({"event": "step", "step": 3, "loss": 0.25}).encode() + b"\n"
        with (state / "metrics.jsonl").open("ab", buffering=0) as file:
            file.write(b"{this line is broken}\n\x00\xff\n" + line[:9])
            time.sleep(1.5 * follow.POLL_S)
            assert gauges(views)["eopipe_train_step"] == 2
            file.write(line[9:])
        wait_for(lambda: gauges(views)["eopipe_train_step"] == 3)
    assert losses(views) == [(1, 1.0), (2, 0.5), (3, 0.25)]


def test_across_a_resume_each_step_is_shown_once_with_its_last_value(state: Path, views: Path) -> None:
    with following(state, "tensorboard", "mlflow", "prometheus"):
        train(state, 0, 5)
        draw(state, 3)
        wait_for(lambda: gauges(views).get("eopipe_train_step") == 5)
        _, before = mlflow_run(views)
        assert before.info.status == "RUNNING"
        # Two steps are repeated with other values, as on another number of processes.
        train(state, 3, 6, factor=2.0, is_done=True)
        wait_for(lambda: gauges(views)["eopipe_train_step"] == 6)
    repeated = [(1, 1.0), (2, 0.5), (3, 0.3333), (4, 0.5), (5, 0.4), (6, 0.3333)]
    assert losses(views) == repeated
    assert len(events(views).Images("predictions")) == 1
    _, after = mlflow_run(views)
    assert (after.info.run_id, after.info.status) == (before.info.run_id, "FINISHED")
    # MLflow deletes nothing: a value that has changed is added, and one that has not is not added again.
    assert [step for step, _ in mlflow_losses(views)] == [1, 2, 3, 4, 5, 4, 5, 6]
    assert dict(mlflow_losses(views)) == dict(repeated)


def test_a_second_follower_continues_the_run_of_the_first(state: Path, views: Path) -> None:
    for begin, end in ((0, 2), (2, 4)):
        train(state, begin, end, is_done=end == 4)
        assert follow_once(state)
    assert losses(views) == mlflow_losses(views) == [(1, 1.0), (2, 0.5), (3, 0.3333), (4, 0.25)]


def test_the_last_lines_are_read_when_the_training_removes_its_state(state: Path, views: Path) -> None:
    train(state, 0, 2)
    with following(state, "prometheus") as stop:
        wait_for((views / "eopipe.prom").exists)
        with (state / "metrics.jsonl").open("ab") as file:
            file.write(b'{"event": "step", "step": 3, "loss": 0.5}\n')
        for path in (state / "metrics.jsonl", state / JOB):
            path.unlink()
        state.rmdir()
        wait_for(lambda: gauges(views)["eopipe_train_step"] == 3)
        assert not stop.is_set()


def test_without_its_library_a_tracker_is_left_out_and_the_warning_names_the_extra(
    state: Path, views: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, run: Run
) -> None:
    train(state, 0, 2)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert run("follow", state, "--to", "mlflow", "--to", "prometheus", "--once").code == 0
    (record,) = caplog.records
    assert re.match(r"event=tracker_off tracker=mlflow reason=.*pip install 'eopipe\[mlflow\]'", record.message)
    assert gauges(views)["eopipe_train_step"] == 2
    run("follow", state, "--to", "mlflow", "--once").ends(2, "error: no tracker is left; the warnings above say why\n")


@pytest.mark.exhaustive
def test_trackers_on_a_full_disk_are_left_out_with_one_warning_each(state: Path) -> None:
    train(state, 0, 2)
    command = [sys.executable, "-m", "eopipe", "follow", str(state), "--to", *TRACKERS, "--once"]

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    completed = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=fill)
    assert completed.returncode == 2
    assert sorted(re.findall(r"event=tracker_off tracker=(\w+)", completed.stderr)) == sorted(TRACKERS)
    assert "Traceback" not in completed.stderr


def test_a_picture_that_is_not_one_leaves_out_only_the_tracker_that_looks_into_it(
    state: Path, views: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(state, 0, 2)
    draw(state, 2)
    (state / "predictions/step-000000002.png").write_bytes(b"short")
    assert follow_once(state)
    assert [record.message.split()[1] for record in caplog.records] == ["tracker=tensorboard"]
    assert mlflow_run(views)[1].data.metrics["loss"] == 0.5


@pytest.mark.parametrize("path", [".model.state", "model", f".model.state/{NAME}"])
def test_a_training_is_found_by_its_model_state_or_folder_of_states(state: Path, views: Path, path: str) -> None:
    older = state.parent / "0123456789abcdef"
    older.mkdir()
    (older / JOB).write_text(json.dumps(JOB_VALUES | {"settings": {}, "views": ""}))
    os.utime(older / JOB, (1, 1))
    assert find_run(state.parents[1] / path, None) == FollowedRun(state, NAME, SETTINGS, views)


def test_promtool_finds_no_mistake_in_the_file_for_the_textfile_collector(state: Path, views: Path, run: Run) -> None:
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed: make test-packages installs it")
    train(state, 0, 3, is_done=True)
    assert run("follow", state, "--to", "prometheus", "--once").code == 0
    text = (views / "eopipe.prom").read_text()
    check = {"args": [promtool, "check", "metrics"], "capture_output": True, "text": True}
    for content, code in ((text, 0), (text.replace(" gauge", " gouge"), 1)):
        done = subprocess.run(**check, input=content, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert bool(done.stdout + done.stderr) == (code == 1)


def test_what_is_not_a_training_is_refused(tmp_path: Path, run: Run) -> None:
    names = ("job.json", "model.json", "metrics.jsonl")
    run("follow", tmp_path / "nothing", "--to", "prometheus").ends(3, f"{tmp_path}/nothing is not a training", *names)


def started(state: Path, *arguments: str) -> "subprocess.Popen[str]":
    """`eopipe follow` as a process, which has read what there is of two steps."""
    train(state, 0, 2)
    command = [sys.executable, "-m", "eopipe", "follow", str(state), "--to", "prometheus", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for((state.parents[1] / "model.views/eopipe.prom").exists)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_person_ends_it_with_a_signal_after_a_last_read(state: Path, views: Path, number: signal.Signals) -> None:
    process = started(state)
    train(state, 2, 3)
    process.send_signal(number)
    assert process.communicate(timeout=60) == (None, "")
    assert process.returncode == 0
    assert gauges(views)["eopipe_train_step"] == 3


def test_beside_a_training_signals_do_not_end_it_but_the_end_of_its_input_does(state: Path, views: Path) -> None:
    process = started(state, "--until-eof")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        process.send_signal(number)
    train(state, 2, 3)
    wait_for(lambda: gauges(views)["eopipe_train_step"] == 3)
    train(state, 3, 4)
    # As the kernel does it too when the launcher is killed.
    assert process.communicate(timeout=60) == (None, "")
    assert gauges(views)["eopipe_train_step"] == 4


def test_the_block_beside_a_follower_ends_with_a_whole_picture_even_if_it_is_short(state: Path, views: Path) -> None:
    with follower(("prometheus",), state, views):
        train(state, 0, 2, is_done=True)
    assert gauges(views)["eopipe_train_step"] == 2


def test_a_follower_that_is_killed_or_hangs_costs_the_block_a_warning(
    state: Path, views: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow, "LAST_READ_S", 1.0)
    train(state, 0, 2)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    for number in (signal.SIGKILL, signal.SIGSTOP):
        before = set(children.read_text().split())
        with follower(("prometheus",), state, views):
            (child,) = set(children.read_text().split()) - before
            os.kill(int(child), number)
    reasons = ("killed by signal 9", "it was killed, since it did not end within 1 s")
    of_all = [f"event=tracker_off tracker=all reason='{reason}'" for reason in reasons]
    assert [record.message for record in caplog.records] == of_all


def test_without_trackers_no_process_is_started(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with follower((), state, state):
        pass
    monkeypatch.setattr(logging.getLogger("eopipe"), "disabled", True)
    with pytest.raises(ValueError, match="no"), follower((), state, state):
        raise ValueError("no")
