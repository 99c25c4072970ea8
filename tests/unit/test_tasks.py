"""Tasks of a training: what a chip's class is, what values are scored by, and what does not fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.functional as oracle
import yaml
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from torch import nn

from eopipe.checkpoints.checkpoint import Progress, validation_score
from eopipe.config import check
from eopipe.errors import UsageError
from eopipe.tasks import TASKS
from eopipe.tasks.regression import ValueTables, value_parts
from eopipe.tasks.segmentation import ClassTables, confusion_matrix, majority
from eopipe.tasks.task import chip_logits, majority_class
from eopipe.tiles.store import NO_LABEL
from eopipe.training.losses import cross_entropy, huber, loss_of
from eopipe.training.schedule import best_validation
from eopipe.training_job import Settings

ROOT = Path(__file__).parents[2]
SETTINGS = Settings(width=8, depth=2, epochs=10, batch=16, learning_rate=1e-3, warmup=0.1)
TARGET = (50.0, 20.0)
CHIPS, VALUES = replace(SETTINGS, task="classification"), replace(SETTINGS, task="regression", loss="huber")


def test_the_class_of_a_chip_is_that_of_most_labelled_pixels_and_the_least_of_equals() -> None:
    labels = torch.tensor([[[2, 2], [1, NO_LABEL]], [[2, 1], [1, 2]], [[NO_LABEL] * 2] * 2, [[0, NO_LABEL]] * 2])
    assert majority(labels, 3).tolist() == [2, 1, NO_LABEL, 0]


@given(st.integers(0, 2**32 - 1))
@examples(max_examples=30, deadline=None)
def test_training_and_evaluation_agree_on_the_class_of_a_chip(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.choice([0, 1, 2, NO_LABEL], (6, 3, 3))
    counts = np.stack([(labels == number).sum((1, 2)) for number in range(3)], -1)
    assert majority(torch.from_numpy(labels), 3).tolist() == majority_class(counts).tolist()


def test_the_loss_of_chips_is_that_of_their_mean_logits_and_counts_chips() -> None:
    logits = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.full((5, 4, 4), 2)
    labels[0] = NO_LABEL
    total, weight = loss_of(CHIPS)(logits, labels)
    expected = nn.functional.cross_entropy(logits[1:].mean((2, 3)), torch.full((4,), 2), reduction="sum")
    assert (total.item(), weight.item()) == (pytest.approx(expected.item(), rel=1e-6), 4)


def test_a_model_with_one_answer_a_chip_learns_as_one_of_pixels_that_all_say_so() -> None:
    logits, labels = torch.randn(4, 3), torch.randint(0, 3, (4, 8, 8))
    whole = loss_of(CHIPS)(logits[:, :, None, None], labels)
    each = loss_of(CHIPS)(logits[:, :, None, None].expand(4, 3, 8, 8), labels)
    assert whole[0].item() == pytest.approx(each[0].item(), rel=1e-6)


def test_the_loss_of_values_is_of_labels_in_deviations_from_their_mean() -> None:
    outputs, labels = torch.randn(2, 1, 4, 4), torch.rand(2, 4, 4) * 100
    labels[0, :2] = float("nan")
    total, weight = loss_of(VALUES, target=TARGET)(outputs, labels)
    expected, _ = huber(outputs[:, 0], (labels - 50) / 20)
    assert (total.item(), weight.item()) == (expected.item(), 24)
    squared, _ = loss_of(replace(VALUES, loss="mse"), target=TARGET)(outputs, labels)
    labelled = torch.isfinite(labels)
    assert squared.item() == pytest.approx((((labels - 50) / 20 - outputs[:, 0])[labelled] ** 2).sum().item(), rel=1e-5)


def test_the_loss_of_pixels_is_bit_for_bit_what_it_was() -> None:
    logits, labels = torch.randn(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    assert torch.equal(loss_of(SETTINGS)(logits, labels)[0], cross_entropy(logits, labels)[0])


def test_answers_are_probabilities_of_pixels_or_chips_or_values_in_their_unit() -> None:
    outputs = torch.randn(2, 3, 4, 4)
    assert torch.equal(TASKS["segmentation"].predictions(outputs, ()), outputs.softmax(1))
    assert torch.equal(TASKS["classification"].predictions(outputs, ()), chip_logits(outputs).softmax(1))
    assert torch.equal(TASKS["regression"].predictions(outputs[:, :1], (50.0, 20.0)), outputs[:, :1] * 20 + 50)


@given(st.integers(0, 2**32 - 1), st.floats(-1e4, 1e4), st.integers(1, 6))
@examples(max_examples=25, deadline=None)
def test_scores_of_values_are_those_of_torchmetrics_and_scikit_learn_however_they_are_cut(
    seed: int, mean: float, parts: int
) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, 10, 60)
    predicted = truth + rng.normal(1, 5, 60)
    pieces = zip(np.array_split(truth, parts), np.array_split(predicted, parts), strict=True)
    result = ValueTables().document(np.sum([value_parts(t, f, mean).sum(1) for t, f in pieces], 0))
    x, y = torch.from_numpy(predicted), torch.from_numpy(truth)
    assert result["rmse"] == pytest.approx(float(oracle.mean_squared_error(x, y, squared=False)), abs=1e-5)
    assert result["mae"] == pytest.approx(float(oracle.mean_absolute_error(x, y)), abs=1e-5)
    # The library subtracts large squares, so for values far from zero it is less precise than this code.
    assert result["r2"] == pytest.approx(float(oracle.r2_score(x - mean, y - mean)), abs=1e-5)
    assert result["r2"] == pytest.approx(sklearn.r2_score(truth, predicted), abs=1e-6)
    assert result["bias"] == pytest.approx(float((predicted - truth).mean()), abs=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
@examples(max_examples=25, deadline=None)
def test_scores_of_classes_are_those_of_torchmetrics(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    truth, predicted = rng.integers(0, classes, (2, 300))
    counts = confusion_matrix(truth, predicted, classes)
    result = ClassTables(tuple("abcdefgh"[:classes])).document(counts.ravel())
    x, y = torch.from_numpy(predicted), torch.from_numpy(truth)
    options = {"task": "multiclass", "num_classes": classes}
    assert counts.tolist() == oracle.confusion_matrix(x, y, **options).tolist()
    assert result["accuracy"] == pytest.approx(float(oracle.accuracy(x, y, **options, average="micro")), abs=1e-5)
    assert result["miou"] == pytest.approx(float(oracle.jaccard_index(x, y, **options)), abs=1e-5)
    assert result["f1_macro"] == pytest.approx(float(oracle.f1_score(x, y, **options, average="macro")), abs=1e-5)
    assert result["kappa"] == pytest.approx(float(oracle.cohen_kappa(x, y, **options)), abs=1e-5)


def test_scores_of_no_value_and_of_values_that_are_all_alike_are_not_defined() -> None:
    assert ValueTables().document(np.zeros(6)) == {"rmse": None, "mae": None, "bias": None, "r2": None}
    constant = ValueTables().document(value_parts(np.full(4, 7.0), np.full(4, 8.0), 7.0).sum(1))
    assert constant == {"rmse": 1.0, "mae": 1.0, "bias": 1.0, "r2": None}


def test_the_best_validation_of_a_regression_has_the_lowest_rmse_and_that_of_chips_the_highest_f1() -> None:
    values = [{"step": n, "loss": 1.0, "val": {"rmse": r, "r2": 0.1}} for n, r in enumerate((9.0, 7.0, 8.0))]
    chips = [{"step": n, "loss": 1.0, "val": {"f1_macro": f, "accuracy": 0.9}} for n, f in enumerate((0.4, 0.6, 0.6))]
    assert (best_validation(values), best_validation(chips)) == (1, 1)
    progress = Progress(history=values[:1])
    progress.add_validation(values[1])
    assert (progress.score, progress.is_best) == (-7.0, True)
    progress.add_validation(values[2])
    assert not progress.is_best
    assert validation_score({"accuracy": 0.5}) is None


def test_losses_and_weights_that_do_not_fit_a_task_are_told() -> None:
    assert TASKS["segmentation"].conflicts("lovasz", "balanced") == []
    assert TASKS["regression"].conflicts(None, "none") == []
    assert TASKS["classification"].conflicts("lovasz", "none") == [
        "train.loss lovasz is not for task classification; use cross_entropy or focal"
    ]
    assert len(TASKS["regression"].conflicts("focal", "balanced")) == 2
    assert replace(SETTINGS, task="regression", class_weights="none").conflicts() == [
        "train.loss cross_entropy is not for task regression; use huber or mse"
    ]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"train": {"task": "regression"}}, "train.task regression needs numbers; set label.measure"),
        (
            {"label": {"measure": "height", "bins": []}},
            "measures height, and train.task segmentation needs classes",
        ),
        ({"train": {"task": "classification", "loss": "dice"}}, "train.loss dice is not for task classification"),
        ({"train": {"loss": "huber"}}, "train.loss huber is not for task segmentation"),
        ({"label": {"measure": "height", "resampling": "mode", "bins": []}}, "label.resampling mode is for classes"),
        ({"label": {"resampling": "average", "bins": []}}, "label.resampling average would average class numbers"),
        ({"label": {"measure": "height"}}, "label.bins turns them into classes"),
    ],
)
def test_a_config_whose_task_and_labels_do_not_fit_is_refused(section: dict[str, Any], message: str) -> None:
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    for name, changes in section.items():
        config[name] |= changes
    with pytest.raises(UsageError, match=message):
        check(config)
