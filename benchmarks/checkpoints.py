"""What a checkpoint costs: its size, the time it takes from the training, the time until it is safe, and to restore.

    python benchmarks/checkpoints.py [FOLDER] [--widths 16 64] [--rounds 5]

The state is that of a U-Net trained by AdamW: weights and two moments. `copy` is all that a training waits for, the
rest goes on in a thread: files, digests, fsync and rename. Restoring checks every digest, with the files still in the
page cache. `bare` is `torch.save` of the same tensors, neither synced nor checked. The sizes take turns, medians of
the rounds are told, in Markdown.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds that it takes."""
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


class State:
    """The state of one model, and its folder."""

    def __init__(self, room: Path, width: int) -> None:
        import torch

        from eopipe.checkpoints import checkpoint
        from eopipe.checkpoints.writer import Writer
        from eopipe.models import Architecture

        model = Architecture("unet", 10, 3, width, 4).build()
        tensors = {name: value.detach() for name, value in model.state_dict().items()}
        names = ("exp_avg", "exp_avg_sq")
        moments = {f"{n}.{word}": torch.randn(p.shape) for n, p in enumerate(model.parameters()) for word in names}
        self.parts = {"model": tensors, "optimiser": moments}
        self.folder, self.step = room / str(width), 0
        self.folder.mkdir()
        save = partial(checkpoint.save, keep=2, identity=None, token=0, fence=lambda: None)
        self.writer = Writer(partial(save, self.folder))

    @property
    def megabytes(self) -> float:
        """Size of the tensors."""
        return sum(t.numel() * t.element_size() for part in self.parts.values() for t in part.values()) / 1e6

    def measure(self) -> list[float]:
        """Milliseconds of copy, of the rest of saving, of restoring, and of torch.save."""
        import torch

        from eopipe.checkpoints import checkpoint
        from eopipe.checkpoints.checkpoint import Progress

        self.step += 1
        copy = timed(partial(self.writer.put, Progress(self.step), self.parts))
        rest, restore = timed(self.writer.finish), timed(partial(checkpoint.restore, self.folder, None))
        return [copy, rest, restore, timed(partial(torch.save, self.parts, self.folder / "bare"))]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="a folder of the disk to measure")
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=told.folder) as room:
        states = [State(Path(room), width) for width in told.widths]
        for state in states:
            # The buffers of the first copy are new memory.
            state.measure()
        rounds = [[state.measure() for state in states] for _ in range(told.rounds)]
    print("| width | MB | copy (training waits) ms | until it is safe ms | restore ms | bare torch.save ms |")
    print("|---:|---:|---:|---:|---:|---:|")
    for number, (width, state) in enumerate(zip(told.widths, states, strict=True)):
        medians = [statistics.median(turn[number][what] for turn in rounds) for what in range(4)]
        print(f"| {width} | {state.megabytes:.1f} | {' | '.join(f'{median:.1f}' for median in medians)} |")


if __name__ == "__main__":
    main()
