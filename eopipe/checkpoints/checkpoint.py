"""Checkpoints: one published folder per step; the newest one that verifies is restored.

A checkpoint is a folder with one safetensors file per part (`model`, `optimiser` and whatever else a step names), one
more for each worker that holds rows of its own (`model.1`), `state.json` and a manifest; nothing in it is ever
unpickled. `latest.json` is written after it. Its identity is of the training: data, settings, model and revision of the
code; a training of another identity never resumes it.

With FSDP2 no worker ever holds more than its rows for a checkpoint. Workers hand their shards to the first one, which
puts them into the checkpoint that it publishes, by files in an exchange folder alone, while the training continues; any
number of workers reads whole tensors.
"""

import json
import logging
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.errors import BadInputError, IntegrityError, some_of
from eopipe.publish import MANIFEST, foreign_content, publish, remove_folder, sha256, verify
from eopipe.tasks import SCORES
from eopipe.text_files import read_json, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from eopipe.launch.world import World

EXCHANGE_PREFIX = ".pieces-"
LocalTensors = dict[str, "Tensor | TensorShard"]
ShardIndex = Mapping[str, tuple[int, tuple[int, ...]]]
log = logging.getLogger("eopipe")
Parts = dict[str, "dict[str, Tensor]"]
LATEST = "latest.json"
HEADER = "eopipe"
# Validation scores with their sign: higher is better.
SIGNS: dict[str, int] = {score.key: -1 if score.is_lower_better else 1 for score in SCORES if score.is_main}
MAX_LISTED = 5


@dataclass(frozen=True)
class TensorShard:
    """The rows of a tensor from `start` on; the whole tensor has this shape."""

    rows: "Tensor"
    start: int
    shape: tuple[int, ...]


