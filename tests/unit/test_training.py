"""The parts that make a training exact: data order, schedule, checkpoints, state keys, run records."""

import json
import math
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from chip_files import made_split
from hypothesis import given
from hypothesis import strategies as st

from eopipe.checkpoints.manager import is_ended
from eopipe.cli import main
from eopipe.config import check, load
from eopipe.errors import BadInputError, UsageError
from eopipe.models import Architecture
from eopipe.models.networks import UNet
from eopipe.run import rules
from eopipe.stac.write import ItemExtent
from eopipe.training.data import TrainingData, TrainingInputs
from eopipe.training.schedule import default_crop, learning_rate
from eopipe.training_job import Settings, TrainingLength

ROOT = Path(__file__).parents[2]
SETTINGS = Settings(width=8, depth=2, epochs=10, batch=16, learning_rate=1e-3, warmup=0.1)


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    rates = [learning_rate(SETTINGS, step, 200) for step in range(200)]
    assert max(rates) == pytest.approx(1e-3)
    peak = rates.index(max(rates))
    assert peak in (19, 20)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak + 1 :] == sorted(rates[peak + 1 :], reverse=True)
    assert rates[-1] < 1e-6


def key(inputs: TrainingInputs, **changes: Any) -> str:
    return TrainingData(inputs, [], made_split(), {}, ItemExtent()).key(replace(SETTINGS, **changes).deciding())


def test_the_state_of_a_training_is_keyed_by_its_data_and_settings(tmp_path: Path) -> None:
    for name in ("a", "b", "split", "statistics"):
        (tmp_path / name).write_text(name)
    a, b = tmp_path / "a", tmp_path / "b"
    inputs = TrainingInputs((a, b), (a,), tmp_path / "split", tmp_path / "statistics")
    first = key(inputs)
    assert key(replace(inputs, tiles=(b, a))) == first, "the order of the scenes does not matter"
    assert key(inputs, seed=1) != first
    assert key(replace(inputs, labels=(b,))) != first
    assert key(replace(inputs, statistics=b)) != first
    b.write_text("other pixels")
    assert key(inputs) != first


def test_the_state_of_a_training_is_keyed_by_the_files_of_a_custom_model(tmp_path: Path) -> None:
    for name in ("a", "split", "statistics", "net.py"):
        (tmp_path / name).write_text("x = 1")
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers/curves.py").write_text("x = 1")
    a, code = tmp_path / "a", (tmp_path / "net.py", tmp_path / "layers")
    inputs = TrainingInputs((a,), (a,), tmp_path / "split", tmp_path / "statistics", None, code)
    keys = {key(replace(inputs, model_files=())), key(inputs)}
    for path in (tmp_path / "net.py", tmp_path / "layers/curves.py"):
        path.write_text("x = 2")
        keys.add(key(inputs))
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("name", "message"), [("resnet", "there is no model resnet"), ("no.such:Thing", "cannot be imported")]
)
def test_an_unknown_model_is_told_in_one_sentence(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Architecture(name, 4, 2, 8, 2).build()


@given(st.integers(1, 24), st.integers(1, 3))
def test_a_unet_keeps_the_size_of_its_input(width: int, depth: int) -> None:
    edge = 2**depth * 3
    with torch.inference_mode():
        assert UNet(3, 5, width, depth)(torch.rand(2, 3, edge, 2 * edge)).shape == (2, 5, edge, 2 * edge)


def test_a_pixel_depends_on_no_other_sample_of_its_batch() -> None:
    model, x = UNet(2, 2, 8, 2).eval(), torch.rand(3, 2, 16, 16)
    with torch.inference_mode():
        torch.testing.assert_close(model(x)[:1], model(x[:1]), rtol=0, atol=1e-5)


CONFIG = load(ROOT / "config/config.yaml")


def test_the_words_of_a_rule_are_quoted_for_the_shell() -> None:
    config = CONFIG | {"report": CONFIG["report"] | {"title": "it's; $(touch x)"}}
    assert "'it'\"'\"'s; $(touch x)'" in rules.options(config, "report")


def test_a_knob_is_no_option_and_an_option_no_knob() -> None:
    assert "--width 16" in rules.options(CONFIG, "train")
    assert "--cache-mb" not in rules.options(CONFIG, "train")
    assert rules.knobs(CONFIG, "train", "--state", "a b").startswith("--state 'a b' --device auto")


@pytest.mark.parametrize(("deterministic", "idle"), [(True, "processes"), (False, "shards")])
def test_an_option_that_decides_nothing_beside_the_others_is_no_option_of_the_rule(
    deterministic: bool, idle: str
) -> None:
    config = CONFIG | {"train": CONFIG["train"] | {"deterministic": deterministic}}
    other = CONFIG | {"train": config["train"] | {idle: 3}}
    assert rules.options(config, "train") == rules.options(other, "train")
    assert rules.knobs(config, "train") != rules.knobs(other, "train")
    arguments = shlex.split(f"{rules.options(other, 'train')} {rules.knobs(other, 'train')}")
    assert arguments[arguments.index(f"--{idle}") + 1] == "3"
    assert arguments.count("--processes") == arguments.count("--shards") == 1


def test_settings_that_cannot_go_together_are_told_by_a_check_of_the_config() -> None:
    train = {"deterministic": True, "strategy": "fsdp", "batch": 2, "processes": 5, "accumulate": 2}
    with pytest.raises(UsageError) as raised:
        check(CONFIG | {"train": CONFIG["train"] | train})
    for word in ("train.processes 5", "train.batch 2", "train.strategy ddp", "train.accumulate"):
        assert word in str(raised.value)


def test_a_catalog_stands_for_its_folder_in_the_inputs_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert rules.named_files(CONFIG, "search") == {"catalog": "sample/catalog.json"}
    assert rules.catalog(CONFIG)(None) == "--catalog sample"


def test_records_are_found_beside_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "a.tif.run.json").touch()
    (tmp_path / "model.run.json").touch()
    outputs = [tmp_path / "a.tif", tmp_path / "model/manifest.json", tmp_path / "grid.json"]
    records = rules.records(map(str, outputs))
    assert [Path(path).name for path in records] == ["a.tif.run.json", "model.run.json"]


