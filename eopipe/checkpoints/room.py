"""Where workers leave their pieces of a checkpoint for the first one, which takes them into what it publishes.

They meet by files alone, off the training path.
"""

import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eopipe.launch.world import World

ROOM = ".pieces-"


def room_of(folder: Path, world: "World") -> Path:
    """A folder that no workers before these ones knew, so that no piece of theirs is taken for one of now."""
    import torch

    number = float(secrets.randbits(48)) if world.first else 0.0
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
