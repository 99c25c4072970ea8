"""A training that begins with the weights of another model goes on from there, and is resumed like any other."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from torch.testing import assert_close
from trainings import Data, Training, payload, workers

from eopipe.errors import UsageError
from eopipe.models.model_folder import (
    TrainedModel,
    read_network,
    read_trained_model,
    read_weights,
    write_model_folder,
)
from eopipe.publish import publish
from eopipe.tiles.store import Tiles
from eopipe.training.data import TrainingData, TrainingInputs
from eopipe.training_job import Job, Knobs, Settings

ALIKE = ("--epochs", "1", "--processes", "2", "--width", "8", "--checkpoint-every", "1")


def loss(model: dict[str, bytes]) -> float:
    """The loss of the first step."""
    return float(json.loads(model["metrics.jsonl"].splitlines()[0])["loss"])


@pytest.mark.exhaustive
def test_a_tuned_model_begins_better_and_is_resumed_to_the_bit(
    data: Data, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for name, content in undisturbed.items():
        (base / name).write_bytes(content)
    whole, cut = (Training(data, tmp_path / name, (*ALIKE, "--init", str(base))) for name in ("whole", "cut"))
    for training in (whole, cut):
        training.folder.mkdir()
    completed = whole.run()
    assert completed.returncode == 0, completed.stderr
    tuned = payload(whole.model)
    assert loss(tuned) < 0.8 * loss(undisturbed)
    was, now = load_file(base / "model.safetensors"), load_file(whole.model / "model.safetensors")
    assert was.keys() == now.keys()
    assert any((was[name] != now[name]).any() for name in was)
    process = cut.start()
    cut.wait_for_step(4, process)
    for pid in workers(cut.folder):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    # What it began with decides its result, so another model to begin with would be another training.
    again = cut.run()
    assert again.returncode == 0, again.stderr
    assert "event=resume" in again.stderr
    assert payload(cut.model) == tuned


def job(data: Data, init: Path | None, **other: object) -> Job:
    """The job of a training that begins with a model."""
    tables = (data.root / "split.json", data.root / "statistics.json")
    inputs = TrainingInputs(tuple(map(Path, data.tiles)), (data.root / "all.zarr",), *tables, init)
    settings = replace(Settings(width=4, epochs=1, batch=8), **other)
    return TrainingData.open(inputs).job(settings, Knobs(device="cpu"), data.root / "state", data.root / "views")


@pytest.mark.parametrize(
    ("classes", "is_new"), [(None, False), (("water", "land"), True), (("a", "b", "c", "d", "e"), True)]
)
def test_a_model_of_other_classes_gives_all_its_weights_but_those_of_the_head(
    data: Data, tmp_path: Path, classes: tuple[str, ...] | None, is_new: bool
) -> None:
    fresh, names = job(data, None), classes or Tiles(data.root / "all.zarr").names
    architecture = replace(fresh.architecture, classes=len(names))
    with publish(tmp_path / "base", folder=True) as draft:
        trained = TrainedModel(architecture, fresh.bands, names, fresh.normaliser, fresh.chip)
        write_model_folder(draft, trained, architecture.build().state_dict(), [], {})
    base = read_weights(tmp_path / "base")

    tuned = job(data, tmp_path / "base")
    assert tuned.new_head == (("head.2.weight", "head.2.bias") if is_new else ())
    weights = tuned.build_model().state_dict()
    for name, weight in weights.items():
        if name not in tuned.new_head:
            assert_close(weight, base[name], rtol=0, atol=0)
    if is_new:
        assert weights["head.2.weight"].shape[0] == fresh.architecture.classes
        assert job(data, tmp_path / "base", head_learning_rate=1e-2).settings.head_learning_rate == 1e-2
        with pytest.raises(UsageError, match=r"freeze has head\.2\.weight, but the head .* is new"):
            job(data, tmp_path / "base", freeze=("head.",))
    else:
        with pytest.raises(UsageError, match="head_learning_rate is for a new head"):
            job(data, tmp_path / "base", head_learning_rate=1e-2)


def test_a_network_is_averaged_with_models_of_pixels_and_a_training_begins_with_the_network(
    data: Data, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    base, alone = tmp_path / "base", Training(data, tmp_path / "alone")
    base.mkdir()
    for name, content in undisturbed.items():
        (base / name).write_bytes(content)
    alone.settings += ("--averaged-with", "none")
    alone.folder.mkdir()
    completed = alone.run()
    assert completed.returncode == 0, completed.stderr
    trained = read_trained_model(base)
    assert [kind.name for kind in trained.kinds] == ["unet", "forest", "linear"]
    assert read_trained_model(alone.model) == replace(trained, members=1, kinds=())
    # What is fitted beside a network changes nothing of it.
    network = read_network(base)
    for name, weight in read_weights(alone.model).items():
        assert_close(network[name], weight, rtol=0, atol=0)
    weights = job(data, base, width=8).build_model().state_dict()
    assert weights.keys() == network.keys()
    for name, weight in weights.items():
        assert_close(weight, network[name], rtol=0, atol=0)
