"""Batches on their way to a GPU: copied on a stream of their own while the batch before is computed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from eopipe.loader.prefetch import Taken, Wanted
from eopipe.loader.shared_memory import Ring


@dataclass(frozen=True)
class Moving:
    """A batch whose copy has been started: image, valid and label on the GPU, and the event at the end of the copy."""

    taken: Taken
    tensors: tuple[Tensor, Tensor, Tensor]
    done: "torch.cuda.Event"

    @property
    def wanted(self) -> Wanted:
        """What was wanted."""
        return self.taken.wanted

    def arrived(self) -> tuple[Tensor, Tensor, Tensor]:
        """The tensors, for work on the current stream: the GPU waits for the copy, the CPU goes on."""
        stream = torch.cuda.current_stream(self.tensors[0].device)
        stream.wait_event(self.done)
        for tensor in self.tensors:
            # Their memory belongs to the other stream, which must not take it back while this one works.
            tensor.record_stream(stream)
        return self.tensors

    def left(self) -> Taken:
        """The batch in its slot, when nothing reads the slot any more."""
        self.done.synchronize()
        return self.taken


class Mover:
    """Copies slots of a ring, whose pages it keeps in place so that the GPU reads them by itself."""

    def __init__(self, ring: Ring, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        for slot in ring.slots:
            for array in (slot.image, slot.valid, slot.label):
                torch.cuda.check_error(cudart.cudaHostRegister(array.ctypes.data, array.nbytes, 0))

    def move(self, taken: Taken) -> Moving:
        """Start the copy of a batch."""
        rows = taken.rows
        with torch.cuda.stream(self._stream):
            image, valid, label = (
                torch.from_numpy(array).to(self._device, non_blocking=True)
                for array in (rows.image, rows.valid, rows.label)
            )
            return Moving(taken, (image, valid, label), self._stream.record_event())
