"""Batches in memory that processes share: a ring of slots, filled and used again and again, never sent."""

import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from eopipe.samples.cutting import Rows

PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class Shape:
    """A ring: number of slots, chips of a slot, bands, edge of a chip in pixels, types of numbers and labels."""

    slots: int
    rows: int
    bands: int
    chip: int
    dtype: str
    label: str = "|u1"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes that image, mask and label of a slot take, in whole pages."""
        mask = self.rows * self.chip**2
        image = mask * self.bands * np.dtype(self.dtype).itemsize
        label = mask * np.dtype(self.label).itemsize
        return -(-image // PAGE) * PAGE, -(-mask // PAGE) * PAGE, -(-label // PAGE) * PAGE

    @property
    def nbytes(self) -> int:
        """Bytes of the ring."""
        return self.slots * sum(self.sizes)


class Ring:
    """Slots in a file without a name: its memory goes with the last process that has it open, however that ends.

    Pages that no batch needs are never taken.
    """

    def __init__(self, shape: Shape, file: int | None = None) -> None:
        self.shape = shape
        self.file = os.memfd_create("eopipe-ring") if file is None else file
        if file is None:
            os.ftruncate(self.file, shape.nbytes)
        self.memory = mmap.mmap(self.file, shape.nbytes)
        self.slots = [self._slot(number) for number in range(shape.slots)]

    def _slot(self, number: int) -> Rows:
        shape, (image, mask, _) = self.shape, self.shape.sizes
        start = number * sum(shape.sizes)
        raster = (shape.rows, shape.chip, shape.chip)
        bands = (shape.rows, shape.bands, shape.chip, shape.chip)

        def view(offset: int, dtype: str, over: tuple[int, ...]) -> Any:
            return np.ndarray(over, dtype, self.memory, start + offset)

        return Rows(view(0, shape.dtype, bands), view(image, "u1", raster), view(image + mask, shape.label, raster))
