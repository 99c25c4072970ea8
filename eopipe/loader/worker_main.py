"""The program that fills slots of a ring: `python -m eopipe.loader.worker_main`, started by `crew`.

It reads lines of JSON: first what to cut from and where the ring is, then pieces of batches, and answers each with
a line: the slot, and what went wrong. It ends with its input, or with its parent.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from eopipe.chips.chips import Normaliser
from eopipe.errors import EopipeError
from eopipe.launch.world import die_with_parent
from eopipe.loader.chip_reader import ChipReader, ChipRequest, ChipSource
from eopipe.loader.shared_memory import SharedMemorySlots, SlotLayout


@dataclass(frozen=True)
class WorkerSetup:
    """What a producer is told first: types of stored numbers and labels, and a budget in bytes."""

    sources: list[ChipSource]
    ring: SlotLayout
    dtype: str
    label: str
    budget: int
    normaliser: Normaliser | None

    def cutter(self) -> ChipReader:
        """Cuts what the ring holds."""
        dtype, label = np.dtype(self.dtype), np.dtype(self.label)
        return ChipReader(self.sources, self.ring.chip, dtype, self.budget, label, self.normaliser)

    def line(self, file: int) -> str:
        """The brief as a line, with the ring's file and the parent."""
        return json.dumps(asdict(self) | {"file": file, "parent": os.getpid()})


def main() -> int:
    """Fill slots until the input ends."""
    told = json.loads(sys.stdin.readline())
    die_with_parent(told["parent"])
    sources, see = [ChipSource(**source) for source in told["sources"]], told["normaliser"]
    shape, normaliser = SlotLayout(**told["ring"]), Normaliser(**see) if see else None
    cutter = WorkerSetup(sources, shape, told["dtype"], told["label"], told["budget"], normaliser).cutter()
    ring = SharedMemorySlots(shape, told["file"])
    for line in sys.stdin:
        print(json.dumps(_fill(json.loads(line), ring, cutter)), flush=True)
    return 0


def _fill(told: dict[str, Any], ring: SharedMemorySlots, cutter: ChipReader) -> dict[str, Any]:
    slot = int(told["slot"])
    try:
        for scene, window, *which in told["pieces"]:
            cutter.cut(ChipRequest(scene, tuple(window) if window else None, *which), ring.slots[slot])
    except EopipeError as error:
        return {"slot": slot, "code": error.code, "reason": str(error)}
    return {"slot": slot}


if __name__ == "__main__":
    sys.exit(main())
