"""A training that begins with the weights of another model goes on from there, and is resumed like any other."""

import json
import os
import signal
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from trainings import Data, Training, payload, workers

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
