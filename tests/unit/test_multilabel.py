"""Several labels for each chip: their truth, loss, scores, calibration, and what the report shows of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from torch import nn

from eopipe.config import check
from eopipe.evaluation.evaluate import average_precision
from eopipe.evaluation.metrics_document import LabelMetrics
from eopipe.inference.temperature import fit_temperature
from eopipe.reporting.scores import method_rows
from eopipe.reporting.task_parts import cooccurrence_rows
from eopipe.run.rules import options
from eopipe.tasks.multilabel import TASK, LabelTables, label_sets, label_tables
from eopipe.tiles.store import NO_LABEL
from eopipe.training.losses import loss_of
from eopipe.training_job import Settings

SETTINGS = Settings(width=8, depth=2, epochs=10, batch=16, learning_rate=1e-3, warmup=0.1, task="multilabel")
NAMES = ("land", "water", "ice", "sand")


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.1, 1 / 3, 0.5, 1.0]))
@examples(max_examples=40, deadline=None)
def test_training_and_evaluation_agree_on_the_labels_of_a_chip(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.choice([0, 1, 2, NO_LABEL], (8, 3, 4), p=[0.5, 0.3, 0.1, 0.1])
    labels[0] = NO_LABEL
    counts = np.stack([(labels == number).sum((1, 2)) for number in range(3)], -1)
    of_training = TASK.sample_labels(torch.from_numpy(labels), 3, share)
    assert (of_training[0] == NO_LABEL).all()
    has_label = (of_training != NO_LABEL).all(1).numpy()
    np.testing.assert_array_equal(of_training.numpy()[has_label] == 1, label_sets(counts, share))


def test_a_class_with_exactly_the_minimum_share_is_a_label_and_one_pixel_less_is_not() -> None:
    counts = np.array([[5, 95, 0], [4, 96, 0], [10, 190, 0], [0, 0, 0]])
    expected = [[True, True, False], [False, True, False], [True, True, False]]
    assert label_sets(counts, 0.05).tolist() == expected


def test_the_loss_is_that_of_torch_with_weights_of_the_positive_chips_and_adds_up_over_parts() -> None:
    torch.manual_seed(2)
    outputs = torch.randn(6, 3, 4, 4)
    labels = torch.randint(0, 3, (6, 4, 4))
    labels[0] = NO_LABEL
    weights = (2.0, 0.5, 3.0)
    settings = replace(SETTINGS, min_share=0.3)
    truth = TASK.sample_labels(labels, 3, 0.3)[1:].float()
    assert 0 < truth.mean() < 1
    expected = nn.functional.binary_cross_entropy_with_logits(
        outputs[1:].mean((2, 3)), truth, pos_weight=torch.tensor(weights)
    )
    total, weight = loss_of(settings, weights)(outputs, labels)
    assert (total / weight).item() == pytest.approx(expected.item(), rel=1e-5)
    parts = [loss_of(settings, weights)(outputs[part], labels[part]) for part in (slice(0, 2), slice(2, 6))]
    assert sum(part[0].item() for part in parts) == pytest.approx(total.item(), rel=1e-6)
    assert sum(part[1].item() for part in parts) == weight.item() == 15
    focal, _ = loss_of(replace(settings, loss="binary_focal"))(outputs, labels)
    p = torch.where(truth == 1, outputs[1:].mean((2, 3)).sigmoid(), 1 - outputs[1:].mean((2, 3)).sigmoid())
    assert focal.item() == pytest.approx((-((1 - p) ** 2) * p.log()).sum().item(), rel=1e-5)


def test_probabilities_of_labels_are_sigmoids_of_the_mean_logits() -> None:
    outputs = torch.randn(2, 3, 4, 4)
    expected = outputs.mean((2, 3), keepdim=True).sigmoid()
    torch.testing.assert_close(TASK.predictions(outputs, ()), expected)


def test_chips_with_and_without_a_class_weigh_alike_where_classes_are_balanced() -> None:
    counts = {"land": 80, "water": 5, "ice": 0, "sand": 100}
    assert TASK.loss_weights(counts, 100, 1.0) == (0.25, 19.0, 1.0, 1.0)
    assert TASK.loss_weights(counts, 100, 0.5) == pytest.approx((0.5, 19**0.5, 1.0, 1.0), abs=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(1, 5))
@examples(max_examples=25, deadline=None)
def test_scores_of_labels_are_those_of_scikit_learn_however_they_are_cut(seed: int, classes: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    truth, predicted = rng.random((2, 30, classes)) < rng.random((2, 1, classes))
    pieces = zip(np.array_split(truth, parts), np.array_split(predicted, parts), strict=True)
    counts = np.sum([label_tables(x, y).sum(0) for x, y in pieces], 0)
    names = NAMES[:classes]
    result = LabelTables(names).document(counts)

    def same(value: float | None, expected: float) -> bool:
        return bool(np.isnan(expected)) if value is None else value == pytest.approx(expected, abs=1e-6)

    for average in ("micro", "macro"):
        expected = sklearn.f1_score(truth, predicted, average=average, zero_division=np.nan)
        assert same(result[f"f1_{average}"], expected)
    assert same(result["hamming_loss"], sklearn.hamming_loss(truth, predicted))
    assert same(result["subset_accuracy"], float((truth == predicted).all(1).mean()))
    scores = sklearn.precision_recall_fscore_support(truth, predicted, average=None, zero_division=np.nan)
    for number, name in enumerate(names):
        for key, values in zip(("precision", "recall", "f1", "chips"), scores, strict=True):
            assert same(result["per_class"][name][key], values[number])
    measured = LabelTables(names).scores(counts[None])
    for key in ("f1_micro", "f1_macro", "hamming_loss", "subset_accuracy"):
        assert same(result[key], float(measured[key][0]))
    for name in names:
        for key in ("iou", "f1", "precision", "recall"):
            assert same(result["per_class"][name][key], float(measured[f"{key}:{name}"][0]))


def test_average_precision_is_the_sum_of_precisions_at_each_step_of_the_recall() -> None:
    truth, ranking = np.array([1, 0, 1, 0, 1]), np.array([0.9, 0.8, 0.7, 0.7, 0.1])
    # Thresholds 0.9, 0.7 and 0.1 raise the recall by a third each; equal scores are one threshold.
    assert average_precision(truth, ranking) == pytest.approx((1 / 1 + 2 / 4 + 3 / 5) / 3, abs=1e-6)
    assert average_precision(np.zeros(5), ranking) is None


def test_errors_of_a_piece_are_the_share_of_incorrect_labels() -> None:
    truth, predicted = np.array([[1, 0, 1], [0, 0, 1]]), np.array([[1, 1, 0], [0, 0, 1]])
    measures, tables = LabelTables(NAMES[:3]), label_tables(truth, predicted)
    assert measures.errors(tables) == pytest.approx([2 / 3, 0])
    assert measures.incorrect(tables)[""].tolist() == [2, 0]
    assert measures.incorrect(tables)["water"].tolist() == [1, 0]
    assert measures.correct(tables)["ice"].tolist() == [0, 1]
    assert measures.contains(tables).tolist() == [[True, False, True], [False, False, True]]


def test_the_temperature_of_labels_is_that_of_their_logits_and_no_label_changes() -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(0, 2, (3, 4000))
    truth = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).T
    overconfident = (1 / (1 + np.exp(-2 * logits))).astype(np.float32)
    temperature = fit_temperature(*TASK.as_decisions(overconfident, truth))
    assert temperature == pytest.approx(2, rel=0.08)
    calibrated = TASK.at_temperature(overconfident, temperature)
    np.testing.assert_array_equal(calibrated >= 0.5, overconfident >= 0.5)
    np.testing.assert_allclose(calibrated, 1 / (1 + np.exp(-2 * logits / temperature)), atol=1e-4)
    assert np.shares_memory(TASK.at_temperature(overconfident, 1.0), overconfident)


def test_the_page_highlights_the_lowest_hamming_loss_and_shares_of_the_row() -> None:
    scores: dict[str, Any] = {"f1_micro": 0.8, "f1_macro": 0.7, "subset_accuracy": 0.5, "mean_average_precision": None}
    scores["per_class"] = {}
    document: dict[str, Any] = {
        "model": scores | {"hamming_loss": 0.1},
        "pixel_baseline": scores | {"hamming_loss": 0.3, "method": "trees"},
        "majority": scores | {"hamming_loss": 0.2, "labels": []},
    }
    document |= {"task": "multilabel", "classes": ["land", "water"], "maps": 1, "test_chips": 9, "examples": []}
    document |= {"min_share": 0.1, "threshold": 0.5, "cooccurrence": {"truth": [], "predicted": []}}
    rows = method_rows(LabelMetrics.model_validate(document))
    assert [row.cells[3].is_highlighted for row in rows[:3]] == [True, False, False]
    assert rows[2].note == "always predicts no label"
    land, water = cooccurrence_rows(["land", "water"], [[4, 1], [1, 2]])
    assert [cell.share for cell in land.cells] == [1.0, 0.25]
    assert [cell.share for cell in water.cells] == [0.5, 1.0]


@pytest.mark.parametrize(("task", "is_option"), [("segmentation", False), ("multilabel", True)])
def test_the_share_of_a_label_reruns_only_trainings_of_several_labels(task: str, is_option: bool) -> None:
    label = {"source": "labels.tif", "classes": list(NAMES)}
    config = check({"search": {"catalog": "scenes"}, "label": label, "train": {"task": task}})
    assert ("--min-share" in options(config, "train")) == is_option
    assert ("min_share" in Settings.of(config["train"]).deciding()) == is_option
