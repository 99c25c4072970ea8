"""The learning-rate finder: a short training whose rate rises until it diverges (Smith 2017, arXiv:1506.01186).

Model, data order, batch, loss and optimiser are as in the training itself; only the number of processes is 1, and
nothing is written.
"""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from eopipe.arguments import check_inputs, parse
from eopipe.arrays import Float64Array
from eopipe.contract import Argument, stage
from eopipe.errors import BadInputError
from eopipe.launch.world import StopRequest, World, configure_torch
from eopipe.training.data import TrainingData, TrainingInputs
from eopipe.training_job import Job, Knobs, Settings

if TYPE_CHECKING:
    from eopipe.loader.prefetch import BatchRequest
    from eopipe.training.loop import TrainingLoop

LOWEST_RATE, HIGHEST_RATE = 1e-6, 1.0
# Width of the smoothing kernel in decades of the rate, so that the noise of batches does not count as a fall.
SMOOTHING_DECADES = 0.25
# Divergence: how many times the lowest loss so far, of losses averaged with this momentum.
DIVERGENCE, MOMENTUM = 4.0, 0.9
ROWS, BAR = 20, 40


@dataclass(frozen=True)
class RateCurve:
    """The loss before the step with each rate; `diverged` where it ended before the highest."""

    rates: Float64Array
    losses: Float64Array
    diverged: bool = False

    @property
    def smooth(self) -> Float64Array:
        """Losses smoothed by a Gaussian kernel over the logarithm of the rate."""
        decades = np.log10(self.rates)
        kernel = np.exp(-0.5 * ((decades[:, None] - decades) / SMOOTHING_DECADES) ** 2)
        averaged: Float64Array = kernel @ self.losses / kernel.sum(1)
        return averaged

    @property
    def steepest(self) -> float:
        """The rate where the smooth loss falls fastest along the logarithm of the rate, before its minimum.

        Raises BadInputError where it does not fall.
        """
        end = int(self.smooth.argmin()) + 1
        if end < 3:
            raise BadInputError(
                f"the loss does not decrease at any learning rate from {LOWEST_RATE:g}; "
                "check the labels, set train.clip, or use more --steps"
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

        The steepest alone is too low for classes of unequal size: their shares are learned first and fastest.
        """
        return float(f"{max(self.steepest, self.lowest / 10):.2g}")

    def plot_lines(self) -> list[str]:
        """The smooth curve as lines of text: rate, loss, a bar."""
        smooth, low = self.smooth, float(self.smooth.min())
        # The divergence at the end would make everything before it look alike.
        high = float(smooth[: int(smooth.argmin()) + 1].max())
        rows = np.unique(np.linspace(0, len(smooth) - 1, ROWS).round().astype(int))
        shares = np.clip((smooth[rows] - low) / max(high - low, 1e-12), 0, 1)
        return [
            f"{rate:8.1e}  {loss:8.4f}  {'#' * round(BAR * share)}"
            for rate, loss, share in zip(self.rates[rows], smooth[rows], shares, strict=True)
        ]


def rate(
    arguments: Annotated[tuple[str, ...], Argument("arguments of the training", stage="train")] = (),
    steps: Annotated[int, Argument("steps of the range test, 20 or more: fewer make no curve", ge=20)] = 120,
) -> None:
    """Suggest a learning rate by a range test, with the arguments of `eopipe train`; nothing is written."""
    train = stage("train")
    values = parse(train, arguments if "--model" in arguments else [*arguments, "--model", "model"])
    check_inputs(train, values)
    print("\n".join(advice(try_rates(values, steps), values["learning_rate"])))


def rising_rates(steps: int) -> Float64Array:
    """Rates from the lowest to the highest, each by the same factor above the one before."""
    return np.geomspace(LOWEST_RATE, HIGHEST_RATE, steps)


def try_rates(values: dict[str, Any], steps: int) -> RateCurve:
    """Train for a number of steps with rising rates; `values` are for the stage train.

    Nothing is written, and no state of a training is read. Raises BadInputError for inputs that do not fit.
    """
    job = job_of(values)
    device = configure_torch(job.knobs.device, 0, job.settings.threads)
    # Torch is loaded by now; the loop needs it at import.
    from eopipe.training.loop import TrainingLoop

    loop = TrainingLoop(job, World(0, 1, device), StopRequest())
    with closing(loop.loader):
        return measure_losses(loop, rising_rates(steps))


def job_of(values: dict[str, Any]) -> Job:
    """The job that the values of the stage train describe, for one process."""
    values = stage("train").with_derived(values)
    settings = replace(Settings.of(values), processes=1, nodes="1", strategy="ddp")
    # No folder of this name is created: nothing is kept.
    unused = Path(values["model"]).with_suffix(".rate")
    return TrainingData.open(TrainingInputs.of(values)).job(settings, Knobs.of(values), unused, unused)


def measure_losses(loop: "TrainingLoop", rates: Float64Array) -> RateCurve:
    """Take a step with each rate until the loss diverges."""
    import torch

    losses: list[float] = []
    average, lowest, no_stop = math.nan, math.inf, torch.zeros((), device=loop.world.device)
    for step, batch in enumerate(loop.loader.stream(first_requests(loop, len(rates)))):
        result = loop.step(batch, step, float(rates[step]), no_stop)
        average = MOMENTUM * average + (1 - MOMENTUM) * result.loss if losses else result.loss
        lowest = min(lowest, average)
        if not result.is_finite or average > DIVERGENCE * lowest:
            return RateCurve(rates[: len(losses)], np.array(losses), diverged=True)
        losses.append(result.loss)
    return RateCurve(rates, np.array(losses))


def first_requests(loop: "TrainingLoop", steps: int) -> "Iterator[BatchRequest]":
    """What the first steps of the training read, over any number of epochs."""
    from eopipe.loader.prefetch import BatchRequest

    for step in range(steps):
        epoch, step_of_epoch = divmod(step, loop.per_epoch)
        samples = loop.loader.order.step(epoch, step_of_epoch, loop.batch)
        yield BatchRequest("train", np.concatenate(loop.local_parts(samples)), epoch)


def advice(curve: RateCurve, current: float) -> list[str]:
    """What `eopipe rate` prints."""
    suggestion, end = curve.suggested, f"{curve.rates[-1]:.1e}"
    falls = f"the loss falls fastest at {curve.steepest:.1e} and is lowest at {curve.lowest:.1e}"
    ends = f"it diverges above {end}" if curve.diverged else f"it does not diverge up to {end}"
    return [
        "    rate      loss",
        *curve.plot_lines(),
        f"{falls}; {ends}; train.learning_rate is {current:g}",
        f"--learning-rate {suggestion:g}",
    ]
