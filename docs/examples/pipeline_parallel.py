"""Pipeline parallelism: the encoder of eopipe's ConvNeXt on one process, its decoder on another.

    torchrun --standalone --nproc-per-node 2 docs/examples/pipeline_parallel.py [--schedule 1f1b] [--steps 5]

For models that one device does not hold. The batch goes through as micro-batches (torch.distributed.pipelining):
while the decoder works on one, the encoder works on the next. `gpipe` goes forward over all of them, then backward
(Huang et al. 2019, arXiv:1811.06965), and keeps the activations of all; `1f1b` goes backward over each as soon as it
can (Narayanan et al. 2019, arXiv:1806.03377), and keeps as many activations as there are stages. Losses and
gradients equal the whole model's on one process, to the rounding of sums in another order.

A part is the whole model without the blocks that the other one has, so parameters keep their names: state
dictionaries of the two, put together, load into `eopipe.models.networks.ConvNeXt` with a linear head, since the
image stays with the encoder.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

from eopipe.models import LINEAR_HEAD
from eopipe.models.networks import ConvNeXt

BANDS, CLASSES, DEPTH, CHIP, BATCH, MICRO_BATCHES = 4, 3, 2, 32, 8, 4
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Encoder(ConvNeXt):
    """From images to the maps of all levels: the skip connections cross over to the other stage."""

    def __init__(self, bands: int, classes: int, depth: int) -> None:
        super().__init__(bands, classes, depth, head=LINEAR_HEAD)
        del self.up, self.head

    def forward(self, x_NCHW: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Maps (N, C, H, W), the finest first."""
        levels = [self.stem(x_NCHW)]
        for step in self.down:
            levels.append(step(levels[-1]))
        # Only what is contiguous can be sent.
        return tuple(level.contiguous() for level in levels)


class Decoder(ConvNeXt):
    """From the maps of all levels to logits."""

    def __init__(self, bands: int, classes: int, depth: int) -> None:
        super().__init__(bands, classes, depth, head=LINEAR_HEAD)
        del self.stem, self.down

    def forward(self, *levels: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        for level in levels:
            if level.requires_grad:
                # Its gradient is sent back; the gradient of a skip would be a slice of a wider one.
                level.register_hook(torch.Tensor.contiguous)
        *finer, x_NCHW = levels
        for step in self.up:
            wide = functional.interpolate(x_NCHW, scale_factor=2.0, mode="nearest")
            x_NCHW = step(torch.cat([wide, finer.pop()], 1))
        logits: Tensor = self.head(x_NCHW)
        return logits


def batch_of(step: int) -> tuple[Tensor, Tensor]:
    """Images and labels of a step: the class is told by the brightest of three bands. The same on all processes."""
    draw = torch.Generator().manual_seed(step)
    x_NCHW = torch.randn(BATCH, BANDS, CHIP, CHIP, generator=draw)
    return x_NCHW, x_NCHW[:, :CLASSES].argmax(1)


def part_of(rank: int) -> nn.Module:
    """The stage of a rank; every process starts with the random weights of the whole model."""
    torch.manual_seed(0)
    return (Encoder, Decoder)[rank](BANDS, CLASSES, DEPTH)


def train(schedule: str, steps: int) -> tuple[list[float], nn.Module]:
    """Train this process' stage; the losses (on the last stage) and the stage, with the gradients of the last step."""
    rank, device = dist.get_rank(), place()
    module = part_of(rank).to(device)
    stage = PipelineStage(module, rank, dist.get_world_size(), device)
    # Each micro-batch counts for its share of the mean over the batch.
    run = SCHEDULES[schedule](stage, MICRO_BATCHES, loss_fn=functional.cross_entropy, scale_grads=True)
    optimiser = torch.optim.AdamW(module.parameters(), 1e-3)
    told = []
    for step in range(steps):
        x_NCHW, y_NHW = (tensor.to(device) for tensor in batch_of(step))
        optimiser.zero_grad()
        losses: list[Tensor] = []
        run.step(x_NCHW) if rank == 0 else run.step(target=y_NHW, losses=losses)
        optimiser.step()
        told += [float(torch.stack(losses).detach().mean())] if losses else []
    return told, module


def place() -> torch.device:
    """A GPU for each process, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def main() -> None:
    """Train as torchrun says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", choices=sorted(SCHEDULES), default="1f1b")
    parser.add_argument("--steps", type=int, default=5)
    asked = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    for step, loss in enumerate(train(asked.schedule, asked.steps)[0]):
        print(f"step={step} loss={loss:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
