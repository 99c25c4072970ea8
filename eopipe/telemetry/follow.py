"""`eopipe follow`: show a training in TensorBoard, MLflow or Prometheus, from a process of its own.

A training only appends to its journal `metrics.jsonl`. This process reads it, while it is written or afterwards, and
hands its values to the trackers' own libraries: whatever goes wrong with them cannot touch the training.
"""

import logging
import os
import signal
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event as Flag
from threading import Thread
from typing import Annotated, Any

from eopipe.contract import Argument
from eopipe.errors import UsageError
from eopipe.own_files import refuse_foreign_file
from eopipe.processes import signal_handlers
from eopipe.telemetry.journal import METRICS, Event, FollowedRun, JournalTail, find_run
from eopipe.train_options import TrackerName

log = logging.getLogger("eopipe")
# Where a state folder has the pictures of its validation chips.
PICTURES = "predictions"
POLL_S = 0.5
# How long a training waits for the last read of its follower, when it is done and when it was interrupted.
LAST_READ_S, LAST_READ_INTERRUPTED_S = 60.0, 10.0
EXPERIMENT = "eopipe train"
# Maximum number of values in one request to MLflow.
BATCH = 1000
GAUGES = {
    "step": "steps done",
    "loss": "mean loss of the last step",
    "learning_rate": "learning rate of the last step",
    "gradient_norm": "gradient norm of the last step, before clipping",
    "samples_per_second": "samples over all processes",
    "data_wait_ratio": "share of the time in which the first process waits for data",
    "memory_bytes": "peak memory, of the GPU or of the process",
    "val_accuracy": "accuracy on the validation chips",
    "val_miou": "mean IoU on the validation chips",
}


class Tracker(ABC):
    """Where a training is shown: receives its scalars and pictures."""

    def __init__(self, run: FollowedRun) -> None:
        self.run = run

    @abstractmethod
    def scalars(self, step: int, values: dict[str, float], when: float) -> None:
        """Add the values of a step by name, and when they were measured, in seconds since 1970."""

    def picture(self, step: int, png: bytes, when: float) -> None:  # noqa: B027 - Prometheus has none
        """Add a picture of a step; not every tracker shows it."""

    @abstractmethod
    def flush(self) -> None:
        """Write what was received so far."""

    def close(self, is_done: bool) -> None:  # noqa: ARG002 - of use to some
        """End; `is_done` says that the training has ended and will not be resumed."""
        self.flush()


class TensorBoard(Tracker):
    """Event files of TensorBoard: scalars, pictures, hyperparameters. Each start writes all of them again."""

    def __init__(self, run: FollowedRun) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Record
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams import summary_v2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._record, self._summary, self._hparams = Record, Summary, summary_v2
        super().__init__(run)
        self._last = dict[str, float]()
        folder = run.views / "tensorboard" / run.title
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("events.out.tfevents.*"):
            path.unlink()
        self._writer = RecordWriter((folder / f"events.out.tfevents.{time.time_ns()}").open("wb"))
        self._add(Record(wall_time=time.time(), file_version="brain.Event:2"))
        # A TensorBoard that has read the removed files forgets what was in them.
        self._add(Record(wall_time=time.time(), session_log=SessionLog(status=SessionLog.START)))

    def _add(self, record: Any) -> None:
        self._writer.write(record.SerializeToString())

    def _add_values(self, step: int, when: float, values: list[Any]) -> None:
        self._add(self._record(step=step, wall_time=when, summary=self._summary(value=values)))

    def scalars(self, step: int, values: dict[str, float], when: float) -> None:
        """Add a value of each tag; scores of the validation have a group of their own."""
        named = {name.replace("val_", "val/"): value for name, value in values.items()}
        self._last |= named
        self._add_values(step, when, [self._summary.Value(tag=tag, simple_value=v) for tag, v in named.items()])

    def picture(self, step: int, png: bytes, when: float) -> None:
        width, height = struct.unpack(">II", png[16:24])
        image = self._summary.Image(encoded_image_string=png, width=width, height=height, colorspace=3)
        self._add_values(step, when, [self._summary.Value(tag=PICTURES, image=image)])

    def flush(self) -> None:
        self._writer.flush()

    def close(self, is_done: bool) -> None:
        """Add the hyperparameters beside the last values, and close the file."""
        if is_done:
            plain = {k: v if isinstance(v, int | float | str) else str(v) for k, v in self.run.settings.items()}
            metrics = [self._hparams.Metric(tag) for tag in self._last]
            for summary in (self._hparams.hparams_config_pb([], metrics), self._hparams.hparams_pb(plain)):
                self._add(self._record(wall_time=time.time(), summary=summary))
        self._writer.close()


