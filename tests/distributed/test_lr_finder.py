"""The learning rate that `eopipe rate` suggests trains well, and finding it leaves nothing behind."""

import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import warm
from hypothesis import given, settings
from hypothesis import strategies as st
from trainings import Data, Training

from eopipe.errors import BadInputError, DivergedError
from eopipe.training.lr_finder import BAR, HIGHEST_RATE, LOWEST_RATE, RateCurve, advice, rising_rates

RATES = rising_rates(120)


def falling(middle: float, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """A loss that falls around a rate, by half over about a tenfold of it, and rises far above it."""
    fallen = 1 / (1 + np.exp(-5 * (np.log10(RATES) - np.log10(middle))))
    risen = np.minimum((RATES / (100 * middle)) ** 2, 2.0)
    return 0.7 - 0.5 * fallen + risen + np.random.default_rng(seed).normal(0, noise, len(RATES))


@given(st.floats(1e-5, 1e-3), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_the_suggestion_is_between_the_steepest_fall_and_the_lowest_loss_though_batches_differ(
    middle: float, seed: int
) -> None:
    curve = RateCurve(RATES, falling(middle, 0.02, seed))
    assert curve.steepest == pytest.approx(middle, rel=1.0)
    assert middle / 2 < curve.suggested < 10 * middle
    assert curve.steepest * 0.95 <= curve.suggested <= curve.lowest


def test_what_comes_after_the_lowest_loss_does_not_count() -> None:
    losses = falling(1e-4)
    losses[-20:-10] += 20
    assert RateCurve(RATES, losses).steepest == pytest.approx(1e-4, rel=0.3)


def test_a_loss_that_never_falls_is_told_in_one_sentence() -> None:
    with pytest.raises(BadInputError, match=r"does not decrease at any learning rate from 1e-06; check the labels"):
        _ = RateCurve(RATES, np.linspace(0.7, 3, len(RATES))).suggested
    with pytest.raises(BadInputError, match="does not decrease at any learning rate"):
        _ = RateCurve(RATES[:1], np.array([0.7]), diverged=True).suggested


def test_the_curve_is_drawn_from_the_lowest_rate_to_the_highest() -> None:
    lines = RateCurve(RATES, falling(1e-3)).plot_lines()
    assert (float(lines[0].split()[0]), float(lines[-1].split()[0])) == (LOWEST_RATE, HIGHEST_RATE)
    bars = [line.count("#") for line in lines]
    assert (bars[0], min(bars), bars[-1]) == (BAR, 0, BAR)
    assert sorted(bars[: bars.index(0)], reverse=True) == bars[: bars.index(0)]


def test_advice_ends_with_words_for_the_command_line() -> None:
    lines = advice(RateCurve(RATES[:80], falling(1e-4)[:80], diverged=True), 4e-3)
    name, value = lines[-1].split()
    assert name == "--learning-rate"
    assert 5e-5 < float(value) < 1e-3
    assert "diverges above 9" in lines[-2]
    assert "train.learning_rate is 0.004" in lines[-2]


def run_rate(data: Data, folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    # --processes and --strategy are those of the training; the trial has one process all the same.
    command = [warm.python(), "-m", "eopipe", "rate", *data.stores(), *data.cut(), "--steps", "80", "--width", "8"]
    command += ["--processes", "2", "--strategy", "fsdp", *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def loss_with(training: Training, rate: float) -> float:
    trial = replace(training, folder=training.folder / f"{rate:g}")
    options = (
        "--epochs",
        "3",
        "--width",
        "8",
        "--warmup",
        "0",
        "--schedule",
        "constant",
        "--learning-rate",
        f"{rate:g}",
    )
    completed = trial.run(*options)
    if completed.returncode == DivergedError.code:
        return math.inf
    assert completed.returncode == 0, completed.stderr
    return float(json.loads((trial.model / "history.json").read_text())["validations"][-1]["loss"])


@pytest.mark.exhaustive
def test_the_suggested_rate_beats_a_hundredth_and_a_hundredfold_of_it(training: Training, data: Data) -> None:
    first, again = (run_rate(data, training.folder) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout, "the same seed gives the same suggestion"
    assert list(training.folder.iterdir()) == [], "nothing is written"
    rate = float(first.stdout.splitlines()[-1].split()[1])
    assert 1e-3 < rate < 0.2
    # Steps enough for a rate that is too high to stop getting better.
    alone = replace(training, settings=("--batch", "8"))
    losses = [loss_with(alone, factor * rate) for factor in (0.01, 1, 100)]
    assert min(losses) == losses[1], losses


def test_the_line_of_a_training_can_be_used_and_what_is_wrong_in_it_is_told(training: Training, data: Data) -> None:
    for more, why in (
        (("--model", "model", "--steps", "5"), "--steps is '5': input should be greater than or equal to 20"),
        (("--model", "model", "--depth", "9"), "--depth is '9'"),
        (("--freeze", "encoder"), "train.freeze is encoder"),
    ):
        completed = run_rate(data, training.folder, *more)
        assert completed.returncode == 2
        assert why in completed.stderr
