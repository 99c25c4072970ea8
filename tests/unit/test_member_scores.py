"""The members of an ensemble beside its scores: their own, on the same test places, with mean and spread."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
import rasterio
from sklearn.metrics import (
    accuracy_score,
    cohen_kappa_score,
    f1_score,
    hamming_loss,
    jaccard_score,
    mean_absolute_error,
    r2_score,
    root_mean_squared_error,
)
from test_compare import CHIP, EDGE, classes, run_of, with_errors
from test_report import Tags, finish
from test_trials import CLASSES, TEST, Trials

import eopipe
from eopipe.arrays import AnyArray
from eopipe.cli import main
from eopipe.evaluation.evaluate import maps_of_members, member_metrics
from eopipe.evaluation.maps import split_for_tests
from eopipe.evaluation.metrics_document import read_metrics as read_document
from eopipe.reporting.scores import member_score_rows, method_rows
from eopipe.reporting.wording import DASH, format_score, format_value
from eopipe.text_files import read_json, write_json

SEEDS = "they do not include the spread over seeds"


def chips(of_pixels: AnyArray) -> AnyArray:
    """One value of each chip of the east, (n,) or (n, class)."""
    return of_pixels[..., ::CHIP, EDGE // 2 :: CHIP].reshape(*of_pixels.shape[:-2], -1).T


def of_classes(truth: AnyArray, mapped: AnyArray) -> dict[str, float]:
    """Scores of class numbers (n,), as scikit-learn has them."""
    recall = (mapped == truth)[truth == 2].mean()
    return {
        "accuracy": accuracy_score(truth, mapped),
        "miou": jaccard_score(truth, mapped, average="macro"),
        "f1_macro": f1_score(truth, mapped, average="macro"),
        "kappa": cohen_kappa_score(truth, mapped),
        "iou:water": jaccard_score(truth, mapped, average=None)[0],
        "recall:wood": float(recall),
    }


def of_labels(truth: AnyArray, mapped: AnyArray) -> dict[str, float]:
    """Scores of sets of labels (n, class)."""
    return {
        "f1_micro": f1_score(truth, mapped, average="micro"),
        "f1_macro": f1_score(truth, mapped, average="macro"),
        "subset_accuracy": accuracy_score(truth, mapped),
        "hamming_loss": hamming_loss(truth, mapped),
        "f1:land": f1_score(truth, mapped, average=None)[1],
    }


def of_values(truth: AnyArray, mapped: AnyArray) -> dict[str, float]:
    """Scores of values (n,)."""
    return {
        "rmse": root_mean_squared_error(truth, mapped),
        "mae": mean_absolute_error(truth, mapped),
        "bias": float((mapped.astype(float) - truth).mean()),
        "r2": r2_score(truth, mapped),
    }


def maps_of(task: str) -> tuple[AnyArray, list[AnyArray], list[dict[str, float]]]:
    """Labels, the maps of an ensemble and of its three members, and the scores of the members."""
    shares, truth = (0.1, 0.3, 0.2, 0.15), classes()
    if task == "regression":
        random = np.random.default_rng(1)
        heights = random.normal(20, 5, truth.shape).astype(np.float32)
        maps = [(heights + random.normal(0.1, 9 * share, truth.shape)).astype(np.float32) for share in shares]
        return heights, maps, [of_values(heights[TEST].ravel(), mapped[TEST].ravel()) for mapped in maps[1:]]
    if task == "segmentation":
        maps = [with_errors(truth, share, seed) for seed, share in enumerate(shares)]
        return truth, maps, [of_classes(truth[TEST].ravel(), mapped[TEST].ravel()) for mapped in maps[1:]]
    cells = [
        np.kron(with_errors(truth[::8, ::8], share, n), np.ones((8, 8), np.uint8)) for n, share in enumerate(shares)
    ]
    if task == "classification":
        return truth, cells, [of_classes(chips(truth), chips(mapped)) for mapped in cells[1:]]
    sets = [np.stack([(mapped == n).astype(np.uint8) for n in range(3)]) for mapped in cells]
    present = np.stack([truth == n for n in range(3)]).astype(np.uint8)
    return truth, sets, [of_labels(chips(present), chips(mapped)) for mapped in sets[1:]]


def tag(path: Path, **tags: str) -> None:
    """Add tags to a map."""
    with rasterio.open(path, "r+") as file:
        file.update_tags(**tags)


class Ensemble:
    """A run of an ensemble: its map is the first of a folder, those of its members follow."""

    def __init__(self, folder: Path, task: str = "segmentation") -> None:
        truth, maps, self.expected = maps_of(task)
        self.run = Trials(folder, truth, task)
        self.run.write_split("train")
        for number, mapped in enumerate(maps):
            self.run.add(f"m{number}", mapped)
        self.whole, *self.members = self.run.maps

    def evaluate(self, *members: Path | str, classes: tuple[Path, ...] = (), name: str = "metrics.json") -> int:
        """Run the stage; return its exit code."""
        folder = self.run.folder
        words: list[object] = ["evaluate", "--classes", *(classes or (self.whole,)), "--tiles", folder / "s.zarr"]
        words += ["--labels", folder / "labels/s.zarr", "--chips", folder / "split.json", "--metrics", folder / name]
        return main([*map(str, words), *(["--member-maps", *map(str, members)] if members else [])])


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", ["segmentation", "classification", "multilabel", "regression"])
def test_each_member_has_its_scores_of_the_test_places_beside_those_of_the_ensemble(tmp_path: Path, task: str) -> None:
    ensemble = Ensemble(tmp_path / "run", task)
    for path in ensemble.members:
        tag(path, places="test")
    assert ensemble.evaluate(*ensemble.members) == 0
    assert ensemble.evaluate(name="without.json") == 0
    document = read_json(tmp_path / "run/metrics.json")
    count = EDGE * EDGE // 2 // (CHIP**2 if task in ("classification", "multilabel") else 1)
    assert [member["count"] for member in document["members"]] == [count] * 3
    for member, expected in zip(document["members"], ensemble.expected, strict=True):
        assert {key: member["scores"][key] for key in expected} == pytest.approx(expected, abs=2e-6)
    # The scores of the ensemble and of the baselines do not depend on the members.
    assert {key: value for key, value in document.items() if key != "members"} == read_json(
        tmp_path / "run/without.json"
    )
    metrics = read_document(tmp_path / "run/metrics.json")
    assert metrics.json_document() == document
    first, members, *_ = method_rows(metrics)
    assert (first.name, members.name) == ("This model", "Members")
    heads, lines = member_score_rows(metrics)
    form = (lambda value: format_value(value, metrics.unit)) if task == "regression" else format_score
    key = next(iter(ensemble.expected[0]))
    values = [expected[key] for expected in ensemble.expected]
    assert members.cells[0].text == lines[3][1] == form(fmean(values))
    assert members.cells[0].note == f"standard deviation {form(stdev(values))}"
    assert [line[0] for line in lines] == ["member 0", "member 1", "member 2", "mean", "standard deviation"]
    assert [line[1] for line in lines] == [*map(form, values), form(fmean(values)), form(stdev(values))]
    assert heads[0] == "Member"
    if task == "multilabel":
        # Members have no probabilities here, so that average precision is not measured.
        assert (members.cells[-1].text, members.cells[-1].note, lines[0][-2]) == (DASH, "", DASH)
    assert "Members" not in [row.name for row in method_rows(read_document(tmp_path / "run/without.json"))]


def test_python_has_the_scores_of_the_members(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path / "run")
    assert ensemble.evaluate(*ensemble.members) == 0
    members = eopipe.read_metrics(tmp_path / "run").members
    assert [row["miou"] for row in members] == pytest.approx([row["miou"] for row in ensemble.expected], abs=1e-6)
    assert ensemble.evaluate() == 0
    assert eopipe.read_metrics(tmp_path / "run").members == []


def test_python_has_the_gain_over_the_chosen_baseline_with_its_interval(tmp_path: Path) -> None:
    assert Ensemble(tmp_path / "run").evaluate() == 0
    document, metrics = read_json(tmp_path / "run/metrics.json"), eopipe.read_metrics(tmp_path / "run")
    gains, intervals = metrics.gain("miou"), document["intervals"]
    ((name, gain),) = gains.items()
    assert gain.method == f"model minus {name}"
    assert gain.value == pytest.approx(document["model"]["miou"] - document[document["baseline"]["name"]]["miou"])
    assert [gain.low, gain.high] == (intervals["gain"].get("miou") or [None, None])
    assert gain.value


def test_maps_that_are_not_those_of_members_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ensemble = Ensemble(tmp_path / "run")
    first, second, _ = ensemble.members
    assert ensemble.evaluate(first) == 2
    assert "the number of member maps is 1, the ensemble itself has 1: give as many for each" in capsys.readouterr().err
    assert ensemble.evaluate(*ensemble.members, classes=(ensemble.whole, first)) == 2
    assert "the number of member maps is 3, the ensemble itself has 2" in capsys.readouterr().err
    tag(second, places="val")
    assert ensemble.evaluate(first, second) == 3
    assert f"map {second} of a member shows the val places alone" in capsys.readouterr().err
    tag(second, places="", task="classification")
    assert ensemble.evaluate(first, second) == 3
    assert "the map and member 1 cannot be compared by places: they do not have the same task" in (
        capsys.readouterr().err
    )
    tag(ensemble.whole, places="test")
    assert ensemble.evaluate(first, first) == 3
    assert "shows the test places alone" in capsys.readouterr().err
    assert not (tmp_path / "run/metrics.json").exists()


def test_maps_are_those_of_the_first_member_first_also_in_the_lists_of_cwl(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path / "run")
    paths = (*ensemble.run.maps, *ensemble.members[:2])
    assert maps_of_members(paths, 2) == [paths[:2], paths[2:4], paths[4:]]
    assert maps_of_members((), 2) == []
    nested = [[{"class": "File", "path": str(path)}] for path in ensemble.members]
    for name, listed in (("nested", nested), ("empty", [])):
        write_json(tmp_path / "list.json", listed)
        assert ensemble.evaluate(f"@{tmp_path / 'list.json'}", name=f"{name}.json") == 0
    assert len(read_json(tmp_path / "run/nested.json")["members"]) == 3
    assert "members" not in read_json(tmp_path / "run/empty.json")


def test_members_of_a_finished_model_are_scored_on_all_labels(tmp_path: Path) -> None:
    truth = classes()
    maps = [with_errors(truth, share, seed) for seed, share in enumerate((0.1, 0.3, 0.2))]
    split = split_for_tests(["s"], CLASSES, CHIP)
    whole, *members = (
        replace(run_of(tmp_path / f"r{number}", truth, mapped), split=split) for number, mapped in enumerate(maps)
    )
    rows = member_metrics(whole, members)["members"]
    for row, mapped in zip(rows, maps[1:], strict=True):
        assert row["count"] == truth.size
        assert row["scores"]["accuracy"] == pytest.approx((mapped == truth).mean(), abs=1e-6)


def test_a_member_counts_only_where_all_have_a_map(tmp_path: Path) -> None:
    truth = classes()
    gap = truth.copy()
    gap[:, EDGE - 3 :] = 255
    runs = [run_of(tmp_path / f"r{number}", truth, mapped) for number, mapped in enumerate((truth, gap, truth))]
    assert [row["count"] for row in member_metrics(runs[0], runs[1:])["members"]] == [EDGE * (EDGE // 2 - 3)] * 2
    assert member_metrics(runs[0], []) == {}


def test_page_and_card_have_mean_and_standard_deviation_of_the_members(tmp_path: Path) -> None:
    run = finish(tmp_path / "run")
    _, without, picture = run.report(name="without")
    card_without = picture.with_name("model-card.md").read_text()
    accuracies = (0.94, 0.96, 0.95)
    rows = [
        {"count": 5, "scores": {"accuracy": value, "miou": 0.5, "f1_macro": None, "kappa": 0.1}} for value in accuracies
    ]
    write_json(run.ports["metrics"][0], read_json(run.ports["metrics"][0]) | {"members": rows})
    code, page, picture = run.report()
    card, text = picture.with_name("model-card.md").read_text(), " ".join(Tags(page).text.split())
    assert code == 0
    assert "Members" in text
    assert "mean of 3 members; below it the standard deviation (n - 1)" in text
    # By the definition with n - 1: 2 · 0.01² / 2 is 0.01².
    assert "0.950" in text
    assert "standard deviation 0.010" in text
    assert "Scores of each member" in text
    assert "| Members | 0.950 (standard deviation 0.010) |" in card
    for content in (text, card):
        assert SEEDS in content
        assert "The standard deviation of the scores of the 3 members describes it" in content
        assert "another training with the same settings may differ" not in content
    for content in (without, card_without):
        assert "ember 1" not in content
        assert "Members" not in content
        assert "another training with the same settings may differ by more" in content
