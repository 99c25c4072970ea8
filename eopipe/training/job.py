"""What the launcher tells its workers: one JSON file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eopipe.models import Architecture
from eopipe.publish import read_json, write_json
from eopipe.samples.chips import Normaliser, Reader, pair


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
    augment: str
    precision: str
    seed: int
    processes: int
    threads: int


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

    def reader(self) -> Reader:
        """A reader of this training's chips."""
        pairs = pair(tuple(map(Path, self.tiles)), tuple(map(Path, self.labels)))
        return Reader(pairs, self.bands, self.chip, self.cache_mb << 20)

    def write(self, path: Path) -> None:
        """Write the job for the workers."""
        write_json(path, asdict(self))


def read_job(path: Path) -> Job:
    """Read a job that the launcher wrote."""
    told: dict[str, Any] = read_json(path)
    told["architecture"] = Architecture(**told["architecture"])
    told["settings"] = Settings(**told["settings"])
    told["normaliser"] = Normaliser(**{k: tuple(v) for k, v in told["normaliser"].items()})
    return Job(**told)