def local_shard(value: "Tensor") -> "Tensor | TensorShard":
    """What this worker holds of a tensor: all of it, or its rows of one that is sharded."""
    from torch.distributed.tensor import DTensor, Shard

    if not isinstance(value, DTensor):
        return value
    workers, rank = value.device_mesh.size(), value.device_mesh.get_local_rank()
    if workers == 1:
        return value.to_local()
    if value.placements != (Shard(0),):
        raise ValueError(f"a tensor is sharded by {value.placements}, not by its rows")
    # As torch.chunk partitions them: the last ones may get fewer, or none.
    rows = -(-value.shape[0] // workers)
    return TensorShard(value.to_local(), min(rank * rows, value.shape[0]), tuple(value.shape))


def local_tensors(parts: Mapping[str, Mapping[str, "Tensor"]], is_first: bool) -> dict[str, LocalTensors]:
    """What a worker writes: its rows; the first one also what every worker holds alike."""
    shards = {part: {name: local_shard(value) for name, value in tensors.items()} for part, tensors in parts.items()}
    return {
        part: {
            name: value
            for name, value in tensors.items()
            if (len(value.rows) if isinstance(value, TensorShard) else is_first)
        }
        for part, tensors in shards.items()
    }


def shard_index(tensors: Mapping[str, "Tensor | TensorShard"]) -> ShardIndex:
    """The first row and the whole shape of each shard, by name."""
    return {name: (value.start, value.shape) for name, value in tensors.items() if isinstance(value, TensorShard)}


def join_shards(files: Iterable[tuple[ShardIndex, Mapping[str, "Tensor"]]]) -> "dict[str, Tensor]":
    """Whole tensors from the content of files, each with its index; raises IntegrityError where rows are missing."""
    import torch

    whole: dict[str, torch.Tensor] = {}
    by_name: dict[str, list[TensorShard]] = {}
    for index, tensors in files:
        for name, value in tensors.items():
            if name in index:
                by_name.setdefault(name, []).append(TensorShard(value, *index[name]))
            else:
                whole[name] = value
    for name, shards in by_name.items():
        shards.sort(key=lambda shard: shard.start)
        starts = [sum(len(shard.rows) for shard in shards[:number]) for number in range(len(shards) + 1)]
        if [shard.start for shard in shards] + [shards[0].shape[0]] != starts:
            raise IntegrityError(f"rows of {name} are missing")
        whole[name] = torch.cat([shard.rows for shard in shards])
    return whole


def create_exchange_folder(folder: Path, world: "World") -> Path:
    """A folder that no earlier workers knew, so that none of their shards is taken for a current one."""
    import torch

    number = float(secrets.randbits(48)) if world.is_first else 0.0
    agreed = world.sum(torch.tensor(number, dtype=torch.float64, device=world.device))
    exchange = folder / f"{EXCHANGE_PREFIX}{int(agreed):012x}"
    exchange.mkdir(exist_ok=True)
    return exchange


def remove_exchange_folders(folder: Path) -> None:
    """Remove the exchange folders of earlier workers."""
    for old in folder.glob(f"{EXCHANGE_PREFIX}*"):
        shutil.rmtree(old)


def shard_folder(exchange: Path, step: int, rank: int) -> Path:
    """Where a worker puts its shards of a step."""
    return exchange / f"{step:09d}-{rank}"


def collect_shards(exchange: Path, step: int, ranks: Iterable[int], draft: Path, may_wait: Callable[[], bool]) -> None:
    """Move the shards of other workers into a checkpoint that is being written.

    Raises TimeoutError when the time is over before all have written theirs.
    """
    for rank in ranks:
        shards = shard_folder(exchange, step, rank)
        while not shards.exists():
            if not may_wait():
                raise TimeoutError(f"timeout: worker {rank} did not write its part of step {step}")
            time.sleep(0.02)
        for file in shards.glob("*.safetensors"):
            file.rename(draft / file.name)
        shutil.rmtree(shards)


@dataclass
class Progress:
    """How far a training is; data position and random streams are functions of the step.

    `score` is the validation score of these very weights (higher is better), if they were validated. `worlds` lists
    from which step on how many workers took the steps.
    """

    step: int = 0
    losses: float = 0.0
    history: list[Any] = field(default_factory=list)
    score: float | None = None
    worlds: list[list[int]] = field(default_factory=list)

    def record_world(self, size: int) -> None:
        """Record how many workers take the steps from here on."""
        if self.worlds and self.worlds[-1][0] == self.step:
            self.worlds.pop()
        if not self.worlds or self.worlds[-1][1] != size:
            self.worlds.append([self.step, size])

    def add_validation(self, row: dict[str, Any]) -> None:
        """Record the scores of a validation."""
        self.history.append(row)
        self.score = _selection_score(row)

    @property
    def is_best(self) -> bool:
        """Whether these very weights have the best score so far."""
        return self.score is not None and self.score >= max(_selection_score(row) for row in self.history)


def validation_score(val: dict[str, Any] | None) -> float | None:
    """One number for the scores of a validation (higher is better): mIoU, macro F1 of chips, or RMSE negated."""
    name = validation_score_name(val)
    return SIGNS[name] * float(val[name]) if val and name else None


def validation_score_name(val: dict[str, Any] | None) -> str | None:
    """The name of that score; None where a validation has none that is defined."""
    return next((name for name in SIGNS if val and val.get(name) is not None), None)


def _selection_score(row: dict[str, Any]) -> float:
    """What selects the best weights: the score of their validation, else the negated loss of validation or training."""
    val = row.get("val") or {}
    score = validation_score(val)
    return -float(val.get("loss", row.get("loss", 0.0))) if score is None else score


def save(
    folder: Path,
    progress: Progress,
    parts: Mapping[str, "Mapping[str, Tensor | TensorShard]"],
    *,
    keep: int,
    identity: dict[str, Any] | None = None,
    token: int = 0,
    fence: Callable[[], None] = lambda: None,
    collect: Callable[[Path], None] = lambda _draft: None,
) -> Path:
    """Write the parts and the progress of a step; drop all but the newest `keep` checkpoints and the best.

    `collect` moves the shards of other workers into the draft. `fence` raises where another training has taken the
    folder over: nothing is published then. Raises NoSpaceError on a full disk; earlier checkpoints stay as they are.
    """
    target = folder / checkpoint_name(progress.step)
    if foreign_content(target):
        # A damaged checkpoint, in place of which the one before was loaded.
        remove_folder(target)
    with publish(target, folder=True) as draft:
        for name, tensors in parts.items():
            _write(draft / f"{name}.safetensors", tensors, progress)
        collect(draft)
        write_json(draft / "state.json", asdict(progress) | {"token": token, "identity": identity or {}})
        fence()
    with publish(folder / LATEST) as draft:
        write_json(draft, {"checkpoint": target.name, "manifest": sha256(target / MANIFEST), "token": token})
    best_checkpoint = best(folder)
    for old in steps(folder)[:-keep]:
        if old != best_checkpoint:
            remove_folder(old)
    return target


def stage_shards(
    exchange: Path, rank: int, progress: Progress, parts: Mapping[str, "Mapping[str, Tensor | TensorShard]"]
) -> None:
    """Write the shards of another worker than the first one, for that one to collect."""
    with publish(shard_folder(exchange, progress.step, rank), folder=True) as draft:
        for name, tensors in parts.items():
            if tensors:
                _write(draft / f"{name}.{rank}.safetensors", tensors, progress)


def _write(path: Path, tensors: Mapping[str, "Tensor | TensorShard"], progress: Progress) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        rows = {k: (v.rows if isinstance(v, TensorShard) else v).contiguous() for k, v in tensors.items()}
        # The step in each file distinguishes parts of different steps even under a fresh manifest. Two entries of a
        # header would come in any order, and the same checkpoint have other bytes.
        header = json.dumps({"step": progress.step, "pieces": shard_index(tensors)}, sort_keys=True)
        save_file(rows, path, {HEADER: header})
    except SafetensorError as error:
        # It reports errors of the system as text only.
        match = re.search(r"os error (\d+)", str(error))
        if not match:
            raise
        raise OSError(int(match[1]), str(error), str(path)) from error


def checkpoint_name(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:09d}"


def steps(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(folder.glob("step-*"))


def best(folder: Path) -> Path | None:
    """The checkpoint with the best validation score, the newest of equal ones; None where none was validated."""
    scored = [(score, path) for path in steps(folder) if (score := _score(path)) is not None]
    return max(scored)[1] if scored else None


def _score(path: Path) -> float | None:
    with suppress(BadInputError):
        score = read_json(path / "state.json").get("score")
        return None if score is None else float(score)
    return None


def restore(folder: Path, identity: dict[str, Any] | None = None) -> tuple[Progress, Parts] | None:
    """Progress and parts (on the CPU) of the newest checkpoint that verifies; None when there is none.

    For a damaged one, or one mixed from several steps, the one before is restored, with a warning in the log.
    Raises BadInputError for the checkpoint of another training, with the difference.
    """
    for path in reversed(steps(folder)):
        try:
            verify(path)
            return _load(path, identity)
        except IntegrityError as error:
            log.warning("event=checkpoint_damaged step=%s reason=%r", path.name, str(error))
    return None


def _load(path: Path, identity: dict[str, Any] | None) -> tuple[Progress, Parts]:
    state = read_json(path / "state.json")
    if identity is not None:
        refuse_other(path, identity, state.pop("identity"))
    progress = Progress(**{name: state[name] for name in Progress.__dataclass_fields__})
    if checkpoint_name(progress.step) != path.name:
        raise IntegrityError(f"{path} contains step {progress.step}")
    return progress, {part: read_part(path, part) for part in sorted({_part_of(file) for file in _files(path)})}


def read_part(path: Path, part: str) -> "dict[str, Tensor]":
    """The whole tensors of a part of a checkpoint; raises IntegrityError where files are missing or mixed."""
    try:
        return join_shards([_open(file) for file in _files(path) if _part_of(file) == part])
    except IntegrityError as error:
        raise IntegrityError(f"{path}: {error}") from error


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.safetensors"))


def _part_of(file: Path) -> str:
    return file.name.partition(".")[0]


def _open(path: Path) -> "tuple[ShardIndex, dict[str, Tensor]]":
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        header = json.loads((file.metadata() or {}).get(HEADER, "{}"))
        if checkpoint_name(header.get("step", -1)) != path.parent.name:
            raise IntegrityError(f"{path.name} is of another step: {header.get('step')}")
        index = {name: (start, tuple(shape)) for name, (start, shape) in header["pieces"].items()}
        return index, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def refuse_other(path: Path, current: dict[str, Any], stored: dict[str, Any]) -> None:
    """Raise BadInputError, with what differs, when a state belongs to another training."""
    rows = list(differences(current, stored))
    if rows:
        raise BadInputError(
            f"{path} is the state of another training: {some_of(rows, MAX_LISTED, '; ')}; "
            "use the inputs and settings that it started with, or remove it to start afresh"
        )


def differences(current: Any, stored: Any, name: str = "") -> Iterator[str]:
    """The leaves of two JSON values that are not the same, as `settings.seed is 1 here and 0 there`."""
    if isinstance(current, dict) and isinstance(stored, dict):
        for key in sorted(current.keys() | stored.keys()):
            yield from differences(current.get(key), stored.get(key), f"{name}.{key}".lstrip("."))
    elif _as_json(current) != _as_json(stored):
        yield f"{name} is {current} here and {stored} there"


def _as_json(value: Any) -> Any:
    """A value as it is after a round trip through JSON."""
    return [_as_json(v) for v in value] if isinstance(value, (list, tuple)) else value


def other_states(state_root: Path, state: Path, identity: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """The state folders beside this one, each with what differs."""
    for path in sorted(state_root.glob("*/identity.json")):
        if path.parent != state:
            yield path.parent, "; ".join(islice(differences(identity, read_json(path)), MAX_LISTED))
