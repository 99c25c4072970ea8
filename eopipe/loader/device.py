"""Finish chips on a GPU: normalise, mask and apply symmetries, with the same result as `finish_chip` on a CPU."""

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
    """Normalises stored batches on the device, with scale and offset of each scene, mean and deviation of each band."""

    def __init__(self, normaliser: Normaliser, scaling: list[tuple[float, float]], device: torch.device) -> None:
        self._device = device
        self._mean, self._std = (self._to_device(values)[:, None, None] for values in (normaliser.mean, normaliser.std))
        self._scaling = self._to_device(scaling).reshape(-1, 2, 1, 1, 1)

    def _to_device(self, values: object) -> Tensor:
        return torch.from_numpy(np.array(values, np.float32)).to(self._device)

    def __call__(
        self, images: Tensor, valid: Tensor, labels: Tensor, scenes: IntArray, symmetries: IntArray
    ) -> tuple[Tensor, Tensor]:
        """Images (N, band, H, W) float32 and labels (N, H, W), 255 or NaN where invalid, after `symmetries`.

        Bit for bit equal to `finish_chip`: the same operations in the same order. The reader has filled pixels without
        data in the stored numbers; an image of nothing else is 0.
        """
        images, invalid = images.to(torch.float32), valid == 0
        scale, offset = self._scaling[_index(scenes, images)].unbind(1)
        images.mul_(scale).add_(offset).sub_(self._mean).div_(self._std)
        images.masked_fill_(invalid.flatten(1).all(1)[:, None, None, None], 0)
        if labels.is_floating_point():
            labels = labels.masked_fill_(invalid, math.nan)
        else:
            labels = labels.to(torch.int64).masked_fill_(invalid, NO_LABEL)
        return apply_symmetries(images, symmetries), apply_symmetries(labels, symmetries)


def apply_tensor_symmetry(tensor: Tensor, symmetry: int) -> Tensor:
    """Apply one of the eight symmetries of the square to the last two axes."""
    if symmetry & 4:
        tensor = tensor.transpose(-1, -2)
    axes = [axis for axis, bit in ((-2, 2), (-1, 1)) if symmetry & bit]
    return tensor.flip(axes) if axes else tensor


def apply_symmetries(tensor: Tensor, symmetries: IntArray) -> Tensor:
    """Apply to every sample of a batch its own symmetry; a few large operations rather than one for each sample."""
    if len(set(symmetries.tolist())) == 1:
        return apply_tensor_symmetry(tensor, int(symmetries[0]))
    groups = [np.flatnonzero(symmetries == symmetry) for symmetry in range(8)]
    parts = [
        apply_tensor_symmetry(tensor[_index(group, tensor)], symmetry)
        for symmetry, group in enumerate(groups)
        if len(group)
    ]
    return torch.cat(parts)[_index(np.argsort(np.concatenate(groups)), tensor)]


def _index(numbers: IntArray, reference: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(reference.device)


@dataclass(frozen=True)
class DeviceCopy:
    """An asynchronous copy of a batch: image, valid and label on the GPU, and the event at the end of the copy."""

    batch: LoadedBatch
    tensors: tuple[Tensor, Tensor, Tensor]
    copied: "torch.cuda.Event"

    @property
    def request(self) -> BatchRequest:
        return self.batch.request

    def ready_tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The tensors, for use on the current stream: the GPU waits for the copy, the CPU does not."""
        stream = torch.cuda.current_stream(self.tensors[0].device)
        stream.wait_event(self.copied)
        for tensor in self.tensors:
            # Their memory belongs to the copy stream, which must not reuse it while this one works.
            tensor.record_stream(stream)
        return self.tensors

    def wait_until_copied(self) -> LoadedBatch:
        """Wait for the end of the copy; return the batch in its slot, which may be freed then."""
        self.copied.synchronize()
        return self.batch


class HostToDeviceCopier:
    """Copies slots to the GPU asynchronously, from page-locked (pinned) memory, on a stream of its own."""

    def __init__(self, ring: SharedMemorySlots, device: torch.device) -> None:
        self._device = device
        self._copy_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        for slot in ring.slots:
            for array in (slot.image, slot.valid, slot.label):
                torch.cuda.check_error(cudart.cudaHostRegister(array.ctypes.data, array.nbytes, 0))

    def start_copy(self, batch: LoadedBatch) -> DeviceCopy:
        """Start the asynchronous copy of a batch."""
        chips = batch.chips
        with torch.cuda.stream(self._copy_stream):
            image, valid, label = (
                torch.from_numpy(array).to(self._device, non_blocking=True)
                for array in (chips.image, chips.valid, chips.label)
            )
            return DeviceCopy(batch, (image, valid, label), self._copy_stream.record_event())
