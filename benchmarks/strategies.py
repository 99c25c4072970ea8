"""Cost of each training strategy: milliseconds a step and peak memory, in alternating rounds.

    python benchmarks/strategies.py [--width 16] [--chip 64] [--batch 16] [--rounds 5] [--steps 5] [--device auto]

Starts one and two processes through torchrun. Each round times a few steps of every strategy, so that other load
of the machine affects all alike; prints the median of the rounds in Markdown. On a GPU the peak is the strategy's
own; on a CPU it is the peak of the process since its start, the same in all rows of a table.
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


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"width": 16, "depth": 3, "chip": 64, "batch": 16, "rounds": 5, "steps": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    return parser.parse_args()


def main() -> None:
    """Start the processes, or be one of them."""
    if "EOPIPE_STRATEGIES" in os.environ:
        measure_strategies(parse_arguments())
        return
    print("| strategy | ms/step | peak MB of a process |\n|---|---|---|", flush=True)
    for size in (1, 2):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        environment = os.environ | {"EOPIPE_STRATEGIES": "1", "OMP_NUM_THREADS": "1"}
        subprocess.run([*torchrun, str(Path(__file__)), *sys.argv[1:]], env=environment, check=True)


def measure_strategies(options: argparse.Namespace) -> None:
    """Time every strategy of this number of processes."""
    from eopipe.launch.world import exit_now, join_world

    world = join_world(options.device, 600, 1)
    strategies = SINGLE if world.size == 1 else PAIR
    runs = {name: Run(options, world, dict(overrides)) for name, overrides in strategies.items()}
    for run in runs.values():
        run.steps(2)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            times[name].append(run.steps(options.steps))
    for name, seconds in times.items():
        if world.is_first:
            print(f"| {name} | {1000 * statistics.median(seconds):.1f} | {runs[name].peak:.0f} |", flush=True)
    exit_now(0)


class Run:
    """One strategy with its own model and batch."""

    def __init__(self, options: argparse.Namespace, world: Any, overrides: dict[str, Any]) -> None:
        import numpy as np
        import torch

        from eopipe.loader.loader import Batch
        from eopipe.loader.prefetch import BatchRequest
        from eopipe.models import Architecture
        from eopipe.training.losses import loss_of
        from eopipe.training.parallel import MemoryFit
        from eopipe.training.step import TrainStep
        from eopipe.training_job import Settings

        fit = MemoryFit(overrides.get("accumulate", 1), overrides.pop("recompute", False))
        defaults = {"width": options.width, "depth": options.depth, "batch": options.batch, "processes": world.size}
        settings = Settings(**defaults | overrides)
        model = Architecture("unet", 4, 2, options.width, options.depth).build()
        self.world, self.train_step, self.step, self.peak = (
            world,
            TrainStep(model, settings, loss_of(settings), world, fit),
            0,
            0.0,
        )
        count = options.batch // world.size
        images = torch.randn(count, 4, options.chip, options.chip, device=world.device)
        self.batch = Batch(images, (images[:, 0] > 0).long(), BatchRequest("train", np.arange(count)))

    def steps(self, count: int) -> float:
        """Seconds of a step, on average over a few."""
        import torch

        gpu = self.world.device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        self.world.sum(torch.zeros(1, device=self.world.device))
        start = time.perf_counter()
        for _ in range(count):
            self.train_step(self.batch, self.step, 1e-3, torch.zeros((), device=self.world.device))
            self.step += 1
        if gpu:
            torch.cuda.synchronize()
        self.peak = max(self.peak, torch.cuda.max_memory_allocated() / 1e6 if gpu else peak_of_process())
        return (time.perf_counter() - start) / count


def peak_of_process() -> float:
    """Peak memory of this process in MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