class MLflow(Tracker):
    """A run of MLflow: metrics, parameters, pictures as artifacts. It is continued by its name.

    It goes to the server or store that MLFLOW_TRACKING_URI names, else to a file store.
    """

    def __init__(self, run: FollowedRun) -> None:
        # This process has no other purpose than to write this store, and reports to nobody else.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        super().__init__(run)
        store = (run.views / "mlruns").resolve()
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or store.as_uri())
        self._metric, self._pending = Metric, list[Any]()
        self._id, self._logged = self._open()
        known = self._client.get_run(self._id).data.params
        params = [Param(name, str(value)) for name, value in run.settings.items() if name not in known]
        self._client.log_batch(self._id, params=params)

    def _open(self) -> tuple[str, set[tuple[str, int, float]]]:
        """The id of the run of this name, and the values that it has."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        for known in self._client.search_runs([number], f"tags.eopipe_training = '{self.run.name}'", max_results=1):
            self._client.update_run(known.info.run_id, status="RUNNING")
            histories = [self._client.get_metric_history(known.info.run_id, key) for key in known.data.metrics]
            return known.info.run_id, {(m.key, m.step, m.value) for history in histories for m in history}
        new = self._client.create_run(number, tags={"eopipe_training": self.run.name}, run_name=self.run.title)
        return new.info.run_id, set()

    def scalars(self, step: int, values: dict[str, float], when: float) -> None:
        """Take values that the run does not have yet: a training that resumes repeats some."""
        for name, value in values.items():
            if (name, step, value) not in self._logged:
                self._logged.add((name, step, value))
                self._pending.append(self._metric(name, value, int(when * 1000), step))

    def picture(self, step: int, png: bytes, when: float) -> None:  # noqa: ARG002 - an artifact has no time
        with TemporaryDirectory() as folder:
            (path := Path(folder) / f"step-{step:09d}.png").write_bytes(png)
            self._client.log_artifact(self._id, str(path), PICTURES)

    def flush(self) -> None:
        for start in range(0, len(self._pending), BATCH):
            self._client.log_batch(self._id, metrics=self._pending[start : start + BATCH])
        self._pending.clear()

    def close(self, is_done: bool) -> None:
        """Send the last values; a run that may be resumed stays open."""
        self.flush()
        if is_done:
            self._client.set_terminated(self._id)


class Prometheus(Tracker):
    """The newest values as a text file for the textfile collector of Prometheus' node exporter."""

    def __init__(self, run: FollowedRun) -> None:
        from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

        super().__init__(run)
        self._gauge, self._write = Gauge, write_to_textfile
        self._registry, self._gauges = CollectorRegistry(), dict[str, Any]()
        self._file = run.views / "eopipe.prom"
        refuse_foreign_file(self._file, "# HELP eopipe_train_")
        run.views.mkdir(parents=True, exist_ok=True)

    def scalars(self, step: int, values: dict[str, float], when: float) -> None:  # noqa: ARG002 - the newest count
        """Take the newest values."""
        for name, value in ({"step": float(step)} | values).items():
            if name not in self._gauges:
                text = GAUGES.get(name, name)
                self._gauges[name] = self._gauge(f"eopipe_train_{name}", text, ["run"], registry=self._registry)
            self._gauges[name].labels(run=self.run.name).set(value)

    def flush(self) -> None:
        """Write the file under another name and rename it, so that a scrape never reads half of it."""
        self._write(str(self._file), self._registry)


TRACKERS: dict[str, Callable[[FollowedRun], Tracker]]
TRACKERS = {"tensorboard": TensorBoard, "mlflow": MLflow, "prometheus": Prometheus}


