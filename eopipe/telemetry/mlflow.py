"""A run in the file store of MLflow, written without it.

MLflow of today needs libraries older than ours, and its store is plain files, which MLflow 3 reads with
`MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri FOLDER/mlruns` in an environment of its own, or takes over
with `mlflow migrate-filestore`. Layout: EXPERIMENT/RUN/{meta.yaml,params,metrics,tags,artifacts}.
"""

import time
from collections.abc import Callable
from pathlib import Path

import yaml

from eopipe.publish import publish

FOLDER, EXPERIMENT = "mlruns", "0"
RUNNING, FINISHED = 1, 3


class MLflow:
    """Appends a line a value (milliseconds, value, step); a run that resumes cuts those it will tell again."""

    def __init__(self, folder: Path, run: str, step: int) -> None:
        self.store, self.id = folder / FOLDER, run.ljust(32, "0")[:32]
        self.run = self.store / EXPERIMENT / self.id
        for name in ("params", "metrics", "tags", "artifacts"):
            (self.run / name).mkdir(parents=True, exist_ok=True)
        self._began = _read_start(self.run)
        _write(self.store / EXPERIMENT / "meta.yaml", self._experiment())
        _write(self.run / "meta.yaml", self._meta(RUNNING, None))
        (self.run / "tags" / "mlflow.runName").write_text(f"train {run[:8]}", encoding="utf-8")
        for path in (self.run / "metrics").iterdir():
            _cut(path, step)

    def _experiment(self) -> dict[str, object]:
        return {
            "artifact_location": f"{self.store.resolve().as_uri()}/{EXPERIMENT}",
            "creation_time": self._began,
            "experiment_id": EXPERIMENT,
            "last_update_time": self._began,
            "lifecycle_stage": "active",
            "name": "eopipe train",
        }

    def _meta(self, status: int, ended: int | None) -> dict[str, object]:
        return {
            "artifact_uri": f"{self.store.resolve().as_uri()}/{EXPERIMENT}/{self.id}/artifacts",
            "end_time": ended,
            "entry_point_name": "",
            "experiment_id": EXPERIMENT,
            "lifecycle_stage": "active",
            "run_id": self.id,
            "run_name": f"train {self.id[:8]}",
            "run_uuid": self.id,
            "source_name": "",
            "source_type": 4,
            "source_version": "",
            "start_time": self._began,
            "status": status,
            "tags": [],
            "user_id": "",
        }

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Append the values of a step."""
        now = int(time.time() * 1000)
        for name, value in values.items():
            with (self.run / "metrics" / name).open("a", encoding="utf-8") as file:
                file.write(f"{now} {value!r} {step}\n")

    def picture(self, step: int, name: str, draw: Callable[[], bytes]) -> None:
        """Keep a PNG as an artifact."""
        path = self.run / "artifacts" / name / f"step-{step:09d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw())

    def flush(self) -> None:
        """Every line is in its file already."""

    def close(self, settings: dict[str, object]) -> None:
        """Note the settings, and that the run has ended."""
        for name, value in settings.items():
            (self.run / "params" / name).write_text(str(value), encoding="utf-8")
        _write(self.run / "meta.yaml", self._meta(FINISHED, int(time.time() * 1000)))


def _read_start(run: Path) -> int:
    """When the run began, in milliseconds: as its file says if it is there."""
    path = run / "meta.yaml"
    if path.is_file() and isinstance(told := yaml.safe_load(path.read_text(encoding="utf-8")), dict):
        return int(told.get("start_time") or 0)
    return int(time.time() * 1000)


def _write(path: Path, value: dict[str, object]) -> None:
    with publish(path) as draft:
        draft.write_text(yaml.safe_dump(value), encoding="utf-8")


def _cut(path: Path, step: int) -> None:
    """Drop the lines behind a step, and one that was cut short."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if len(line.split()) == 3]
    kept = [line for line in lines if int(line.split()[2]) <= step]
    draft = path.parent.parent / f".{path.name}.draft"
    draft.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    draft.replace(path)
