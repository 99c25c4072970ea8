"""What each strategy of training costs: milliseconds a step and peak memory, in rounds that take turns.

    python benchmarks/strategies.py [--width 16] [--chip 64] [--batch 16] [--rounds 5] [--steps 5] [--device auto]

Starts one and two processes through torchrun. Each round times a few steps of every strategy, so that what else the
machine does hits all alike; the median of the rounds is told, in Markdown. On a GPU the peak is that of the
strategy; on CPU it is that of the process since it began, the same in all lines of a table.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SINGLE: dict[str, dict[str, Any]] = {
    "single": {},
    "single, deterministic (4 shards)": {"deterministic": True},
    "single, accumulate 2": {"accumulate": 2},
    "single, bf16": {"precision": "bf16"},
    "single, fp16": {"precision": "fp16"},
    "single, compile": {"compile": True},
    "single, channels_last": {"channels_last": True},
    "single, recompute": {"recompute": True},
}
PAIR: dict[str, dict[str, Any]] = {
    "2 x DDP": {},
    "2 x deterministic (4 shards)": {"deterministic": True},
    "2 x FSDP2": {"strategy": "fsdp"},
    "2 x DDP, accumulate 2": {"accumulate": 2},
}


def words() -> argparse.Namespace:
    """What to measure."""
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"width": 16, "depth": 3, "chip": 64, "batch": 16, "rounds": 5, "steps": 5}.items():
        told.add_argument(f"--{name}", type=int, default=value)
    told.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    return told.parse_args()


def main() -> None:
    """Start the processes, or be one of them."""
    if "EOPIPE_STRATEGIES" in os.environ:
        work(words())
        return
    print("| strategy | ms/step | peak MB of a process |\n|---|---|---|", flush=True)
    for size in (1, 2):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        environment = os.environ | {"EOPIPE_STRATEGIES": "1", "OMP_NUM_THREADS": "1"}
        subprocess.run([*torchrun, str(Path(__file__)), *sys.argv[1:]], env=environment, check=True)


def work(told: argparse.Namespace) -> None:
    """Time every strategy of this number of processes."""
    from eopipe.launch.world import exit_now, join_world

    world = join_world(told.device, 600, 1)
    runs = {name: Run(told, world, dict(ways)) for name, ways in (SINGLE if world.size == 1 else PAIR).items()}
    for run in runs.values():
        run.steps(2)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(told.rounds):
        for name, run in runs.items():
            times[name].append(run.steps(told.steps))
    for name, took in times.items():
        if world.is_first:
            print(f"| {name} | {1000 * statistics.median(took):.1f} | {runs[name].peak:.0f} |", flush=True)
    exit_now(0)


class Run:
    """One strategy with a model and a batch of its own."""

    def __init__(self, told: argparse.Namespace, world: Any, ways: dict[str, Any]) -> None:
        import numpy as np
        import torch

        from eopipe.loader.loader import Batch
        from eopipe.loader.prefetch import BatchRequest
        from eopipe.models import Architecture
        from eopipe.training.losses import loss_of
        from eopipe.training.memory_fit import MemoryFit
        from eopipe.training.step import TrainStep
        from eopipe.training_job import Settings

        fit = MemoryFit(ways.get("accumulate", 1), ways.pop("recompute", False))
        plain = {"width": told.width, "depth": told.depth, "batch": told.batch, "processes": world.size}
        settings = Settings(**plain | ways)
        model = Architecture("unet", 4, 2, told.width, told.depth).build()
        self.world, self.train_step, self.at, self.peak = (
            world,
            TrainStep(model, settings, loss_of(settings), world, fit),
            0,
            0.0,
        )
        count = told.batch // world.size
        images = torch.randn(count, 4, told.chip, told.chip, device=world.device)
        self.batch = Batch(images, (images[:, 0] > 0).long(), BatchRequest("train", np.arange(count)))

    def steps(self, count: int) -> float:
        """Seconds of a step, on average over a few."""
        import torch

        gpu = self.world.device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        self.world.sum(torch.zeros(1, device=self.world.device))
        began = time.perf_counter()
        for _ in range(count):
            self.train_step(self.batch, self.at, 1e-3, torch.zeros((), device=self.world.device))
            self.at += 1
        if gpu:
            torch.cuda.synchronize()
        self.peak = max(self.peak, torch.cuda.max_memory_allocated() / 1e6 if gpu else peak_of_process())
        return (time.perf_counter() - began) / count


def peak_of_process() -> float:
    """Most memory that this process has had, in MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
