"""What a GPU makes of a training: samples a second, waiting for data, and memory, with AMP, compile and recompute.

    python benchmarks/gpu.py [CACHE] [--edge 4096] [--width 64] [--depth 4] [--batch 32] [--steps 30] [--workers 2]

Builds in CACHE (once) a scene of 10 bands and trains a U-Net on chips of 256 x 256 x 10 of it, way by way, each in a
process of its own. `in memory` steps over one batch that lies on the GPU: the limit. `from disk` reads shuffled
blocks as `eopipe train` does. `waiting` is the share of that time in which the loop waits for a batch, with the GPU
idle; `busy` the share of the time in which kernels run, by torch's profiler. Peak memory is that of torch's
allocator. The table is Markdown.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loader_scene import BANDS, CHIP, NAMES, corners_of, store

WAYS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"precision": "bf16"},
    "bf16, channels_last": {"precision": "bf16", "channels_last": True},
    "bf16, compile": {"precision": "bf16", "compile": True},
    "bf16, compile, channels_last": {"precision": "bf16", "compile": True, "channels_last": True},
    "bf16, recompute": {"precision": "bf16", "recompute": True},
}
WARM = 5


def words() -> argparse.Namespace:
    """What to measure."""
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("cache", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "eopipe-gpu")
    sizes = {"edge": 4096, "width": 64, "depth": 4, "batch": 32, "steps": 30, "workers": 2}
    for name, value in sizes.items():
        told.add_argument(f"--{name}", type=int, default=value)
    told.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    return told.parse_args()


def main() -> None:
    """Make the scene and start a process for each way, or be one of them."""
    import torch

    told = words()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks/gpu.py measures a GPU, and torch finds none here; run it on a node that has one")
    folder = told.cache / f"scene-{told.edge}"
    if told.way:
        row(told, folder, "cuda")
        return
    build(folder, told.edge)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| way | in memory, chips/s | from disk, chips/s | waiting | busy | peak MB |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    for way in WAYS:
        subprocess.run([*torchrun, __file__, *sys.argv[1:], "--way", way], env=os.environ, check=True)


def build(folder: Path, edge: int) -> None:
    """Make the scene, unless it is there."""
    import numpy as np
    from landscape import reflectance

    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        store(folder, np.stack([reflectance(edge, number) for number in range(BANDS)]))
        (folder / "done").touch()


def row(told: argparse.Namespace, folder: Path, device: str) -> None:
    """Measure one way and print its line."""
    from eopipe.launch.world import exit_now, join_world

    run = Run(told, folder, join_world(device, 600, 1))
    run.steps(run.same(), WARM)
    memory = run.steps(run.same(), told.steps)[0]
    batches = run.loader.stream(run.requests(2 * WARM + 2 * told.steps))
    run.steps(batches, WARM)
    disk, waiting = run.steps(batches, told.steps)
    busy = run.busy(batches, WARM)
    run.loader.close()
    print(f"| {told.way} | {memory:.0f} | {disk:.0f} | {waiting:.1%} | {busy} | {run.peak:.0f} |", flush=True)
    exit_now(0)


class Run:
    """A training of one way."""

    def __init__(self, told: argparse.Namespace, folder: Path, world: Any) -> None:
        from loader_eopipe import job_of
        from loader_scene import Task

        from eopipe.loader.loader import ChipLoader
        from eopipe.models import Architecture
        from eopipe.training.losses import loss_of
        from eopipe.training.memory_fit import MemoryFit
        from eopipe.training.step import TrainStep

        ways = dict(WAYS[told.way])
        fit = MemoryFit(1, ways.pop("recompute", False))
        job = job_of(Task(folder, corners_of(told.edge, "aligned"), told.workers, 1, 0), "blocks", 1024)
        settings = job.settings.replace(batch=told.batch, **ways)
        self.world, self.at, self.batch = world, 0, told.batch
        model = Architecture("unet", len(NAMES), 3, told.width, told.depth).build()
        self.loader = ChipLoader(job.replace(settings=settings), world.device)
        self.train_step = TrainStep(model, settings, loss_of(settings), world, fit)

    def same(self) -> Iterator[Any]:
        """One batch, again and again."""
        import numpy as np
        import torch

        from eopipe.loader.loader import Batch
        from eopipe.loader.prefetch import BatchRequest

        images = torch.randn(self.batch, BANDS, CHIP, CHIP, device=self.world.device)
        batch = Batch(images, (images[:, 0] > 0).long(), BatchRequest("train", np.arange(self.batch)))
        while True:
            yield batch

    def requests(self, steps: int) -> Iterator[Any]:
        """Whole batches of as many epochs as it takes."""
        from eopipe.loader.prefetch import BatchRequest

        each = max(self.loader.count("train") // self.batch, 1)
        for epoch, turn in (divmod(step, each) for step in range(steps)):
            yield BatchRequest("train", self.loader.order.step(epoch, turn, self.batch), epoch)

    def steps(self, batches: Iterator[Any], count: int) -> tuple[float, float]:
        """Chips a second of so many steps, and the share of the time that went by waiting for a batch."""
        import torch

        waited, began = 0.0, time.perf_counter()
        for _ in range(count):
            before = time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - before
            # A step ends with its loss on the CPU, so that the GPU has nothing left to do.
            self.train_step(batch, self.at, 1e-3, torch.zeros((), device=self.world.device))
            self.at += 1
        took = time.perf_counter() - began
        return count * self.batch / took, waited / took

    def busy(self, batches: Iterator[Any], count: int) -> str:
        """The share of the time in which kernels run."""
        from torch.profiler import ProfilerActivity, profile

        from eopipe.telemetry.timing import busy_share, kernel_intervals

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            self.steps(batches, count)
        intervals = kernel_intervals(trace.events())
        return f"{busy_share(intervals):.1%}" if intervals else "not measured"

    @property
    def peak(self) -> float:
        """Most memory that torch had on the GPU, in MB."""
        import torch

        return torch.cuda.max_memory_allocated() / 1e6 if self.world.device.type == "cuda" else 0.0


if __name__ == "__main__":
    main()
