"""The learning rate, the average of the weights, the end of a training, and changes of light."""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from eopipe.loader.loader import DROP_PROBABILITY, MAX_HAZE, augment, bilinear_field
from eopipe.training.schedule import (
    CHIP_PASSES,
    MOST_STEPS,
    best_validation,
    default_batch,
    default_steps,
    learning_rate,
    stops_early,
    training_length,
)
from eopipe.training.step import EMA
from eopipe.training_job import FEWEST_PASSES, FEWEST_STEPS, Settings, TrainingLength

SETTINGS = Settings(width=8, depth=2, epochs=10, batch=16, learning_rate=1e-3, warmup=0.1)
SCHEDULES = ("cosine", "linear", "polynomial", "step", "constant")


@given(st.sampled_from(SCHEDULES), st.integers(1, 200), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_the_rate_rises_to_its_height_and_never_again(schedule: str, steps: int, warmup: float) -> None:
    changed_settings = replace(SETTINGS, schedule=schedule, warmup=warmup)
    rates = [learning_rate(changed_settings, step, steps) for step in range(steps)]
    top = int(np.argmax(rates))
    assert max(rates) == pytest.approx(1e-3)
    assert top == max(1, round(warmup * steps)) - 1
    assert all(a <= b for a, b in pairwise(rates[: top + 1]))
    assert all(a >= b for a, b in pairwise(rates[top:]))
    assert min(rates) > 0


@pytest.mark.parametrize(
    ("schedule", "half", "end"),
    [
        ("cosine", 0.5, 2.467e-4),
        ("linear", 0.5, 0.01),
        ("polynomial", 0.5**0.9, 0.01**0.9),
        ("step", 0.1, 0.01),
        ("constant", 1.0, 1.0),
    ],
)
def test_each_schedule_has_its_own_shape(schedule: str, half: float, end: float) -> None:
    changed_settings = replace(SETTINGS, schedule=schedule, warmup=0, learning_rate=1.0)
    # One step of warm-up, a hundred after it.
    assert learning_rate(changed_settings, 51, 101) == pytest.approx(half)
    assert learning_rate(changed_settings, 100, 101) == pytest.approx(end, rel=0.02)


def history(*scores: float | None) -> list[dict[str, Any]]:
    return [{"step": n + 1, "val": None if s is None else {"miou": s}} for n, s in enumerate(scores)]


def test_the_best_validation_is_the_first_of_the_highest() -> None:
    assert best_validation(history(0.1, 0.5, 0.4, 0.5)) == 1
    assert best_validation(history(None, None)) is None
    assert best_validation([]) is None


@given(st.lists(st.floats(0, 1), max_size=12), st.integers(0, 4))
@settings(max_examples=100, deadline=None)
def test_a_training_stops_after_so_many_validations_without_a_better_one(scores: list[float], patience: int) -> None:
    late = bool(patience) and len(scores) > patience and max(scores[-patience:]) <= max(scores[:-patience])
    assert stops_early(history(*scores), patience) == late


@given(st.integers(1, 300), st.integers(1, 40), st.sampled_from([16, 32, 64, 128, 256]), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_an_epoch_is_a_pass_over_the_labelled_pixels_whatever_a_step_takes_of_a_chip(
    chips: int, batch: int, crop: int, epochs: int
) -> None:
    part, pixels = (crop / 256) ** 2, 256**2
    train = {"task": "segmentation", "batch": batch, "epochs": epochs, "steps": None}
    length = training_length(train, chips, chips * pixels, pixels, part)
    # Chips beyond whole batches are left out.
    whole = epochs * (chips // batch * batch / chips if chips > batch else 1)
    assert length.passes == pytest.approx(whole, rel=0.5 * part)
    assert length.steps % epochs == 0
    assert length.validate_every == length.steps // epochs


def test_the_average_follows_its_formula_and_can_be_resumed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average, expected, again = EMA(model, 0.9), model[0].weight.detach().clone(), None
    for step in range(1, 41):
        with torch.no_grad():
            model[0].weight.add_(torch.randn(2, 3))
        model[1].num_batches_tracked += 1
        average.update()
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model[0].weight.detach()
        if again:
            again.update()
        if step == 20:
            again = EMA(model, 0.9)
            again.load({name: value.clone() for name, value in average.weights.items()}, step)
    torch.testing.assert_close(average.weights["0.weight"], expected)
    assert average.weights["1.num_batches_tracked"] == 40
    assert again is not None
    assert all(torch.equal(average.weights[name], again.weights[name]) for name in average.weights)


def test_a_model_has_the_average_only_while_it_is_judged() -> None:
    model = nn.Linear(2, 1, bias=False)
    average = EMA(model, 0.5)
    before = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1)
    with average.applied():
        assert torch.equal(model.weight, before)
    with suppress(ZeroDivisionError), average.applied():
        raise ZeroDivisionError
    assert torch.equal(model.weight, before + 1)
    assert torch.equal(average.weights["weight"], before)


ALL = ("symmetries", "brightness", "haze", "bands")


def chips(count: int = 6, bands: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    images = torch.randn(count, bands, 12, 10)
    images[:, :, :2] = 0
    return images, torch.randint(0, 2, (count, 12, 10))


@pytest.mark.parametrize("augmentations", [("brightness",), ("haze",), ("bands",), ALL])
def test_a_change_of_light_depends_on_seed_epoch_and_sample_alone(augmentations: tuple[str, ...]) -> None:
    images, labels = chips()
    changed_settings, numbers = replace(SETTINGS, augment=augmentations), np.array([7, 3, 900, 1, 0, 12])
    whole, same = augment(images, labels, numbers, 2, changed_settings)
    assert torch.equal(same, labels)
    for number in range(6):
        part = slice(number, number + 1)
        alone, _ = augment(images[part], labels[part], numbers[part], 2, changed_settings)
        assert torch.equal(alone, whole[part]), "bit by bit, whatever the other samples"
    others = [
        (numbers, 3, changed_settings),
        (numbers + 1, 2, changed_settings),
        (numbers, 2, replace(changed_settings, seed=1)),
    ]
    for drawn, epoch, given_settings in others:
        assert not torch.equal(augment(images, labels, drawn, epoch, given_settings)[0], whole)


@pytest.mark.parametrize("augmentations", [("brightness",), ("haze",), ("bands",), ALL])
def test_pixels_that_were_not_measured_stay_so(augmentations: tuple[str, ...]) -> None:
    images, labels = chips()
    before = images.clone()
    changed, _ = augment(images, labels, np.arange(6), 0, replace(SETTINGS, augment=augmentations))
    assert not changed[:, :, :2].any()
    assert torch.equal(images, before), "the input is not written to"


@pytest.mark.parametrize("augmentations", [("none",), ("symmetries",)])
def test_without_a_change_of_light_chips_come_as_they_are(augmentations: tuple[str, ...]) -> None:
    images, labels = chips()
    assert augment(images, labels, np.arange(6), 0, replace(SETTINGS, augment=augmentations))[0] is images


def test_bands_are_dropped_as_often_as_said_and_never_all() -> None:
    images = torch.ones(2000, 3, 1, 1)
    changed, _ = augment(images, images[:, 0].long(), np.arange(2000), 0, replace(SETTINGS, augment=("bands",)))
    present = changed[:, :, 0, 0]
    assert present.any(1).all()
    assert set(present.flatten().tolist()) == {0.0, 1.0}
    # One band is always kept, so each of three is dropped with two thirds of the chance.
    assert float(present.mean()) == pytest.approx(1 - DROP_PROBABILITY * 2 / 3, abs=0.01)


def test_haze_brightens_dark_pixels_smoothly_and_hides_contrast() -> None:
    dark = torch.full((50, 2, 32, 32), -1.0)
    dark[:, :, 16:] = -0.5
    changed, _ = augment(dark, dark[:, 0].long(), np.arange(50), 0, replace(SETTINGS, augment=("haze",)))
    assert bool((changed >= dark).all())
    top = changed[:, :, :16]
    assert float((top[..., 1:] - top[..., :-1]).abs().max()) < 3 * MAX_HAZE * 3 / 31
    across = (changed[:, :, 16] - changed[:, :, 15]).mean()
    assert 0.2 < float(across) < 0.5


def test_a_smooth_field_goes_through_its_knots() -> None:
    knots = torch.rand(2, 4, 4)
    field = bilinear_field(knots, torch.Size((7, 10)))
    torch.testing.assert_close(field[:, ::2, ::3], knots)
    torch.testing.assert_close(field[:, 1], (field[:, 0] + field[:, 2]) / 2)
    assert bilinear_field(knots, torch.Size((1, 1))).shape == (2, 1, 1)


def length_values(**changes: object) -> dict[str, object]:
    return {"steps": None, "epochs": None, "batch": 8, "task": "segmentation"} | changes


@given(st.integers(1, 400), st.integers(1, 64), st.integers(1, 60), st.integers(1, 256), st.integers(1, 10**6))
def test_a_training_that_is_too_short_is_warned_of_and_the_advice_is_enough(
    chips: int, batch: int, epochs: int, per_chip: int, labelled: int
) -> None:
    length = training_length(length_values(batch=batch, epochs=epochs), chips, labelled, per_chip)
    assert length.steps == epochs * max(1, chips // min(batch, chips))
    assert length.passes == pytest.approx(length.steps * min(batch, chips) * per_chip / labelled, abs=1e-3)
    assert bool(length.warning) == (length.steps < FEWEST_STEPS or length.passes < FEWEST_PASSES)
    if length.warning:
        assert f"the training has {length.steps} steps" in length.warning
        advised = int(length.warning.partition("train.steps: ")[2].split()[0])
        better = training_length(length_values(batch=batch, steps=advised), chips, labelled, per_chip)
        assert better.steps >= FEWEST_STEPS
        assert better.passes >= FEWEST_PASSES * (1 - 1e-9)


def test_a_model_of_hardly_a_pass_is_warned_of() -> None:
    # A model's settings have passes in hundredths.
    length = TrainingLength.of_model({"steps": 1, "labelled": 10**7, "passes": 0.0}, "segmentation")
    assert length is not None
    assert "1 steps, 0 passes over 10000000 labelled pixels" in length.warning


def test_the_default_length_follows_the_labelled_pixels() -> None:
    assert [default_steps(n) for n in (1, 7_000, 47_000, 10**7)] == [FEWEST_STEPS, FEWEST_STEPS, 499, MOST_STEPS]


@pytest.mark.parametrize(
    ("chips", "chip", "batch", "steps"),
    [(6_000, 8, 64, 938), (100, 8, 64, 200), (6_000, 120, 18, 3334), (6_000, 512, 8, 7500)],
)
def test_chips_with_one_label_are_seen_ten_times_in_batches_that_fit_into_memory(
    chips: int, chip: int, batch: int, steps: int
) -> None:
    assert default_batch("multilabel", chip) == batch
    length = training_length(length_values(task="multilabel", batch=batch), chips, chips, 1.0)
    assert (length.steps, length.unit, length.warning) == (steps, "chips", "")
    assert length.passes >= CHIP_PASSES
    assert default_batch("segmentation", chip) == 8


@given(st.integers(1, 3000))
def test_a_training_in_steps_is_validated_at_each_tenth_and_at_its_end(steps: int) -> None:
    length = training_length(length_values(steps=steps), 100, 10, 1.0)
    validated = [step for step in range(steps + 1) if length.is_validated(step)]
    assert validated[-1] == steps
    assert len(validated) <= 10
    assert len(set(np.diff([0, *validated[:-1]]).tolist())) <= 1
