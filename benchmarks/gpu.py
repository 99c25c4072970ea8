"""Training throughput on a GPU: samples a second, waiting for data, and memory, with AMP, compile and recompute.

    python benchmarks/gpu.py [CACHE] [--edge 4096] [--width 64] [--depth 4] [--batch 32] [--steps 30] [--workers 2]

Builds in CACHE (once) a scene of 10 bands and trains a U-Net on chips of 256 x 256 x 10 of it, each configuration in a
process of its own. `in memory` trains on one batch that stays on the GPU: the upper limit. `from disk` reads shuffled
blocks as `eopipe train` does. `waiting` is the share of that time in which the loop waits for a batch, with the GPU
idle; `busy` the share of the time in which kernels run, by torch's profiler. Peak memory is measured by torch's
allocator. The table is Markdown.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from loader_scene import BANDS, CHIP, NAMES, corners_of, store

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"precision": "bf16"},
    "bf16, channels_last": {"precision": "bf16", "channels_last": True},
    "bf16, compile": {"precision": "bf16", "compile": True},
    "bf16, compile, channels_last": {"precision": "bf16", "compile": True, "channels_last": True},
    "bf16, recompute": {"precision": "bf16", "recompute": True},
}
WARM_UP_STEPS = 5


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "eopipe-gpu")
    sizes = {"edge": 4096, "width": 64, "depth": 4, "batch": 32, "steps": 30, "workers": 2}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--configuration", choices=CONFIGURATIONS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Build the scene and start a process for each configuration, or be one of them."""
    import torch

    options = parse_arguments()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks/gpu.py measures a GPU, and torch finds none here; run it on a node that has one")
    folder = options.cache / f"scene-{options.edge}"
    if options.configuration:
        measure_configuration(options, folder, "cuda")
        return
    build(folder, options.edge)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| configuration | in memory, chips/s | from disk, chips/s | waiting | busy | peak MB |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    for configuration in CONFIGURATIONS:
        subprocess.run(
            [*torchrun, __file__, *sys.argv[1:], "--configuration", configuration], env=os.environ, check=True
        )


def build(folder: Path, edge: int) -> None:
    """Build the scene unless it exists."""
    import numpy as np
    from landscape import reflectance

    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        store(folder, np.stack([reflectance(edge, number) for number in range(BANDS)]))
        (folder / "done").touch()


def measure_configuration(options: argparse.Namespace, folder: Path, device: str) -> None:
    """Measure one configuration and print its row."""
    from eopipe.launch.world import exit_now, join_world

    run = Run(options, folder, join_world(device, 600, 1))
    run.steps(run.repeated_batch(), WARM_UP_STEPS)
    memory_rate = run.steps(run.repeated_batch(), options.steps)[0]
    batches = run.loader.stream(run.requests(2 * WARM_UP_STEPS + 2 * options.steps))
    run.steps(batches, WARM_UP_STEPS)
    disk_rate, waiting = run.steps(batches, options.steps)
    busy = run.busy(batches, WARM_UP_STEPS)
    run.loader.close()
    rates = f"{memory_rate:.0f} | {disk_rate:.0f}"
    print(f"| {options.configuration} | {rates} | {waiting:.1%} | {busy} | {run.peak:.0f} |", flush=True)
    exit_now(0)


class Run:
    """A training with one configuration."""

    def __init__(self, options: argparse.Namespace, folder: Path, world: Any) -> None:
        from loader_eopipe import job_of
        from loader_scene import Task

        from eopipe.loader.loader import ChipLoader
        from eopipe.models import Architecture
        from eopipe.training.losses import loss_of
        from eopipe.training.parallel import MemoryFit
        from eopipe.training.step import TrainStep

        overrides = dict(CONFIGURATIONS[options.configuration])
        fit = MemoryFit(1, overrides.pop("recompute", False))
        job = job_of(Task(folder, corners_of(options.edge, "aligned"), options.workers, 1, 0), "blocks", 1024)
        settings = replace(job.settings, batch=options.batch, **overrides)
        self.world, self.step, self.batch = world, 0, options.batch
        model = Architecture("unet", len(NAMES), 3, options.width, options.depth).build()
        self.loader = ChipLoader(job.replace(settings=settings), world.device)
        self.train_step = TrainStep(model, settings, loss_of(settings), world, fit)

    def repeated_batch(self) -> Iterator[Any]:
        """Repeat one batch."""
        import numpy as np
        import torch

        from eopipe.loader.loader import Batch
        from eopipe.loader.prefetch import BatchRequest

        images = torch.randn(self.batch, BANDS, CHIP, CHIP, device=self.world.device)
        batch = Batch(images, (images[:, 0] > 0).long(), BatchRequest("train", np.arange(self.batch)))
        while True:
            yield batch

    def requests(self, steps: int) -> Iterator[Any]:
        """Requests of whole batches, over as many epochs as needed."""
        from eopipe.loader.prefetch import BatchRequest

        steps_per_epoch = max(self.loader.count("train") // self.batch, 1)
        for epoch, step_of_epoch in (divmod(step, steps_per_epoch) for step in range(steps)):
            yield BatchRequest("train", self.loader.order.step(epoch, step_of_epoch, self.batch), epoch)

    def steps(self, batches: Iterator[Any], count: int) -> tuple[float, float]:
        """Chips a second over `count` steps, and the share of the time spent waiting for a batch."""
        import torch

        waiting, start = 0.0, time.perf_counter()
        for _ in range(count):
            before = time.perf_counter()
            batch = next(batches)
            waiting += time.perf_counter() - before
            # A step ends with its loss on the CPU, which synchronises the GPU.
            self.train_step(batch, self.step, 1e-3, torch.zeros((), device=self.world.device))
            self.step += 1
        seconds = time.perf_counter() - start
        return count * self.batch / seconds, waiting / seconds

    def busy(self, batches: Iterator[Any], count: int) -> str:
        """Share of the time in which kernels run."""
        from torch.profiler import ProfilerActivity, profile

        from eopipe.telemetry.timing import busy_share, kernel_intervals

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            self.steps(batches, count)
        intervals = kernel_intervals(trace.events())
        return f"{busy_share(intervals):.1%}" if intervals else "not measured"

    @property
    def peak(self) -> float:
        """Peak memory of torch on the GPU, in MB."""
        import torch

        return torch.cuda.max_memory_allocated() / 1e6 if self.world.device.type == "cuda" else 0.0


if __name__ == "__main__":
    main()
