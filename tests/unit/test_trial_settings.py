"""The settings of trials: grid, random points, Halton sequence, conditions, and `train --settings`."""

import json
import re
import shlex
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eopipe.arguments import expand_settings, parse
from eopipe.config import check, model
from eopipe.contract import stage
from eopipe.errors import UsageError
from eopipe.run.repeated import each_training
from eopipe.run.rules import options_of_job
from eopipe.trial_settings import (
    counts_of_rungs,
    dimension_of,
    name_of,
    settings_text,
    training_settings,
    trial_settings,
)

BASE: dict[str, Any] = {"search": {"catalog": "sample"}, "preprocess": {"bands": ["red"], "mask": "none"}}
BASE["search"] |= {"assets": ["red"]}
BASE |= {"label": {"source": "sample/area.geojson", "classes": ["a", "b"]}, "split": {"chip": 16}}
OF_WIDTH = {"trials": {"space": {"width": [8, 16]}}}


def settings(space: dict[str, Any], train: dict[str, Any] | None = None, **more: Any) -> list[dict[str, Any]]:
    """The settings of the trials of a config in their order."""
    config = model().model_validate({"train": train or {}, "trials": {"space": space, **more}}).model_dump()
    return list(trial_settings(config).values())


def radical_inverse(number: int, base: int) -> float:
    """A coordinate of the Halton sequence by its definition."""
    value, share = 0.0, 1.0
    while number:
        share /= base
        number, digit = divmod(number, base)
        value += digit * share
    return value


def test_a_grid_has_every_combination_and_the_last_option_changes_first() -> None:
    of_trials = settings({"width": [8, 16], "seed": {"low": 1, "high": 5, "step": 2}})
    assert of_trials == [{"width": width, "seed": seed} for width in (8, 16) for seed in (1, 3, 5)]


def test_an_option_with_a_condition_is_only_where_that_holds() -> None:
    depth = {"choices": [1, 3], "when": {"architecture": ["unet"]}}
    assert settings({"architecture": ["linear", "unet"], "depth": depth}) == [
        {"architecture": "linear"},
        {"architecture": "unet", "depth": 1},
        {"architecture": "unet", "depth": 3},
    ]
    # The condition is on the setting of the run.
    gamma = {"choices": ["focal", "dice"], "when": {"task": "segmentation"}}
    assert [row["loss"] for row in settings({"loss": gamma})] == ["focal", "dice"]


