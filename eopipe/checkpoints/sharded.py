"""Tensors that FSDP2 deals out: each worker writes its own rows, and any number of workers reads the whole.

No worker ever holds more than its rows for a checkpoint.
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

ROOM = ".pieces-"


def room_of(folder: Path, world: "World") -> Path:
    """A folder that no workers before these ones knew, so that no piece of theirs is taken for one of now."""
    import torch

    number = float(secrets.randbits(48)) if world.is_first else 0.0
    told = world.sum(torch.tensor(number, dtype=torch.float64, device=world.device))
    room = folder / f"{ROOM}{int(told):012x}"
    room.mkdir(exist_ok=True)
    return room


def clear(folder: Path) -> None:
    """Remove the rooms of workers that are gone."""
    for old in folder.glob(f"{ROOM}*"):
        shutil.rmtree(old)


def place_of(room: Path, step: int, rank: int) -> Path:
    """Where a worker leaves what it holds of a step."""
    return room / f"{step:09d}-{rank}"


def collect(room: Path, step: int, ranks: Iterable[int], draft: Path, patient: Callable[[], bool]) -> None:
    """Take what the other workers left of a step into a checkpoint that is being written.

    Raises TimeoutError when patience ends before all have left theirs.
    """
    for rank in ranks:
        place = place_of(room, step, rank)
        while not place.exists():
            if not patient():
                raise TimeoutError(f"timeout: worker {rank} did not write its part of step {step}")
            time.sleep(0.02)
        for file in place.glob("*.safetensors"):
            file.rename(draft / file.name)
        shutil.rmtree(place)


@dataclass(frozen=True)
class Piece:
    """The rows of a tensor from `start` on; the whole has this shape."""

    rows: "Tensor"
    start: int
    shape: tuple[int, ...]


Held = dict[str, "Tensor | Piece"]
Places = Mapping[str, tuple[int, tuple[int, ...]]]


def piece(value: "Tensor") -> "Tensor | Piece":
    """What this worker holds of a tensor: all of it, or its rows of one that is dealt out."""
    from torch.distributed.tensor import DTensor, Shard

    if not isinstance(value, DTensor):
        return value
    workers, rank = value.device_mesh.size(), value.device_mesh.get_local_rank()
    if workers == 1:
        return value.to_local()
    if value.placements != (Shard(0),):
        raise ValueError(f"a tensor is dealt out by {value.placements}, not by its rows")
    # As torch.chunk deals them: the last ones may get fewer, or none.
    share = -(-value.shape[0] // workers)
    return Piece(value.to_local(), min(rank * share, value.shape[0]), tuple(value.shape))


def own(parts: Mapping[str, Mapping[str, "Tensor"]], first: bool) -> dict[str, Held]:
    """What a worker writes: its rows; the first one also what every worker holds alike."""
    held = {part: {name: piece(value) for name, value in tensors.items()} for part, tensors in parts.items()}
    return {
        part: {k: v for k, v in tensors.items() if (len(v.rows) if isinstance(v, Piece) else first)}
        for part, tensors in held.items()
    }


def places(tensors: Mapping[str, "Tensor | Piece"]) -> Places:
    """The first row and the whole shape of each piece, by name."""
    return {name: (value.start, value.shape) for name, value in tensors.items() if isinstance(value, Piece)}


def joined(files: Iterable[tuple[Places, Mapping[str, "Tensor"]]]) -> "dict[str, Tensor]":
    """Whole tensors from what files hold, and the places of pieces; raises IntegrityError where rows are missing."""
    import torch

    whole: dict[str, torch.Tensor] = {}
    pieces: dict[str, list[Piece]] = {}
    for told, tensors in files:
        for name, value in tensors.items():
            if name in told:
                pieces.setdefault(name, []).append(Piece(value, *told[name]))
            else:
                whole[name] = value
    for name, found in pieces.items():
        found.sort(key=lambda one: one.start)
        starts = [sum(len(one.rows) for one in found[:number]) for number in range(len(found) + 1)]
        if [one.start for one in found] + [found[0].shape[0]] != starts:
            raise IntegrityError(f"rows of {name} are missing")
        whole[name] = torch.cat([one.rows for one in found])
    return whole
