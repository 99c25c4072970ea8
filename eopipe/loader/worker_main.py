"""Main program of a data-loader worker: `python -m eopipe.loader.worker_main`, started by `WorkerPool`.

It reads lines of JSON: first its setup (sources and shared memory), then chip requests, and answers each with a
line: the slot, and the error if any. It exits at the end of its input, or with its parent.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from eopipe.chips.chips import Normaliser
from eopipe.errors import EopipeError
from eopipe.launch.world import die_with_parent
from eopipe.loader.chip_reader import ChipReader, ChipRequest, ChipSource, SharedMemorySlots, SlotLayout, TrainingPlaces


@dataclass(frozen=True)
class WorkerSetup:
    """First message to a data-loader worker: sources, slots, stored data types, and the cache budget in bytes.

    With `crop`, the edge of random crops, also the samples (scene, row, column) whose pixels may have a label in one.
    """

    sources: list[ChipSource]
    ring: SlotLayout
    dtype: str
    label: str
    budget: int
    normaliser: Normaliser | None
    crop: int = 0
    places: Sequence[Sequence[int]] = ()

    def chip_reader(self) -> ChipReader:
        """Build the chip reader that fills the slots."""
        dtype, label = np.dtype(self.dtype), np.dtype(self.label)
        places = TrainingPlaces(np.array(self.places, np.int64).reshape(-1, 3), self.ring.chip)
        options = (label, self.normaliser, self.crop, places)
        return ChipReader(self.sources, self.ring.chip, dtype, self.budget, *options)

    def json_line(self, file: int) -> str:
        """The setup as a line of JSON, with the file descriptor of the shared memory and the parent's process id."""
        return json.dumps(asdict(self) | {"file": file, "parent": os.getpid()})


def main() -> int:
    """Fill slots until the end of the input."""
    setup = json.loads(sys.stdin.readline())
    die_with_parent(setup["parent"])
    sources, moments = [ChipSource(**source) for source in setup["sources"]], setup["normaliser"]
    layout, normaliser = SlotLayout(**setup["ring"]), Normaliser(**moments) if moments else None
    types = (setup["dtype"], setup["label"], setup["budget"])
    reader = WorkerSetup(sources, layout, *types, normaliser, setup["crop"], setup["places"]).chip_reader()
    ring = SharedMemorySlots(layout, setup["file"])
    for line in sys.stdin:
        print(json.dumps(_fill(json.loads(line), ring, reader)), flush=True)
    return 0


def _fill(task: dict[str, Any], ring: SharedMemorySlots, reader: ChipReader) -> dict[str, Any]:
    slot = int(task["slot"])
    try:
        for scene, window, *fields in task["requests"]:
            request = ChipRequest(scene, tuple(window) if window else None, *fields)
            reader.read(request, ring.batch(slot, reader.edge_of(request)))
    except EopipeError as error:
        return {"slot": slot, "code": error.code, "reason": str(error)}
    return {"slot": slot}


if __name__ == "__main__":
    sys.exit(main())
