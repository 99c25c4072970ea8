"""Losses against formulas written down again in numpy, and what makes them fit for many workers."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from eopipe.tasks import SEGMENTATION
from eopipe.tasks.task import WEIGHT_POWERS
from eopipe.tiles.store import NO_LABEL
from eopipe.training.losses import Loss, cross_entropy, dice, focal, huber, loss_of, lovasz
from eopipe.training_job import Settings

SETTINGS = Settings(width=8, depth=2, epochs=10, batch=16, learning_rate=1e-3, warmup=0.1)
WEIGHTS = (0.5, 2.0, 1.5)
LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "weighted": lambda x, y: cross_entropy(x, y, WEIGHTS),
    "focal": focal,
    "weighted focal": lambda x, y: focal(x, y, WEIGHTS),
    "dice": dice,
    "lovasz": lovasz,
}


def drawn(seed: int, samples: int = 3, edge: int = 4, ignored: float = 0.3) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, (samples, edge, edge))
    labels[rng.uniform(size=labels.shape) < ignored] = NO_LABEL
    return torch.from_numpy(rng.normal(0, 2, (samples, 3, edge, edge))), torch.from_numpy(labels)


def probabilities(logits: Tensor) -> np.ndarray:
    x = np.exp(logits.numpy() - logits.numpy().max(1, keepdims=True))
    return x / x.sum(1, keepdims=True)


def pixels(logits: Tensor, labels: Tensor) -> list[tuple[int, int, np.ndarray]]:
    """Sample, label and chances of each labelled pixel."""
    p, y = probabilities(logits), labels.numpy()
    return [(n, int(y[n, r, c]), p[n, :, r, c]) for n, r, c in np.argwhere(y != NO_LABEL)]


def expected(name: str, logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """The sum and weight, pixel by pixel or sample by sample."""
    labelled = pixels(logits, labels)
    if name in ("dice", "lovasz"):
        each = {n: [row for row in labelled if row[0] == n] for n in {row[0] for row in labelled}}
        loss_of_sample = {"dice": one_dice, "lovasz": one_lovasz}[name]
        return sum(loss_of_sample(rows) for rows in each.values()), len(each)
    weights = WEIGHTS if name.startswith("weighted") else (1, 1, 1)
    easy = 2 if "focal" in name else 0
    total = sum(-weights[y] * (1 - p[y]) ** easy * np.log(p[y]) for _, y, p in labelled)
    return total, sum(weights[y] for _, y, _ in labelled)


def one_dice(rows: list[tuple[int, int, np.ndarray]]) -> float:
    lost = []
    for kind in {y for _, y, _ in rows}:
        both = sum(p[kind] for _, y, p in rows if y == kind)
        lost.append(1 - 2 * both / (sum(p[kind] for _, _, p in rows) + sum(y == kind for _, y, _ in rows)))
    return float(np.mean(lost))


def one_lovasz(rows: list[tuple[int, int, np.ndarray]]) -> float:
    """The definition, not the algorithm: the mean of 1 - IoU of the sets {error >= t} over all thresholds t."""
    lost = []
    for kind in {y for _, y, _ in rows}:
        error = [abs((y == kind) - p[kind]) for _, y, p in rows]
        total, edges = 0.0, sorted({0.0, *error})
        for low, high in pairwise(edges):
            errs = [e >= high for e in error]
            truth = [y == kind for _, y, _ in rows]
            hit = sum(t and not w for t, w in zip(truth, errs, strict=True))
            union = sum(t or w for t, w in zip(truth, errs, strict=True))
            total += (high - low) * (1 - hit / union)
        lost.append(total)
    return float(np.mean(lost))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(4))
def test_a_loss_is_what_its_formula_says(name: str, seed: int) -> None:
    total, weight = LOSSES[name](*drawn(seed))
    reference = expected(name, *drawn(seed))
    assert float(total) == pytest.approx(reference[0], rel=1e-9)
    assert float(weight) == pytest.approx(reference[1], rel=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_of_a_loss_is_that_of_its_values(name: str) -> None:
    logits, labels = drawn(5, samples=2, edge=3)
    assert torch.autograd.gradcheck(lambda x: LOSSES[name](x, labels)[0], logits.requires_grad_())


@pytest.mark.parametrize("name", LOSSES)
def test_pixels_without_a_label_change_neither_loss_nor_gradient(name: str) -> None:
    logits, labels = drawn(6)
    other = torch.where((labels == NO_LABEL)[:, None], torch.randn_like(logits) * 9, logits)
    results = []
    for given_logits in (logits, other):
        leaf = given_logits.clone().requires_grad_()
        total, weight = LOSSES[name](leaf, labels)
        total.backward()
        assert leaf.grad is not None
        assert not leaf.grad[(labels == NO_LABEL)[:, None].expand_as(leaf)].any()
        results.append((total.item(), weight.item()))
    assert results[0] == pytest.approx(results[1], rel=1e-12)


@given(st.sampled_from(sorted(LOSSES)), st.integers(0, 99), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_sums_and_weights_of_parts_are_those_of_the_whole(name: str, seed: int, split: int) -> None:
    logits, labels = drawn(seed, samples=5, ignored=0.6)
    whole, parts = (
        LOSSES[name](logits, labels),
        [LOSSES[name](logits[s], labels[s]) for s in (slice(split), slice(split, 5))],
    )
    for number in (0, 1):
        assert float(whole[number]) == pytest.approx(sum(float(part[number]) for part in parts), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_without_any_label_a_loss_is_nothing_and_still_has_a_gradient(name: str) -> None:
    for count in (0, 2):
        logits = torch.randn(count, 3, 4, 4, requires_grad=True)
        total, weight = LOSSES[name](logits, torch.full((count, 4, 4), NO_LABEL))
        total.backward()
        assert (total.item(), weight.item()) == (0, 0)
        assert logits.grad is not None
        assert not logits.grad.any()


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_logits_give_finite_losses_and_gradients(name: str) -> None:
    labels = torch.tensor([[[0, 1], [2, NO_LABEL]]])
    logits = torch.full((1, 3, 2, 2), -1e4)
    logits[:, 1] = 1e4
    logits.requires_grad_()
    total, _ = LOSSES[name](logits, labels)
    total.backward()
    assert logits.grad is not None
    assert torch.isfinite(total)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("name", ["dice", "lovasz"])
def test_a_perfect_map_loses_nothing_and_a_wrong_one_all(name: str) -> None:
    labels = torch.randint(0, 3, (2, 8, 8), generator=torch.Generator().manual_seed(0))
    perfect = torch.nn.functional.one_hot(labels, 3).permute(0, 3, 1, 2) * 100.0
    assert float(LOSSES[name](perfect, labels)[0]) == pytest.approx(0, abs=1e-6)
    assert float(LOSSES[name](perfect.roll(1, 1), labels)[0]) == pytest.approx(2, abs=1e-6)


def test_half_precision_is_summed_in_full() -> None:
    logits, labels = drawn(1)
    for loss in LOSSES.values():
        assert loss(logits.bfloat16(), labels)[0].dtype == torch.float32


def test_balanced_weights_let_every_class_count_alike() -> None:
    pixels_of = {"water": 10, "forest": 970, "city": 20, "never seen": 0}
    weights = SEGMENTATION.loss_weights(pixels_of, 1000, 1.0)
    counts = [weight * count for weight, count in zip(weights, pixels_of.values(), strict=True)]
    assert counts == pytest.approx([1000 / 3, 1000 / 3, 1000 / 3, 0], rel=1e-4)
    assert SEGMENTATION.loss_weights({"a": 5, "b": 5}, 10, 1.0) == (1.0, 1.0)


@pytest.mark.parametrize(("power", "ratios"), [(0.5, (10, 5)), (0.25, (10**0.5, 5**0.5))])
def test_weights_of_a_smaller_power_are_between_none_and_balanced(power: float, ratios: tuple[float, float]) -> None:
    pixels_of = {"water": 1, "forest": 100, "city": 2500, "absent": 0}
    weights = SEGMENTATION.loss_weights(pixels_of, 2601, power)
    assert weights[3] == 0
    assert (weights[0] / weights[1], weights[1] / weights[2]) == pytest.approx(ratios, rel=1e-4)
    mean = sum(weight * count for weight, count in zip(weights, pixels_of.values(), strict=True)) / 2601
    assert mean == pytest.approx(1, rel=1e-4)
    assert SEGMENTATION.loss_weights({"a": 5, "b": 5}, 10, power) == (1.0, 1.0)


def test_classes_have_weights_of_the_fourth_root_where_the_loss_takes_them() -> None:
    assert Settings().class_weights == Settings(task="multilabel").class_weights == "fourth_root"
    assert Settings(loss="dice").class_weights == Settings(task="regression").class_weights == "none"
    assert Settings(class_weights="none").class_weights == "none"
    weights = SEGMENTATION.loss_weights({"a": 81, "b": 1}, 82, WEIGHT_POWERS["fourth_root"])
    assert weights[1] == pytest.approx(82 / 28, rel=1e-4)


def test_the_settings_name_the_loss_and_its_weights() -> None:
    logits, labels = drawn(2)
    for name in ("cross_entropy", "focal", "dice", "lovasz"):
        loss = loss_of(replace(SETTINGS, loss=name), WEIGHTS)
        expected_loss = LOSSES[{"cross_entropy": "weighted", "focal": "weighted focal"}.get(name, name)]
        assert torch.equal(loss(logits, labels)[0], expected_loss(logits, labels)[0])


def test_huber_is_a_parabola_near_the_truth_and_a_line_far_from_it() -> None:
    predicted = torch.tensor([[0.5, 3.0, -2.0, 7.0]], dtype=torch.float64, requires_grad=True)
    truth = torch.tensor([[0.0, 0.0, float("nan"), float("inf")]])
    total, weight = huber(predicted, truth)
    assert (total.item(), weight.item()) == (0.125 + 2.5, 2)
    total.backward()
    assert predicted.grad is not None
    assert predicted.grad.tolist() == [[0.5, 1.0, 0.0, 0.0]]
    assert torch.autograd.gradcheck(lambda x: huber(x, truth)[0], predicted)
