"""What the launcher tells its workers: one JSON file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from eopipe.chips.chips import Normaliser, pair_stores
from eopipe.launch.environment import nodes_of
from eopipe.launch.scratch import copy_of
from eopipe.models import Architecture
from eopipe.models.tasks import LOSSES, misfits
from eopipe.publish import read_json, write_json
from eopipe.tiles.store import Tiles

# Beside the checkpoints of a training.
JOB = "job.json"
# Knobs of the stage train that a job takes as they are.
KNOBS = (
    *("device", "checkpoint_every", "keep", "restarts", "cache_mb", "workers", "timeout_s", "recompute"),
    *("track", "profile", "tell_every_s"),
)


@dataclass(frozen=True)
class Settings:
    """What decides the weights, besides the data."""

    architecture: str
    width: int
    depth: int
    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float
    warmup: float
    augment: tuple[str, ...]
    precision: str
    seed: int
    processes: int
    threads: int
    deterministic: bool = False
    shards: int = 4
    strategy: str = "ddp"
    accumulate: int = 1
    clip: float | None = None
    compile: bool = False
    channels_last: bool = False
    arguments: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    lora: int = 0
    loss: str = "cross_entropy"
    class_weights: str = "none"
    weights: tuple[float, ...] = ()
    schedule: str = "cosine"
    ema: float = 0.0
    patience: int = 0
    shuffle: str = "chips"
    window: int = 16
    block: int = 1024
    nodes: str = "1"
    task: str = "segmentation"
    target: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Settings":
        """Those among the values of the stage train; the loss that is not named is that of the task."""
        told = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        return cls(**told | {"loss": told["loss"] or LOSSES[told["task"]][0]})

    def conflicts(self) -> list[str]:
        """Settings that cannot go together, a sentence each."""
        wrong = misfits(self.task, self.loss, self.class_weights)
        return wrong + (self._in_parts() if self.deterministic else [])

    def _in_parts(self) -> list[str]:
        """What deterministic mode does not go with."""
        wrong, most = [], self.processes * nodes_of(self.nodes).most
        if most > self.shards:
            told = f"train.processes {self.processes}" + (
                f" on {nodes_of(self.nodes).most} nodes" * (self.nodes != "1")
            )
            wrong.append(f"{told} is more than train.shards {self.shards}; raise that")
        if self.batch < self.shards:
            wrong.append(f"train.batch {self.batch} is less than train.shards {self.shards}; lower train.shards")
        if self.strategy != "ddp":
            wrong.append("train.deterministic sums whole gradients; it needs train.strategy ddp")
        if self.accumulate > 1:
            wrong.append("train.deterministic goes shard by shard; raise train.shards instead of train.accumulate")
        return wrong

    def deciding(self) -> dict[str, Any]:
        """Those that decide the weights: not the number of processes where virtual shards stand for it."""
        told = asdict(self)
        for name in idle(self.deterministic):
            del told[name]
        return told


def idle(deterministic: bool) -> tuple[str, ...]:
    """Settings that change only speed: the world where a fixed number of shards stands for it, else shards."""
    return ("processes", "nodes") if deterministic else ("shards",)


@dataclass(frozen=True)
class Job:
    """One training: its data, its model, its settings and its place. Paths are absolute; sizes in pixels."""

    tiles: tuple[str, ...]
    labels: tuple[str, ...]
    chips: str
    state: str
    architecture: Architecture
    bands: tuple[str, ...]
    normaliser: Normaliser
    chip: int
    settings: Settings
    device: str
    checkpoint_every: int
    keep: int
    cache_mb: int
    timeout_s: float
    token: int = 0
    init: str | None = None
    restarts: int = 3
    recompute: bool = False
    profile: bool = False
    track: tuple[str, ...] = ()
    tell_every_s: float = 30.0
    views: str = ""
    workers: int | None = None

    def pairs(self) -> list[tuple[Tiles, Tiles]]:
        """The opened tile store of each scene and its labels."""
        tiles = tuple(copy_of("tiles", path) for path in self.tiles)
        return pair_stores(tiles, tuple(copy_of("labels", path) for path in self.labels))

    def write(self, path: Path) -> None:
        """Write the job for the workers."""
        write_json(path, asdict(self))


def read_job(path: Path) -> Job:
    """Read a job that the launcher wrote."""
    told: dict[str, Any] = read_json(path)
    told["architecture"] = Architecture(**_with_tuples(told["architecture"]))
    told["settings"] = Settings(**_with_tuples(told["settings"]))
    told["normaliser"] = Normaliser(**{k: tuple(v) for k, v in told["normaliser"].items()})
    return Job(**told)


def _with_tuples(told: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