def test_a_run_record_tells_what_was_done_and_not_by_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["search", "--catalog", str(ROOT / "sample"), "--items", "items", "--grid", "grid.json"]
    assert main([*arguments, "--selection", "selection.json"]) == 0
    record = json.loads(Path("items.run.json").read_text())
    assert (record["stage"], record["status"]) == ("search", "completed")
    assert record["arguments"][:2] == ["eopipe", "search"]
    assert {row["name"]: row["files"] for row in record["outputs"]} == {
        "items": 24,
        "grid.json": 1,
        "selection.json": 1,
    }
    assert all(len(row["sha256"]) == 64 for row in record["outputs"])
    assert record["start"].endswith("+00:00")
    assert math.isfinite(record["usage"]["max_rss_mb"])
    assert os.uname().nodename not in json.dumps(record["place"])


def test_a_failed_job_leaves_a_record_with_its_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["search", "--catalog", str(ROOT / "sample"), "--items", "items", "--grid", "grid.json"]
    assert main([*arguments, "--selection", "selection.json", "--datetime", "1999-01-01"]) == 3
    record = json.loads(Path("items.run.json").read_text())
    assert (record["status"], record["outputs"]) == ("failed", [])
    assert "no scene matches" in record["error"]
    assert not Path("items").exists()


def test_steps_and_epochs_and_crops_of_whole_chips_exclude_each_other() -> None:
    assert replace(SETTINGS, epochs=None, steps=5).conflicts() == SETTINGS.conflicts() == []
    (sentence,) = replace(SETTINGS, epochs=2, steps=5).conflicts()
    assert sentence == "train.steps and train.epochs are both given; remove one of them"
    (sentence,) = replace(SETTINGS, task="classification", averaged_with=(), crop=8).conflicts()
    assert sentence == "train.crop is for labels of pixels, and task classification has labels of chips; remove it"


@pytest.mark.parametrize(
    ("share", "steps", "every", "pause"),
    [(0.3, 20, 2, 6), (0.31, 20, 2, 8), (0.01, 20, 2, 2), (0.97, 20, 3, 20), (0.07, 100, 1, 7), (0.6, 3, 1, 2)],
)
def test_a_training_pauses_at_the_first_validated_step_from_a_share_on(
    share: float, steps: int, every: int, pause: int
) -> None:
    assert TrainingLength(steps, every, 100, 1.0).pause(share) == pause


def test_only_a_model_folder_that_is_not_named_ends_where_it_is(tmp_path: Path) -> None:
    model, promoted = tmp_path / "model-trial-a", tmp_path / "promoted.json"
    model.mkdir()
    promoted.write_text('{"promoted": ["model-trial-b"]}')
    with pytest.raises(BadInputError, match="is not a model folder"):
        is_ended(model, promoted)
    (model / "manifest.json").touch()
    assert is_ended(model, promoted)
    assert not is_ended(None, None)
    for continued, names, message in (
        (model, '{"promoted": ["model-trial-a"]}', "does not have a checkpoint"),
        (model, '["model-trial-a"]', "does not name those that may continue"),
        (model, '{"promoted": 1}', "does not name those that may continue"),
    ):
        promoted.write_text(names)
        with pytest.raises(BadInputError, match=message):
            is_ended(continued, promoted)
    with pytest.raises(BadInputError, match="does not have a checkpoint"):
        is_ended(model, None)
    with pytest.raises(UsageError, match="give the model folder as --continued"):
        is_ended(None, promoted)


def test_crops_are_smaller_than_large_chips_and_as_large_as_small_ones() -> None:
    assert [default_crop(chip) for chip in (8, 32, 128, 256, 512)] == [8, 32, 32, 64, 64]


@pytest.mark.parametrize(("settings", "expected"), [
    ({}, ("forest", "linear")),
    ({"task": "regression"}, ("forest", "linear")),
    ({"architecture": "convnext"}, ()),
    ({"architecture": "net.py:Net"}, ()),
    ({"task": "classification"}, ()),
    ({"averaged_with": ("none",)}, ()),
    ({"averaged_with": ("boosting",), "architecture": "convnext"}, ("boosting",)),
])  # fmt: skip
def test_a_unet_of_pixels_is_averaged_with_a_forest_and_a_linear_model_by_default(
    settings: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert Settings(**settings).fitted_beside == expected
    (sentence,) = Settings(task="multilabel", averaged_with=("forest",)).conflicts()
    assert "train has forest, a model of pixels, and task multilabel has labels of chips" in sentence
