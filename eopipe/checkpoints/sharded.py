"""Sharded checkpoints: with FSDP2 each worker writes its own rows, and any number of workers reads whole tensors.

No worker ever holds more than its rows for a checkpoint. Workers hand their shards to the first one, which puts them
into the checkpoint that it publishes, by files in an exchange folder alone, while the training continues.
"""

import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eopipe.errors import IntegrityError

if TYPE_CHECKING:
    from torch import Tensor

    from eopipe.launch.world import World

EXCHANGE_PREFIX = ".pieces-"


@dataclass(frozen=True)
class TensorShard:
    """The rows of a tensor from `start` on; the whole tensor has this shape."""

    rows: "Tensor"
    start: int
    shape: tuple[int, ...]


LocalTensors = dict[str, "Tensor | TensorShard"]
ShardIndex = Mapping[str, tuple[int, tuple[int, ...]]]


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
