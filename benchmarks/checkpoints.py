"""The cost of a checkpoint: its size, the time the training waits for it, until it is on disk, and to restore it.

    python benchmarks/checkpoints.py [FOLDER] [--widths 16 64] [--rounds 5]

The state belongs to a U-Net trained with AdamW: weights and two moments. The training waits only for `copy`; files,
digests, fsync and rename run in a thread. Restoring checks every digest, with the files still in the page cache.
`bare` is `torch.save` of the same tensors, neither synced nor checked. The sizes are measured in alternation; prints
the medians of the rounds in Markdown.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def milliseconds(function: Callable[[], Any]) -> float:
    """The duration of a call."""
    start = time.perf_counter()
    function()
    return 1e3 * (time.perf_counter() - start)


class State:
    """The state of one model, and its folder."""

    def __init__(self, folder: Path, width: int) -> None:
        import torch

        from eopipe.checkpoints import checkpoint
        from eopipe.checkpoints.manager import CheckpointWriter
        from eopipe.models import Architecture

        model = Architecture("unet", 10, 3, width, 4).build()
        tensors = {name: value.detach() for name, value in model.state_dict().items()}
        names = ("exp_avg", "exp_avg_sq")
        moments = {f"{n}.{name}": torch.randn(p.shape) for n, p in enumerate(model.parameters()) for name in names}
        self.parts = {"model": tensors, "optimiser": moments}
        self.folder, self.step = folder / str(width), 0
        self.folder.mkdir()
        save = partial(checkpoint.save, keep=2, identity=None, token=0, fence=lambda: None)
        self.writer = CheckpointWriter(partial(save, self.folder))

    @property
    def megabytes(self) -> float:
        """Size of the tensors."""
        return sum(t.numel() * t.element_size() for part in self.parts.values() for t in part.values()) / 1e6

    def measure(self) -> list[float]:
        """Milliseconds of copy, of writing, of restoring, and of torch.save."""
        import torch

        from eopipe.checkpoints import checkpoint
        from eopipe.checkpoints.checkpoint import Progress

        self.step += 1
        copy = milliseconds(partial(self.writer.put, Progress(self.step), self.parts))
        write, restore = milliseconds(self.writer.wait), milliseconds(partial(checkpoint.restore, self.folder, None))
        return [copy, write, restore, milliseconds(partial(torch.save, self.parts, self.folder / "bare"))]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="a folder of the disk to measure")
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        states = [State(Path(folder), width) for width in options.widths]
        for state in states:
            # Warm-up: the first copy allocates its buffers.
            state.measure()
        rounds = [[state.measure() for state in states] for _ in range(options.rounds)]
    print("| width | MB | copy (training waits) ms | until it is safe ms | restore ms | bare torch.save ms |")
    print("|---:|---:|---:|---:|---:|---:|")
    for number, (width, state) in enumerate(zip(options.widths, states, strict=True)):
        medians = [statistics.median(row[number][column] for row in rounds) for column in range(4)]
        print(f"| {width} | {state.megabytes:.1f} | {' | '.join(f'{median:.1f}' for median in medians)} |")


if __name__ == "__main__":
    main()
