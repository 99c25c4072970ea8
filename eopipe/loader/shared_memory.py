"""Batches in shared memory: a ring buffer of slots that are refilled and never copied between processes."""

import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from eopipe.loader.chip_reader import ChipArrays

PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class SlotLayout:
    """Layout of the ring: slots, chips per slot, bands, edge of a chip in pixels, types of image and label."""

    slots: int
    chips: int
    bands: int
    chip: int
    dtype: str
    label: str = "u1"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of image, valid mask and label of a slot, in whole pages."""
        pixels = self.chips * self.chip**2
        image, label = pixels * self.bands * np.dtype(self.dtype).itemsize, pixels * np.dtype(self.label).itemsize
        return _page_aligned(image), _page_aligned(pixels), _page_aligned(label)

    @property
    def nbytes(self) -> int:
        """Bytes of the ring."""
        return self.slots * sum(self.sizes)


class SharedMemorySlots:
    """Slots in an anonymous file: its memory is freed with the last process that has it open, even a killed one.

    Pages that no batch needs are never allocated.
    """

    def __init__(self, layout: SlotLayout, file: int | None = None) -> None:
        self.layout = layout
        self.file = os.memfd_create("eopipe-ring") if file is None else file
        if file is None:
            os.ftruncate(self.file, layout.nbytes)
        self.memory = mmap.mmap(self.file, layout.nbytes)
        self.slots = [self.batch(number, layout.chip) for number in range(layout.slots)]

    def batch(self, number: int, edge: int) -> ChipArrays:
        """The memory of a slot as chips of an edge in pixels, at most the layout's."""
        layout, (image, valid, label) = self.layout, self.layout.sizes
        start = number * (image + valid + label)
        raster = (layout.chips, edge, edge)
        bands = (layout.chips, layout.bands, edge, edge)

        def view(offset: int, dtype: str, view_shape: tuple[int, ...]) -> Any:
            return np.ndarray(view_shape, dtype, self.memory, start + offset)

        return ChipArrays(
            view(0, layout.dtype, bands), view(image, "u1", raster), view(image + valid, layout.label, raster)
        )


def _page_aligned(size: int) -> int:
    return -(-size // PAGE) * PAGE
