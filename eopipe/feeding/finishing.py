"""From stored numbers to what a model sees: normalised, masked and turned, on the device."""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eopipe.samples.chips import Normaliser
from eopipe.samples.cutting import Rows
from eopipe.store import NO_LABEL

Numbers = npt.NDArray[np.int64]


class Finish:
    """Scale and offset of each scene, mean and deviation of each band, kept on the device."""

    def __init__(self, normaliser: Normaliser, scaling: list[tuple[float, float]], device: torch.device) -> None:
        self._device = device
        self._mean, self._std = (self._put(v)[:, None, None] for v in (normaliser.mean, normaliser.std))
        self._scaling = self._put(scaling).reshape(-1, 2, 1, 1, 1)

    def _put(self, values: object) -> Tensor:
        return torch.from_numpy(np.array(values, np.float32)).to(self._device)

    def __call__(self, rows: Rows, scenes: Numbers, ways: Numbers) -> tuple[Tensor, Tensor]:
        """Images (N, band, H, W) float32, 0 where invalid, and labels (N, H, W), 255 or NaN there; turned by `ways`.

        The numbers are those of `Normaliser`, bit by bit: the same operations in the same order.
        """
        shape, count = rows.image.shape, len(rows.image)
        images = torch.empty(shape, dtype=torch.float32, device=self._device)
        kind = torch.float32 if rows.label.dtype.kind == "f" else torch.int64
        labels = torch.empty((count, *shape[2:]), dtype=kind, device=self._device)
        # A GPU likes few large operations; a CPU is several times as fast while a sample stays in its cache.
        size = 1 if self._device.type == "cpu" else max(count, 1)
        for start in range(0, count, size):
            part = slice(start, start + size)
            images[part], labels[part] = self._part(rows[part], scenes[part], ways[part])
        return images, labels

    def _part(self, rows: Rows, scenes: Numbers, ways: Numbers) -> tuple[Tensor, Tensor]:
        images, invalid = self._floats(rows.image), self._move(rows.valid) == 0
        scale, offset = self._scaling[torch.from_numpy(scenes).to(self._device)].unbind(1)
        images.mul_(scale).add_(offset).sub_(self._mean).div_(self._std)
        images.masked_fill_(invalid[:, None], 0)
        labels = self._move(rows.label).masked_fill(invalid, math.nan if rows.label.dtype.kind == "f" else NO_LABEL)
        return turn_each(images, ways), turn_each(labels, ways)

    def _floats(self, stored: npt.NDArray[np.generic]) -> Tensor:
        if self._device.type == "cpu":
            # NumPy converts several times as fast as torch does.
            return torch.from_numpy(stored.astype(np.float32))
        return self._move(stored).to(torch.float32)

    def _move(self, stored: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(stored).to(self._device, non_blocking=True)


def turn(tensor: Tensor, way: int) -> Tensor:
    """One of the eight symmetries of the square, on the last two axes."""
    if way & 4:
        tensor = tensor.transpose(-1, -2)
    axes = [axis for axis, bit in ((-2, 2), (-1, 1)) if way & bit]
    return tensor.flip(axes) if axes else tensor


def turn_each(tensor: Tensor, ways: Numbers) -> Tensor:
    """Every sample of a batch by its own symmetry; few large operations rather than one for each sample."""
    if len(set(ways.tolist())) == 1:
        return turn(tensor, int(ways[0]))
    groups = [np.flatnonzero(ways == way) for way in range(8)]
    parts = [turn(tensor[_index(group, tensor)], way) for way, group in enumerate(groups) if len(group)]
    return torch.cat(parts)[_index(np.argsort(np.concatenate(groups)), tensor)]


def _index(numbers: Numbers, like: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(like.device)


def pin(rows: Rows) -> None:
    """Keep the pages of a slot in place, so that a GPU reads them by itself while the CPU goes on."""
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    for array in (rows.image, rows.valid, rows.label):
        torch.cuda.check_error(cudart.cudaHostRegister(array.ctypes.data, array.nbytes, 0))