@dataclass
class Trackers:
    """The trackers of a run by name. One that fails is left out with one warning, and the others continue."""

    names: tuple[str, ...]
    run: FollowedRun
    _open: dict[str, Tracker] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)
    _pictures: set[Path] = field(default_factory=set)

    def restart(self) -> None:
        """Open them for a journal that is read from its start."""
        self.each("close", False)
        self._open, self._pictures = {}, set()
        for name in dict.fromkeys(self.names):
            if name not in self._failed:
                with self._guard(name):
                    self._open[name] = TRACKERS[name](self.run)

    @property
    def are_lost(self) -> bool:
        """Whether every one has failed."""
        return self._failed >= set(self.names)

    def take(self, event: Event) -> None:
        """Hand on the values of an event, without those that are not finite."""
        values = {name: value for name, value in event.items() if name not in ("event", "step", "time")}
        if event["event"] == "validation":
            values = {f"val_{name}": value for name, value in (event.get("val") or {}).items()}
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
        if numbers:
            self.each("scalars", event["step"], numbers, event.get("time") or time.time())

    def take_pictures(self) -> None:
        for path in sorted(set((self.run.folder / PICTURES).glob("step-*.png")) - self._pictures):
            self._pictures.add(path)
            # A training that resumes removes pictures of steps that it repeats.
            with suppress(FileNotFoundError):
                png, when = path.read_bytes(), path.stat().st_mtime
                self.each("picture", int(path.stem[5:]), png, when)

    def each(self, method: str, *arguments: Any) -> None:
        for name, tracker in list(self._open.items()):
            with self._guard(name):
                getattr(tracker, method)(*arguments)

    @contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        try:
            yield
        except ModuleNotFoundError as error:
            self._drop(name, f"{error}; pip install 'eopipe[{name}]'")
        except Exception as error:  # noqa: BLE001 - a tracker is third-party code, and the others must continue
            self._drop(name, f"{type(error).__name__}: {error}")

    def _drop(self, name: str, reason: str) -> None:
        with suppress(Exception):
            self._open.pop(name).close(is_done=False)
        self._failed.add(name)
        log.warning("event=tracker_off tracker=%s reason=%r", name, reason)


def follow_run(run: FollowedRun, names: tuple[str, ...], stop: Flag, *, once: bool = False) -> bool:
    """Hand the events of a run to trackers until it ends or `stop` is set; whether any tracker is left."""
    trackers, is_done = Trackers(names, run), run.is_finished
    with closing(JournalTail(run.folder / METRICS)) as tail:
        while not trackers.are_lost:
            is_last = once or run.is_finished or stop.is_set() or tail.is_removed
            events, is_new = tail.poll()
            if is_new:
                trackers.restart()
            for event in events:
                trackers.take(event)
                is_done = run.is_finished or event["event"] == "end"
            trackers.take_pictures()
            trackers.each("flush")
            if is_last:
                break
            stop.wait(POLL_S)
    trackers.each("close", is_done)
    return not trackers.are_lost


def follow(
    run: Annotated[
        Path, Argument("model folder, finished or in training, or state folder of a training", positional=True)
    ],
    to: Annotated[tuple[TrackerName, ...], Argument("trackers")],
    views: Annotated[Path | None, Argument("output folder of the trackers [beside the model]")] = None,
    once: Annotated[bool, Argument("read the available lines and exit, without waiting for more")] = False,
    until_eof: Annotated[
        bool, Argument("exit after a last read when standard input is closed (train uses this)")
    ] = False,
) -> None:
    """Show a training in TensorBoard, MLflow or Prometheus, while it runs or afterwards."""
    followed, stop = find_run(run, views), Flag()
    ignored = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGTERM)
    handlers: dict[int, Any] = dict.fromkeys((signal.SIGINT, signal.SIGTERM), lambda *_: stop.set())
    if until_eof:
        # A scheduler signals all processes of a job; the training decides when it has ended.
        handlers = dict.fromkeys(ignored, signal.SIG_IGN)
        Thread(target=_wait_for_eof, args=(stop,), daemon=True).start()
    with signal_handlers(handlers):
        if follow_run(followed, to, stop, once=once):
            return
    raise UsageError("no tracker is left; the warnings above say why")


def _wait_for_eof(stop: Flag) -> None:
    sys.stdin.buffer.read()
    stop.set()


@contextmanager
def follower(names: tuple[str, ...], state: Path, views: Path) -> Iterator[None]:
    """Run `eopipe follow` as a child process beside the block, which no fault of it can touch."""
    if not names:
        yield
        return
    argv = [sys.executable, "-P", "-m", "eopipe", "follow", str(state), "--to", *names]
    argv += ["--views", str(views), "--until-eof"]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        # In a session of its own: an interrupt from the terminal is meant for the training.
        process = subprocess.Popen(argv, stdin=pipe, stdout=null, start_new_session=True)
    except OSError as error:
        log.warning("event=tracker_off tracker=%s reason=%r", ",".join(names), str(error))
        yield
        return
    is_done = False
    try:
        yield
        is_done = True
    finally:
        _end(process, LAST_READ_S if is_done else LAST_READ_INTERRUPTED_S)


def _end(process: "subprocess.Popen[bytes]", patience_s: float) -> None:
    """Let a follower read the last lines; one that hangs is killed."""
    reason = ""
    try:
        process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        reason = f"it was killed, since it did not end within {patience_s:.0f} s"
    if process.returncode < 0:
        log.warning("event=tracker_off tracker=all reason=%r", reason or f"killed by signal {-process.returncode}")