def test_halton_points_are_those_of_the_definition() -> None:
    space = {"ema": {"low": 0.5, "high": 0.9}, "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}
    for number, row in enumerate(settings(space, sampler="halton", count=9, seed=2), 2020):
        assert row["ema"] == pytest.approx(0.5 + 0.4 * radical_inverse(number, 2), rel=1e-5)
        assert row["learning_rate"] == pytest.approx(1e-4 * 100 ** radical_inverse(number, 3), rel=1e-5)


@given(st.integers(1, 60), st.integers(1, 200), st.booleans(), st.sampled_from(["random", "halton"]))
def test_whole_numbers_of_a_range_stay_in_it_and_more_trials_keep_the_first_ones(
    low: int, span: int, log: bool, sampler: str
) -> None:
    space = {"width": {"low": low, "high": low + span, "log": log}, "learning_rate": {"low": 1e-4, "high": 0.5}}
    rows = settings(space, sampler=sampler, count=12)
    assert all(isinstance(row["width"], int) and low <= row["width"] <= low + span for row in rows)
    assert all(1e-4 <= row["learning_rate"] <= 0.5 for row in rows)
    assert settings(space, sampler=sampler, count=5) == rows[:5]
    assert len({name_of(row) for row in rows}) == 12


@pytest.mark.parametrize(("low", "high"), [(1, 2), (4, 7), (1, 40), (1, 64)])
@pytest.mark.parametrize("log", [False, True])
def test_each_whole_number_of_a_range_has_its_share_of_the_points_those_at_the_ends_too(
    low: int, high: int, log: bool
) -> None:
    width = dimension_of("width", {"low": low, "high": high, "log": log})
    shares = (np.arange(20_000) + 0.5) / 20_000
    actual = np.bincount([width.value_at(share) for share in shares.tolist()], minlength=high + 1)[low:] / len(shares)
    edges = np.arange(low, high + 2) - 0.5
    edges = np.log(edges) if log else edges
    np.testing.assert_allclose(actual, np.diff(edges) / (edges[-1] - edges[0]), atol=1e-4)


def test_equal_shares_of_a_range_or_of_choices_are_equally_likely() -> None:
    factors = dimension_of("learning_rate", {"low": 1e-4, "high": 1e-2, "log": True})
    numbers, choices = dimension_of("ema", {"low": 0.5, "high": 0.9}), dimension_of("loss", ["focal", "dice", "lovasz"])
    for share in (0.0, 0.1, 0.25, 0.5, 0.9, 0.999):
        assert factors.value_at(share) == pytest.approx(1e-4 * 100**share, rel=1e-5)
        assert numbers.value_at(share) == pytest.approx(0.5 + 0.4 * share, rel=1e-5)
    every = [choices.value_at(share / 300) for share in range(300)]
    assert every == ["focal"] * 100 + ["dice"] * 100 + ["lovasz"] * 100


@pytest.mark.parametrize(
    ("trials", "rungs", "keep", "counts"),
    [
        (8, 3, 0.5, [4, 2, 1]),
        (9, 3, 0.5, [5, 3, 2]),
        (3, 3, 0.5, [2, 1, 1]),
        (27, 3, 1 / 3, [9, 3, 1]),
        (28, 2, 1 / 3, [10, 4]),
        (10, 1, 0.31, [4]),
        (10, 1, 0.99, [10]),
        (10, 2, 0.01, [1, 1]),
        # 25 * 0.28 and 100 * 0.07 are above 7 in floating point.
        (25, 1, 0.28, [7]),
        (100, 1, 0.07, [7]),
        (5, 0, 0.5, []),
    ],
)
def test_behind_a_rung_their_share_of_the_trials_continues_and_at_least_one(
    trials: int, rungs: int, keep: float, counts: list[int]
) -> None:
    shares = [0.2, 0.4, 0.6][:rungs]
    of_trials = {"space": {"seed": [*range(trials)]}, "rungs": shares, "keep": keep}
    assert counts_of_rungs(model().model_validate({"trials": of_trials}).model_dump()) == counts


def test_another_seed_gives_other_points() -> None:
    space = {"learning_rate": {"low": 1e-4, "high": 1e-2}}
    for sampler in ("random", "halton"):
        first, second = (settings(space, sampler=sampler, count=20, seed=seed) for seed in (0, 1))
        assert not {str(row) for row in first} & {str(row) for row in second}


def test_the_name_of_a_trial_is_by_its_settings_alone() -> None:
    assert name_of({"width": 8, "seed": 1}) == name_of({"seed": 1, "width": 8})
    assert name_of({"width": 8}) != name_of({"width": 16})


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        ({"space": {"widht": [1, 2]}}, "trials.space has widht, which is not an option of train; did you mean width?"),
        ({"space": {"device": ["cpu", "cuda"]}}, "device, which is not an option of train"),
        ({"space": {"processes": [1, 2]}}, "processes, which is the same for all trainings; set train.processes"),
        ({"space": {"width": [0, 8]}}, "trials.space.width has 0: Input should be greater than or equal to 1"),
        ({"space": {"width": 8}}, "trials.space.width is 8: write a list of choices, or a range as {low: 1, high: 10}"),
        ({"space": {"width": {"low": 9, "high": 4}}}, "goes from 9 to 4; low must be less than high"),
        ({"space": {"loss": {"low": 1, "high": 4}}}, "trials.space.loss is a range, but train.loss is not a number"),
        ({"space": {"width": {"low": 4}}}, "trials.space.width.high: field required; write a list of choices"),
        ({"space": {"ema": {"low": 0, "high": 0.9, "log": True}}}, "it needs a low above 0"),
        ({"space": {"ema": {"low": 0.1, "high": 0.9}}}, "is a range without step, and sampler grid tries every value"),
        ({"space": {"seed": [*range(40)], "width": [*range(1, 40)]}}, "has 1560 combinations, and a run has at most"),
        ({"space": {"until": [0.3, 0.5]}}, "trials.space has until, which is not an option of train"),
        ({"space": {"width": [8]}}, "has only 1 different settings for 2 trials"),
        ({"space": {"width": [8, 16]}, "count": 3}, "has 2 combinations, not trials.count 3; remove that"),
        ({"space": {"width": [8, 16]}, "sampler": "halton"}, "trials.sampler halton needs trials.count"),
        ({"space": {"width": [8, 16]}, "sampler": "random", "count": 4}, "has only 2 different settings for 4 trials"),
        ({"space": {"width": {"choices": [8], "when": {"seed": 1}}, "seed": [1, 2]}}, "seed has a value, which comes"),
        ({"space": {"width": {"choices": [8, 9], "when": {"sead": 1}}}}, "sead has a value, which is not an option"),
        ({"space": {"steps": [100, 200]}}, "the trial with steps 100: train.steps and train.epochs are both given"),
        ({"space": {"depth": [1, 5]}}, "the trial with depth 5: split.chip 16 cannot be halved 5 times"),
        ({"space": {"architecture": ["unet", "net.py:Net"]}}, "code may run only where train.architecture is that"),
        ({"count": 3}, "trials has settings without a space; add trials.space"),
        ({"space": {"width": [8, 16]}, "cuont": 3}, "trials has no setting cuont; did you mean count?"),
        ({"space": {"width": [8, 16]}, "sampler": "tpe"}, "sampler is 'tpe': write 'grid', 'random' or 'halton'"),
    ],
)
def test_a_wrong_space_is_one_sentence(trials: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        check(BASE | {"train": {"epochs": 2}, "trials": trials})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_job_of_a_trial_has_the_same_arguments_in_both_engines() -> None:
    space = {"width": [8, 16], "compile": [True, False], "arguments": [["a=1"], []], "clip": [None, 1.5]}
    config = check(BASE | {"train": {"clip": 2.0, "compile": True}, "trials": {"space": space}})
    paths = shlex.split("--tiles t --labels l --chips c --statistics s --model m")
    of_run = options_of_job(config, "train", {})
    for name, of_trial in trial_settings(config).items():
        by_snakemake = parse(stage("train"), [*paths, *shlex.split(options_of_job(config, "train", {"trial": name}))])
        words = [*paths, *shlex.split(of_run), "--settings", settings_text(of_trial)]
        assert parse(stage("train"), expand_settings(stage("train"), words)) == by_snakemake
        assert {k: list(v) if isinstance(v := by_snakemake[k], tuple) else v for k in of_trial} == of_trial


@pytest.mark.parametrize("text", ["{", "[1]", '{"device": "cpu"}', '{"widht": 1}', '{"until": 0.5}'])
def test_settings_that_are_not_options_in_json_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--settings"):
        expand_settings(stage("train"), ["--width", "8", "--settings", text])


def test_members_are_trainings_with_seeds_of_their_own() -> None:
    config = check(BASE | {"members": 3, "train": {"seed": 5}})
    assert training_settings(config) == {str(n): {"seed": 5 + n, "averaged_with": ["none"]} for n in range(3)}
    assert each_training(config, ["results/model/manifest.json"]) == [
        f"results/members/model-member-{number}/manifest.json" for number in range(3)
    ]
    wildcards = SimpleNamespace(map="mosaic", get={"member": "1"}.get)
    assert options_of_job(config, "predict", wildcards).endswith("--places test")
    assert "--seed 6" in options_of_job(config, "train", {"member": "1"})
    assert each_training(check(BASE), ["results/model/manifest.json"]) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (BASE | OF_WIDTH | {"folds": 3}, "trials choose a training, and folds measure one: remove folds"),
        ({"model": "model"} | OF_WIDTH, "maps without a training; remove trials"),
        (BASE | OF_WIDTH | {"members": 2}, "members and trials exclude each other; remove one"),
        (BASE | {"members": 2, "folds": 3}, "members and folds exclude each other"),
    ],
)
def test_trials_members_folds_and_a_finished_model_exclude_each_other(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(config)


def test_the_maps_of_a_trial_are_those_of_the_validation_places_and_files_follow_the_order_of_the_trials() -> None:
    config = check(BASE | {"trials": {"space": {"width": [8, 16]}}})
    first, second = trial_settings(config)
    wildcards = SimpleNamespace(map="mosaic", get={"trial": first}.get)
    assert options_of_job(config, "predict", wildcards).endswith("--places val")
    paths = each_training(config, ["results/maps/a/classes.tif", "results/maps/b/classes.tif"])
    folders = [f"results/trials/maps-trial-{name}/{image}/classes.tif" for name in (first, second) for image in "ab"]
    assert paths == folders
    assert json.loads(settings_text(trial_settings(config)[second])) == {"width": 16}


def with_members(members: Any) -> dict[str, Any]:
    return BASE | {"members": members, "train": {"seed": 5}}


def test_members_of_several_kinds_have_their_options_and_a_seed_each() -> None:
    members = [
        {"architecture": "unet", "width": 8},
        {"architecture": "forest", "seed": 1},
        {"averaged_with": ["linear"]},
    ]
    assert list(training_settings(check(with_members(members))).values()) == [
        {"seed": 5, "architecture": "unet", "width": 8, "averaged_with": ["none"]},
        {"seed": 1, "architecture": "forest", "averaged_with": ["none"]},
        {"seed": 7, "averaged_with": ["linear"]},
    ]


@pytest.mark.parametrize(("members", "message"), [
    ([{"architecture": "unet"}], "members lists fewer than two trainings; write the options of each, or their number"),
    ([{}, {"widht": 8}], "members[1] has widht, which is not an option of train; did you mean width?"),
    ([{}, {"task": "regression"}], "members[1] has task, which is the same for all trainings; set train.task"),
    ([{"width": 0}, {}], "members[0].width has 0: Input should be greater than or equal to 1"),
    ([{}, {"architecture": "net.py:Net"}], "a member has the architecture net.py:Net, whose code may run only where"),
    ([{}, {"loss": "huber"}], "averaged_with [\"none\"]: train.loss huber is not for task segmentation"),
    ("two", "members"),
])  # fmt: skip
def test_a_wrong_list_of_members_is_refused(members: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        check(with_members(members))
