"""Checkpoints of FSDP2: each worker writes its rows; killed, stopped and dealt out anew, the training goes on."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from trainings import Data, Training, prepare

from eopipe.checkpoints.checkpoint import read_part, steps
from eopipe.text_files import read_json

HERE = Path(__file__).parent
FSDP: dict[str, Any] = {"strategy": "fsdp", "epochs": 1}


def forks(job: Path, *arguments: str) -> str:
    line = [sys.executable, str(HERE / "forks.py"), str(job), *arguments]
    completed = subprocess.run(line, capture_output=True, text=True, timeout=900, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout + completed.stderr


def last(job: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in steps(job.parent)[-1].iterdir()}


def rows_in(path: Path) -> Iterator[tuple[str, int]]:
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118
            shape = file.get_slice(name).get_shape()
            yield name, shape[0] if shape else 0


@pytest.fixture(scope="module")
def undisturbed(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job of a training by two workers that was left alone."""
    job = prepare(data, tmp_path_factory.mktemp("calm") / "state", **FSDP)
    forks(job, "0", "0")
    return job


def test_each_worker_writes_its_own_rows_and_none_writes_the_whole(undisturbed: Path) -> None:
    step = steps(undisturbed.parent)[-1]
    whole = read_part(step, "model")
    first, second = (dict(rows_in(step / f"model{which}.safetensors")) for which in ("", ".1"))
    assert first.keys() == whole.keys()
    assert second.keys() == {name for name, value in whole.items() if len(value) > 1}
    for name, value in whole.items():
        assert first[name] == -(-len(value) // 2), name
        assert first[name] + second.get(name, 0) == len(value), name
    assert {path.name for path in step.glob("optimiser*")} == {"optimiser.safetensors", "optimiser.1.safetensors"}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("seed", "events", "moment"), [("5", "5", "any"), ("6", "3", "save")])
def test_killed_and_stopped_at_random_or_in_its_saves_it_ends_with_the_same_bytes(
    data: Data, tmp_path: Path, undisturbed: Path, seed: str, events: str, moment: str
) -> None:
    job = prepare(data, tmp_path / "often", **FSDP)
    output = forks(job, seed, events, moment)
    assert sum(line.startswith(("kill ", "TERM ", "USR1 ", "INT ")) for line in output.splitlines()) == int(events)
    assert last(job) == last(undisturbed)


@pytest.mark.exhaustive
def test_it_goes_on_in_one_two_or_four_workers_where_others_left_off(
    data: Data, tmp_path: Path, undisturbed: Path
) -> None:
    job = prepare(data, tmp_path / "sharded", **FSDP)
    forks(job, "7", "4", "signal", "2,4,1,4,2")
    last_step, last_calm = (steps(path.parent)[-1] for path in (job, undisturbed))
    state, state_calm = (read_json(step / "state.json") for step in (last_step, last_calm))
    assert {size for _, size in state["worlds"]} == {1, 2, 4}
    assert state["history"][0]["loss"] == pytest.approx(state_calm["history"][0]["loss"], abs=1e-4)
    # AdamW takes a step of full size where a gradient is nothing but rounding, so single weights may differ.
    assert apart(read_part(last_step, "model"), read_part(last_calm, "model")) < 0.02


def apart(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """How far apart two models are, as a part of their length."""
    assert {name: value.shape for name, value in first.items()} == {name: value.shape for name, value in second.items()}
    vectors = [torch.cat([model[name].flatten() for name in first]) for model in (first, second)]
    return float((vectors[0] - vectors[1]).norm() / vectors[1].norm())


@pytest.mark.exhaustive
def test_a_damaged_piece_of_another_worker_leads_to_the_checkpoint_before(undisturbed: Path) -> None:
    calm = last(undisturbed)
    piece = steps(undisturbed.parent)[-1] / "model.1.safetensors"
    content = bytearray(piece.read_bytes())
    content[-1] ^= 1
    piece.write_bytes(content)
    assert "event=checkpoint_damaged" in forks(undisturbed, "0", "0")
    assert last(undisturbed) == calm


@pytest.mark.exhaustive
def test_the_published_model_is_whole_and_that_of_one_process(data: Data, tmp_path: Path) -> None:
    settings = ("--epochs", "1", "--batch", "32", "--width", "4")
    models = []
    for name, *strategy in (("sharded", "--processes", "2", "--strategy", "fsdp"), ("alone", "--processes", "1")):
        training = Training(data, tmp_path / name, (*settings, *strategy))
        completed = training.run()
        assert completed.returncode == 0, completed.stderr
        models.append(load_file(training.model / "model.safetensors"))
    assert apart(*models) < 0.02
