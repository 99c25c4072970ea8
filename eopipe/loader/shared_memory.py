"""Batches in memory that processes share: a ring of slots, filled and used again and again, never sent."""

import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from eopipe.loader.chip_reader import ChipArrays

PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class SlotLayout:
    """A ring: number of slots, chips of a slot, bands, edge of a chip in pixels, and types of image and label."""

    slots: int
    rows: int
    bands: int
    chip: int
    dtype: str
    label: str = "u1"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes that image, valid mask and label of a slot take, in whole pages."""
        pixels = self.rows * self.chip**2
        image, label = pixels * self.bands * np.dtype(self.dtype).itemsize, pixels * np.dtype(self.label).itemsize
        return _pages(image), _pages(pixels), _pages(label)

    @property
    def nbytes(self) -> int:
        """Bytes of the ring."""
        return self.slots * sum(self.sizes)


class SharedMemorySlots:
    """Slots in a file without a name: its memory goes with the last process that has it open, however that ends.

    Pages that no batch needs are never taken.
    """

    def __init__(self, shape: SlotLayout, file: int | None = None) -> None:
        self.shape = shape
        self.file = os.memfd_create("eopipe-ring") if file is None else file
        if file is None:
            os.ftruncate(self.file, shape.nbytes)
        self.memory = mmap.mmap(self.file, shape.nbytes)
        self.slots = [self._slot(number) for number in range(shape.slots)]

    def _slot(self, number: int) -> ChipArrays:
        shape, (image, valid, label) = self.shape, self.shape.sizes
        start = number * (image + valid + label)
        raster = (shape.rows, shape.chip, shape.chip)
        bands = (shape.rows, shape.bands, shape.chip, shape.chip)

        def view(offset: int, dtype: str, over: tuple[int, ...]) -> Any:
            return np.ndarray(over, dtype, self.memory, start + offset)

        return ChipArrays(
            view(0, shape.dtype, bands), view(image, "u1", raster), view(image + valid, shape.label, raster)
        )


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
