"""From stored numbers to what a model sees, normalised, masked and turned, on a GPU: what `cutting.finish` does."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from eopipe.arrays import IntArray
from eopipe.chips.chips import Normaliser
from eopipe.loader.prefetch import BatchRequest, LoadedBatch
from eopipe.loader.shared_memory import SharedMemorySlots
from eopipe.tiles.store import NO_LABEL


class DeviceFinisher:
    """Scale and offset of each scene, mean and deviation of each band, kept on the device."""

    def __init__(self, normaliser: Normaliser, scaling: list[tuple[float, float]], device: torch.device) -> None:
        self._device = device
        self._mean, self._std = (self._put(v)[:, None, None] for v in (normaliser.mean, normaliser.std))
        self._scaling = self._put(scaling).reshape(-1, 2, 1, 1, 1)

    def _put(self, values: object) -> Tensor:
        return torch.from_numpy(np.array(values, np.float32)).to(self._device)

    def __call__(
        self, images: Tensor, valid: Tensor, labels: Tensor, scenes: IntArray, ways: IntArray
    ) -> tuple[Tensor, Tensor]:
        """Images (N, band, H, W) float32, 0 where invalid, and labels (N, H, W), 255 or NaN there; turned by `ways`.

        The numbers are those of `Normaliser`, bit by bit: the same operations in the same order.
        """
        images, invalid = images.to(torch.float32), valid == 0
        scale, offset = self._scaling[_index(scenes, images)].unbind(1)
        images.mul_(scale).add_(offset).sub_(self._mean).div_(self._std)
        images.masked_fill_(invalid[:, None], 0)
        if labels.is_floating_point():
            labels = labels.masked_fill_(invalid, math.nan)
        else:
            labels = labels.to(torch.int64).masked_fill_(invalid, NO_LABEL)
        return apply_symmetries(images, ways), apply_symmetries(labels, ways)


def apply_tensor_symmetry(tensor: Tensor, way: int) -> Tensor:
    """One of the eight symmetries of the square, on the last two axes."""
    if way & 4:
        tensor = tensor.transpose(-1, -2)
    axes = [axis for axis, bit in ((-2, 2), (-1, 1)) if way & bit]
    return tensor.flip(axes) if axes else tensor


def apply_symmetries(tensor: Tensor, ways: IntArray) -> Tensor:
    """Every sample of a batch by its own symmetry; few large operations rather than one for each sample."""
    if len(set(ways.tolist())) == 1:
        return apply_tensor_symmetry(tensor, int(ways[0]))
    groups = [np.flatnonzero(ways == way) for way in range(8)]
    parts = [
        apply_tensor_symmetry(tensor[_index(group, tensor)], way) for way, group in enumerate(groups) if len(group)
    ]
    return torch.cat(parts)[_index(np.argsort(np.concatenate(groups)), tensor)]


def _index(numbers: IntArray, like: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(like.device)


@dataclass(frozen=True)
class DeviceCopy:
    """A batch whose copy has been started: image, valid and label on the GPU, and the event at the end of the copy."""

    taken: LoadedBatch
    tensors: tuple[Tensor, Tensor, Tensor]
    done: "torch.cuda.Event"

    @property
    def request(self) -> BatchRequest:
        """The samples of the batch."""
        return self.taken.request

    def arrived(self) -> tuple[Tensor, Tensor, Tensor]:
        """The tensors, for work on the current stream: the GPU waits for the copy, the CPU goes on."""
        stream = torch.cuda.current_stream(self.tensors[0].device)
        stream.wait_event(self.done)
        for tensor in self.tensors:
            # Their memory belongs to the other stream, which must not take it back while this one works.
            tensor.record_stream(stream)
        return self.tensors

    def left(self) -> LoadedBatch:
        """The batch in its slot, when nothing reads the slot any more."""
        self.done.synchronize()
        return self.taken


class HostToDeviceCopier:
    """Copies slots of a ring, whose pages it keeps in place so that the GPU reads them by itself."""

    def __init__(self, ring: SharedMemorySlots, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        for slot in ring.slots:
            for array in (slot.image, slot.valid, slot.label):
                torch.cuda.check_error(cudart.cudaHostRegister(array.ctypes.data, array.nbytes, 0))

    def move(self, taken: LoadedBatch) -> DeviceCopy:
        """Start the copy of a batch."""
        chips = taken.chips
        with torch.cuda.stream(self._stream):
            image, valid, label = (
                torch.from_numpy(array).to(self._device, non_blocking=True)
                for array in (chips.image, chips.valid, chips.label)
            )
            return DeviceCopy(taken, (image, valid, label), self._stream.record_event())
