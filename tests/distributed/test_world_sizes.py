"""Deterministic mode: one digest of the weights, whatever the number of workers."""

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from faulty_models import BRIGHT
from safetensors.numpy import load_file
from trainings import Data, Training, payload, workers
from worlds import IN_ONE_SLICE, SIZES, WAYS, trained

from eopipe.launch.failures import read_failure
from eopipe.loader.loader import ChipLoader
from eopipe.loader.prefetch import BatchRequest
from eopipe.training_job import read_job

COMPARED = [(1, 2), (1, 2, 4)]
DETERMINISTIC = [name for name in WAYS if name.startswith("deterministic") and not name.endswith("hungry")]


@IN_ONE_SLICE
@pytest.mark.parametrize("sizes", COMPARED, ids=str)
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_t11_any_number_of_workers_gives_the_same_weights_and_losses(name: str, sizes: tuple[int, ...]) -> None:
    first, *others = [trained()[size][name] for size in sizes]
    for run in others:
        assert (run["digest"], run["losses"]) == (first["digest"], first["losses"])


@IN_ONE_SLICE
def test_plain_ddp_does_not_so_the_test_above_can_fail() -> None:
    assert trained()[1]["plain"]["digest"] != trained()[2]["plain"]["digest"]


@IN_ONE_SLICE
def test_t11_two_then_one_then_four_workers_give_the_weights_of_one() -> None:
    assert trained()[4]["chain"]["digest"] == trained()[1]["deterministic-batchwise"]["digest"]


@IN_ONE_SLICE
@pytest.mark.parametrize("sizes", COMPARED, ids=str)
@pytest.mark.parametrize("name", ["deterministic", "deterministic-batchwise"])
def test_t20_scores_of_chips_that_no_number_of_workers_divides_are_the_same(name: str, sizes: tuple[int, ...]) -> None:
    first, *others = [trained()[size][name]["val"] for size in sizes]
    assert others == [first] * len(others)


@IN_ONE_SLICE
@pytest.mark.parametrize("sizes", COMPARED, ids=str)
def test_t20_no_chip_counts_twice_in_plain_mode(sizes: tuple[int, ...]) -> None:
    pixels = [sum(row["pixels"] for row in trained()[size]["plain"]["val"]["per_class"].values()) for size in sizes]
    assert len(set(pixels)) == 1


@IN_ONE_SLICE
def test_recomputed_activations_change_no_bit() -> None:
    runs = trained()[2]
    assert runs["deterministic-recomputed"]["recompute"]
    assert runs["deterministic-recomputed"]["losses"] == runs["deterministic"]["losses"][:8]
    assert runs["recomputed"]["losses"] == runs["plain"]["losses"][:8]


@IN_ONE_SLICE
@pytest.mark.parametrize("size", SIZES)
def test_a_shard_that_does_not_fit_is_refused_instead_of_changing_the_weights(size: int) -> None:
    run = trained()[size]["deterministic-hungry"]
    assert run["error"] == "NoSpaceError"
    assert "raise train.shards from 4, to 8 at most" in run["reason"]


@IN_ONE_SLICE
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["ignored", "deterministic-ignored"])
def test_t14_a_step_without_any_label_changes_nothing(size: int, name: str) -> None:
    losses = trained()[size][name]["losses"]
    assert losses[3] == 0
    assert losses[4] > 0


@IN_ONE_SLICE
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["dropping", "fp16", "fsdp-accumulated"])
def test_a_resumed_training_ends_with_the_same_weights(size: int, name: str) -> None:
    runs = trained()[size]
    assert runs[f"{name}-resumed"]["digest"] == runs[name]["digest"]
    assert runs[f"{name}-begun"]["digest"] != runs[name]["digest"]


ALIKE = ("--epochs", "1", "--width", "8", "--checkpoint-every", "1", "--deterministic")


def test_t11_a_model_is_the_same_file_by_file_after_a_change_of_processes(data: Data, tmp_path: Path) -> None:
    unchanged, changed = (Training(data, tmp_path / name, ALIKE) for name in ("one", "changed"))
    for training in (unchanged, changed):
        training.folder.mkdir()
    assert unchanged.run("--processes", "1").returncode == 0
    process = changed.start("--processes", "2")
    changed.wait_for_step(2, process)
    for pid in workers(changed.folder):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    completed = changed.run("--processes", "4")
    assert completed.returncode == 0, completed.stderr
    assert "event=resume" in completed.stderr
    assert payload(changed.model) == payload(unchanged.model)


def test_more_processes_than_shards_are_refused_before_torchrun(training: Training) -> None:
    completed = training.run("--deterministic", "--processes", "5")
    assert completed.returncode == 2
    assert "train.processes 5 is more than train.shards 4" in completed.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("processes", ["1", "2"])
def test_t13_a_loss_that_is_not_finite_names_step_and_chips(
    training: Training, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    completed = training.run("--architecture", "faulty_models:Poisoned", "--processes", processes)
    assert completed.returncode == 7, completed.stderr
    assert completed.stderr.count("event=failed") == 0
    assert "event=resume" not in completed.stderr, "it is not tried again"
    failure = read_failure(next(training.state.glob("*/status.json")))
    assert failure is not None
    assert (failure.kind, failure.attempt, failure.final) == ("diverged", 0, True)
    for weights in training.state.glob("*/step-*/*.safetensors"):
        assert all(np.isfinite(value).all() for value in load_file(weights).values())
    message = completed.stderr.splitlines()[-1]
    named = re.findall(r"(S2_ROMANIA_\d+) \(row (\d+), column (\d+)\)", message)
    assert re.search(r"at step \d+;", message)
    assert named
    (path,) = training.state.glob("*/job.json")
    feed = ChipLoader(read_job(path), torch.device("cpu"))
    for scene, row, col in named:
        assert chip(feed, scene, int(row), int(col)) > BRIGHT


def chip(feed: ChipLoader, scene: str, row: int, col: int) -> float:
    """The brightest pixel of a training chip."""
    for number, (_, y, x) in enumerate(feed.samples["train"].tolist()):
        request = BatchRequest("train", feed.samples["train"][:1, 0] * 0 + number)
        if (y, x) == (row, col) and feed.scenes(request) == [scene]:
            return float(next(iter(feed.stream([request]))).images_NCHW.max())
    raise LookupError((scene, row, col))
