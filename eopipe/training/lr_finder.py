"""Which learning rate to train with: a short training whose rate rises until it diverges (Smith 2017).

The range test of arXiv:1506.01186. Model, data order, batch, loss and optimiser are those of the
training itself; only the processes are one, and nothing is written.
"""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arguments import Parser, check_inputs, parse
from eopipe.arrays import Float64Array
from eopipe.contract import stage
from eopipe.errors import BadInputError, UsageError
from eopipe.launch.world import StopRequest, World, configure_torch
from eopipe.training.data import TrainingData, TrainingInputs
from eopipe.training_job import Job, Knobs, Settings

if TYPE_CHECKING:
    from eopipe.loader.prefetch import Wanted
    from eopipe.training.loop import Loop

LOWEST, HIGHEST = 1e-6, 1.0
# Tenfolds of the rate over which losses are averaged: the noise of batches is no fall.
SPREAD = 0.25
# How many times the lowest loss so far is the end, and how much of the past this watch remembers.
TOO_HIGH, MEMORY = 4.0, 0.9
ROWS, BAR = 20, 40


@dataclass(frozen=True)
class Curve:
    """The loss before the step with each rate; `diverged` where it ended before the highest."""

    rates: Float64Array
    losses: Float64Array
    diverged: bool = False

    @property
    def smooth(self) -> Float64Array:
        """Losses averaged with their neighbours on both sides, by a bell."""
        places = np.log10(self.rates)
        bells = np.exp(-0.5 * ((places[:, None] - places) / SPREAD) ** 2)
        averaged: Float64Array = bells @ self.losses / bells.sum(1)
        return averaged

    @property
    def steepest(self) -> float:
        """The rate where the smooth loss falls fastest along the logarithm of the rate, before its lowest place.

        Raises BadInputError where it does not fall.
        """
        end = int(self.smooth.argmin()) + 1
        if end < 3:
            raise BadInputError(
                f"the loss falls at no learning rate from {LOWEST:g} on; "
                "look at the labels, set train.clip, or take more --steps"
            )
        slopes = np.gradient(self.smooth, np.log(self.rates))[:end]
        return float(self.rates[slopes.argmin()])

    @property
    def lowest(self) -> float:
        """The rate with the lowest smooth loss: higher ones only do harm."""
        return float(self.rates[self.smooth.argmin()])

    @property
    def suggested(self) -> float:
        """A tenth of the rate with the lowest loss, to two digits; not less than the steepest.

        The steepest alone is too low for classes of unequal size: what is learned first and fastest is their shares.
        """
        return float(f"{max(self.steepest, self.lowest / 10):.2g}")

    def drawn(self) -> list[str]:
        """The smooth curve as lines of text: rate, loss, a bar."""
        smooth, low = self.smooth, float(self.smooth.min())
        # What comes after the end of learning would make everything before it look alike.
        high = float(smooth[: int(smooth.argmin()) + 1].max())
        chosen = np.unique(np.linspace(0, len(smooth) - 1, ROWS).round().astype(int))
        shares = np.clip((smooth[chosen] - low) / max(high - low, 1e-12), 0, 1)
        rows = zip(self.rates[chosen], smooth[chosen], shares, strict=True)
        return [f"{rate:8.1e}  {loss:8.4f}  {'#' * round(BAR * share)}" for rate, loss, share in rows]


def rate(argv: list[str]) -> int:
    """Suggest a learning rate by a range test, with the arguments of `eopipe train`; nothing is written."""
    parser = Parser(
        prog="eopipe rate", description=rate.__doc__, epilog="and all of eopipe train --help", allow_abbrev=False
    )
    parser.add_argument("--steps", type=int, default=120, help="steps of the trial, 20 or more [%(default)s]")
    arguments, train_argv = parser.parse_known_args(argv)
    if arguments.steps < 20:
        raise UsageError(f"--steps is {arguments.steps}; a curve needs 20 or more")
    train = stage("train")
    values = parse(train, train_argv if "--model" in train_argv else [*train_argv, "--model", "model"])
    check_inputs(train, values)
    print("\n".join(advice(try_rates(values, arguments.steps), values["learning_rate"])))
    return 0


def rising(steps: int) -> Float64Array:
    """Rates from the lowest to the highest, each by the same factor above the one before."""
    return np.geomspace(LOWEST, HIGHEST, steps)


def try_rates(values: dict[str, Any], steps: int) -> Curve:
    """Train for so many steps with rising rates; `values` are those of the stage train.

    Nothing is written, and no state of a training is read. Raises BadInputError for inputs that do not fit.
    """
    job = job_of(values)
    place = configure_torch(job.device, 0, job.settings.threads)
    # Torch is loaded by now; the loop needs it at import.
    from eopipe.training.loop import Loop

    loop = Loop(job, World(0, 1, place), StopRequest())
    with closing(loop.feed):
        return climb(loop, rising(steps))


def job_of(values: dict[str, Any]) -> Job:
    """The job that the values of the stage train describe, for one process."""
    settings = Settings.of(values).replace(processes=1, nodes="1", strategy="ddp")
    # No folder of this name is created: nothing is kept.
    unused = Path(values["model"]).with_suffix(".rate")
    return TrainingData.open(TrainingInputs.of(values)).job(settings, Knobs.of(values), unused, unused)


def climb(loop: "Loop", rates: Float64Array) -> Curve:
    """Take a step with each rate until the loss is far above its lowest, or no number."""
    import torch

    losses: list[float] = []
    recent, lowest, nobody = math.nan, math.inf, torch.zeros((), device=loop.world.device)
    for at, batch in enumerate(loop.feed.stream(wanted(loop, len(rates)))):
        told = loop.engine.step(batch, at, float(rates[at]), nobody)
        recent = MEMORY * recent + (1 - MEMORY) * told.loss if losses else told.loss
        lowest = min(lowest, recent)
        if not told.finite or recent > TOO_HIGH * lowest:
            return Curve(rates[: len(losses)], np.array(losses), diverged=True)
        losses.append(told.loss)
    return Curve(rates, np.array(losses))


def wanted(loop: "Loop", steps: int) -> "Iterator[Wanted]":
    """What the first steps of the training ask for, however many epochs they take."""
    from eopipe.loader.prefetch import Wanted

    for now in range(steps):
        epoch, turn = divmod(now, loop.per_epoch)
        yield Wanted("train", np.concatenate(loop.mine(loop.feed.order.step(epoch, turn, loop.batch))), epoch)


def advice(curve: Curve, asked: float) -> list[str]:
    """What `eopipe rate` prints."""
    rate, end = curve.suggested, f"{curve.rates[-1]:.1e}"
    falls = f"the loss falls fastest at {curve.steepest:.1e} and is lowest at {curve.lowest:.1e}"
    ends = f"it diverges behind {end}" if curve.diverged else f"it does not diverge up to {end}"
    return ["    rate      loss", *curve.drawn(), f"{falls}; {ends}; train has {asked:g}", f"--learning-rate {rate:g}"]
