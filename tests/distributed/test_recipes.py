"""Losses, averages, early stops, changes of light and other models, from the command line to the map."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import warm
from safetensors.numpy import load_file
from trainings import Data, Training, payload, run_stage

from eopipe.models.model_folder import read_model_card
from eopipe.training.schedule import best_validation

HERE = Path(__file__).parent
RICH = ("--epochs", "4", "--width", "8", "--loss", "lovasz", "--ema", "0.9", "--patience", "2")
RICH += ("--augment", "symmetries", "brightness", "haze", "bands", "--schedule", "linear", "--checkpoint-every", "2")


def history(training: Training) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads((training.model / "history.json").read_text())["validations"]
    return rows


@pytest.mark.exhaustive
def test_a_training_with_all_of_it_is_resumed_to_the_bit(training: Training, tmp_path: Path) -> None:
    whole = replace(training, folder=tmp_path / "whole", settings=RICH)
    assert whole.run().returncode == 0
    cut = replace(training, folder=tmp_path / "cut", settings=RICH)
    process = cut.start()
    cut.wait_for_step(3, process)
    process.kill()
    process.communicate()
    completed = cut.run()
    assert completed.returncode == 0, completed.stderr
    assert "event=resume" in completed.stderr
    same = ("model.safetensors", "history.json", "model.json")
    assert {n: payload(cut.model)[n] for n in same} == {n: payload(whole.model)[n] for n in same}
    assert len(history(whole)) <= 4


@pytest.mark.exhaustive
def test_a_training_that_gets_no_better_stops_and_publishes_its_best(training: Training, tmp_path: Path) -> None:
    # A constant rate, so that a shorter training takes the same steps.
    # Far too high, so that it gets worse.
    arguments = ("--class-weights", "balanced", "--schedule", "constant", "--warmup", "0", "--learning-rate", "0.02")
    patient = replace(
        training, folder=tmp_path / "patient", settings=(*arguments, "--width", "8", "--epochs", "9", "--patience", "1")
    )
    completed = patient.run()
    assert completed.returncode == 0, completed.stderr
    rows = history(patient)
    best = best_validation(rows)
    assert best is not None
    assert best + 2 == len(rows) < 9
    short = replace(
        training, folder=tmp_path / "short", settings=(*arguments, "--width", "8", "--epochs", str(best + 1))
    )
    assert short.run().returncode == 0
    assert payload(patient.model)["model.safetensors"] == payload(short.model)["model.safetensors"]


def test_balanced_weights_are_those_of_the_training_split(training: Training, data: Data) -> None:
    arguments = ("--epochs", "1", "--width", "4", "--class-weights", "balanced", "--loss", "focal")
    weighed = replace(training, settings=arguments)
    assert weighed.run().returncode == 0
    weights = read_model_card(weighed.model)["settings"]["weights"]
    counts = json.loads((data.root / "split.json").read_text())["pixels"]["train"]
    assert np.ptp([w * counts[name] for w, name in zip(weights, ("non-forest", "forest"), strict=True)]) < 1


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("convnext", "--depth", "1"), id="convnext"),
        pytest.param(("temporal", "--freeze", "embed."), id="temporal", marks=pytest.mark.exhaustive),
    ],
)
def test_other_models_go_all_the_way_to_the_map(training: Training, options: tuple[str, ...]) -> None:
    arguments = ("--epochs", "1", "--width", "4", "--architecture", *options)
    other = replace(training, settings=arguments)
    completed = other.run()
    assert completed.returncode == 0, completed.stderr
    tiles, folder = other.data.tiles[0], other.folder
    maps = ("--classes", folder / "classes.tif", "--probabilities", folder / "probabilities.tif")
    assert run_stage("predict", "--model", other.model, "--tiles", tiles, *maps) == 0
    checked = ("--onnx", folder / "model.onnx", "--check", folder / "export.json")
    assert run_stage("export", "--model", other.model, "--tiles", tiles, *checked) == 0
    assert load_file(other.model / "model.safetensors")


SEGFORMER = ("hidden_sizes=[8,16,16,16]", "depths=[1,1,1,1]", "sr_ratios=[1,1,1,1]", "decoder_hidden_size=16")


@pytest.mark.exhaustive
def test_a_model_of_transformers_goes_frozen_with_low_rank_changes_to_the_map(training: Training) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("peft")
    options = ("--architecture", "transformers:SegformerForSemanticSegmentation", "--arguments", *SEGFORMER)
    arguments = ("--epochs", "1", *options, "--freeze", "segformer.", "--lora", "2")
    other = replace(training, settings=arguments)
    completed = other.run()
    assert completed.returncode == 0, completed.stderr
    names = load_file(other.model / "model.safetensors")
    assert any(name.startswith("model.segformer.") for name in names)
    assert not any("lora" in name for name in names)
    to_the_map(other)


def to_the_map(training: Training) -> None:
    """Predict and export as a user does, each as a process of its own."""
    tiles, folder = training.data.tiles[0], training.folder
    maps = ("--classes", folder / "classes.tif", "--probabilities", folder / "probabilities.tif")
    checked = ("--onnx", folder / "model.onnx", "--check", folder / "export.json")
    for stage, outputs in (("predict", maps), ("export", checked)):
        command = [warm.python(), "-m", "eopipe", stage, "--model", training.model, "--tiles", tiles, *outputs]
        command += ["--allow-code", training.settings[training.settings.index("--architecture") + 1]]
        completed = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=180, check=False)
        assert completed.returncode == 0, completed.stderr


def test_what_cannot_be_trained_is_refused_before_it_starts(training: Training) -> None:
    for options, why in (
        (("--freeze", "encoder"), "train.freeze is encoder"),
        (("--arguments", "size=tiny"), "UNet does not take size; it takes bands, classes, width, depth"),
        (("--architecture", "convnext", "--arguments", "size=huge"), "convnext has no size huge"),
        (("--architecture", "torch.nn:Identity"), "model torch.nn:Identity has no trainable weights"),
        (
            ("--architecture", "faulty_models:Picky"),
            "a chip of 4 bands and 16 x 16 pixels: faulty_models.py line 100: AssertionError: only 32 x 32 here",
        ),
    ):
        completed = replace(training, settings=options).run(PYTHONPATH=f"{HERE}:{os.environ.get('PYTHONPATH', '')}")
        assert completed.returncode == 2
        assert why in completed.stderr


@pytest.mark.exhaustive
def test_frozen_parts_learn_a_low_rank_change_only(training: Training) -> None:
    pytest.importorskip("peft")
    arguments = ("--epochs", "1", "--width", "4")
    first = replace(training, folder=training.folder / "first", settings=arguments)
    assert first.run().returncode == 0
    options = ("--init", str(first.model), "--freeze", "down.", "--lora", "1", "--ema", "0.5")
    second = replace(training, folder=training.folder / "second", settings=(*arguments, *options))
    completed = second.run()
    assert completed.returncode == 0, completed.stderr
    was, now = (load_file(training.model / "model.safetensors") for training in (first, second))
    assert was.keys() == now.keys()
    # A kernel (out, in, 3, 3) changes by a product of (out, 1) and (1, in x 3 x 3).
    changes = [now[n] - was[n] for n in was if ".down." in n and was[n].ndim == 4]
    assert {np.linalg.matrix_rank(c.reshape(len(c), -1), tol=1e-6) for c in changes} == {1}
