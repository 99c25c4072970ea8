"""Which chips made a step go wrong."""

import numpy as np
import torch

from eopipe.arrays import IntArray
from eopipe.loader.loader import Batch, Feed
from eopipe.loader.prefetch import Wanted
from eopipe.training.partition import cut
from eopipe.training.step import Engine

MOST_TOLD = 8


def suspects(engine: Engine, feed: Feed, batch: Batch) -> str:
    """The chips of a step, over all workers, whose own loss is not finite; all of them where none is alone to blame."""
    marks = torch.zeros(feed.count("train"), device=engine.world.device)
    numbers = batch.wanted.numbers
    bad = [not np.isfinite(loss) for loss in engine.losses(cut(batch, [1] * len(numbers)))]
    marks[torch.from_numpy(numbers).to(marks.device)] = 1 + torch.tensor(bad, dtype=marks.dtype, device=marks.device)
    told = engine.world.sum(marks).cpu().numpy()
    return names(feed, np.flatnonzero(told == (2 if (told == 2).any() else 1)))


def names(feed: Feed, numbers: IntArray) -> str:
    """Scene, row and column of training samples; a few, and how many more."""
    rows = feed.samples["train"][numbers[:MOST_TOLD]]
    scenes = [feed.scenes(Wanted("train", numbers[at : at + 1]))[0] for at in range(len(rows))]
    told = [f"{s} (row {r}, column {c})" for s, (_, r, c) in zip(scenes, rows.tolist(), strict=True)]
    more = [f"{len(numbers) - MOST_TOLD} more"] if len(numbers) > MOST_TOLD else []
    return ", ".join(told + more)
