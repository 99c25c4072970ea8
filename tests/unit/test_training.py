"""The parts that make a training exact: data order, schedule, checkpoints, state keys, run records."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import AdamW

from eopipe import rules
from eopipe.cli import main
from eopipe.config import load
from eopipe.errors import UsageError
from eopipe.models import Architecture
from eopipe.models.unet import UNet
from eopipe.training import checkpoint
from eopipe.training.checkpoint import Progress
from eopipe.training.job import Settings
from eopipe.training.launch import command, lease
from eopipe.training.loop import learning_rate
from eopipe.training.order import epoch_order, step_samples, steps_per_epoch, way
from eopipe.training.run import Sources, key

ROOT = Path(__file__).parents[2]
SETTINGS = Settings("unet", 8, 2, 10, 16, 1e-3, 0.01, 0.1, "symmetries", "fp32", 0, 1, 1)


@given(st.integers(0, 2**32), st.integers(0, 1000), st.integers(1, 300))
def test_an_epoch_takes_every_sample_once(seed: int, epoch: int, count: int) -> None:
    assert sorted(epoch_order(seed, epoch, count)) == list(range(count))


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 200), st.integers(1, 64), st.integers(1, 5))
def test_the_workers_together_take_the_batch_whatever_their_number(
    seed: int, epoch: int, count: int, batch: int, world: int
) -> None:
    batch = min(batch, count)
    for step in range(steps_per_epoch(count, batch)):
        whole = step_samples(seed, epoch, step, count, batch)
        parts = [whole[rank::world] for rank in range(world)]
        assert len(whole) == batch
        assert sorted(np.concatenate(parts)) == sorted(whole)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {tuple(epoch_order(seed, epoch, 50)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_augmentation_uses_all_eight_ways_and_depends_on_the_epoch() -> None:
    ways = [[way(0, epoch, sample) for sample in range(200)] for epoch in range(2)]
    assert set(ways[0]) == set(range(8))
    assert ways[0] != ways[1]
    assert ways[0] == [way(0, 0, sample) for sample in range(200)], "asked again it is the same"


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    rates = [learning_rate(SETTINGS, step, 200) for step in range(200)]
    assert max(rates) == pytest.approx(1e-3)
    peak = rates.index(max(rates))
    assert peak in (19, 20)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak + 1 :] == sorted(rates[peak + 1 :], reverse=True)
    assert rates[-1] < 1e-6


def trained(steps: int) -> tuple[UNet, AdamW]:
    torch.manual_seed(0)
    model = UNet(2, 2, 4, 1)
    optimiser = AdamW(model.parameters(), 1e-2)
    for step in range(steps):
        torch.manual_seed(step)
        optimiser.zero_grad()
        model(torch.rand(2, 2, 8, 8)).square().mean().backward()
        optimiser.step()
    return model, optimiser


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_restored_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    model, optimiser = trained(3)
    checkpoint.save(tmp_path, Progress(3, 0.25, [{"epoch": 1}]), model, optimiser, keep=2)
    other, fresh = trained(0)
    assert checkpoint.restore(tmp_path, other, fresh) == Progress(3, 0.25, [{"epoch": 1}])
    for network, stepper in ((model, optimiser), (other, fresh)):
        stepper.zero_grad()
        network(torch.ones(1, 2, 8, 8)).sum().backward()
        stepper.step()
    assert same(model.state_dict(), other.state_dict())


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    for step in (5, 10, 100, 1000):
        checkpoint.save(tmp_path, Progress(step), model, optimiser, keep=2)
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-000000100", "step-000001000"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "swap"])
def test_a_damaged_checkpoint_never_loads(tmp_path: Path, name: str, harm: str) -> None:
    (model, optimiser), (later, steps) = trained(1), trained(2)
    checkpoint.save(tmp_path, Progress(1), model, optimiser, keep=2)
    checkpoint.save(tmp_path, Progress(2), later, steps, keep=2)
    path = tmp_path / "step-000000002" / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    changed = {
        "flip": bytes(content),
        "cut": path.read_bytes()[:-5],
        "swap": (tmp_path / "step-000000001" / name).read_bytes(),
    }
    path.unlink() if harm == "remove" else path.write_bytes(changed[harm])
    other, fresh = trained(0)
    assert checkpoint.restore(tmp_path, other, fresh).step == 1
    assert same(other.state_dict(), model.state_dict())


def test_without_a_checkpoint_a_training_starts_at_the_beginning(tmp_path: Path) -> None:
    model, optimiser = trained(0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert checkpoint.restore(tmp_path, model, optimiser) == Progress()
    assert same(before, model.state_dict())


def test_the_state_of_a_training_is_keyed_by_its_data_and_settings(tmp_path: Path) -> None:
    for name in ("a", "b", "split", "statistics"):
        (tmp_path / name).write_text(name)
    a, b = tmp_path / "a", tmp_path / "b"
    sources = Sources((a, b), (a,), tmp_path / "split", tmp_path / "statistics")
    first = key(sources, SETTINGS)
    assert key(replace(sources, tiles=(b, a)), SETTINGS) == first, "the order of the scenes does not matter"
    assert key(sources, replace(SETTINGS, seed=1)) != first
    assert key(replace(sources, labels=(b,)), SETTINGS) != first
    assert key(replace(sources, statistics=b), SETTINGS) != first
    b.write_text("other pixels")
    assert key(sources, SETTINGS) != first


def test_a_lease_is_held_by_one_and_free_after(tmp_path: Path) -> None:
    with (
        lease(tmp_path),
        pytest.raises(UsageError, match=f"already running \\(process {os.getpid()}\\)"),
        lease(tmp_path),
    ):
        pass
    with lease(tmp_path):
        pass


def test_torchrun_is_told_to_pass_signals_on_and_to_listen_nowhere_else(tmp_path: Path) -> None:
    words = command(tmp_path / "job.json", 3)
    assert "--standalone" in words
    assert "--nproc-per-node=3" in words
    assert any(word.startswith("--signals-to-handle=") and "SIGUSR1" in word for word in words)


@pytest.mark.parametrize(
    ("name", "why"), [("resnet", "there is no model resnet"), ("no.such:Thing", "cannot be imported")]
)
def test_an_unknown_model_is_told_in_one_sentence(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
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
    assert "--epochs 10" in rules.options(CONFIG, "train")
    assert "--cache-mb" not in rules.options(CONFIG, "train")
    assert rules.knobs(CONFIG, "train", "--state", "a b").startswith("--state 'a b' --device auto")


def test_a_catalog_stands_for_its_folder_in_the_inputs_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert rules.named_files(CONFIG, "search") == {"catalog": "sample/catalog.json"}
    assert rules.catalog(CONFIG) == "--catalog sample"


def test_records_are_found_beside_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "a.tif.run.json").touch()
    (tmp_path / "model.run.json").touch()
    made = [tmp_path / "a.tif", tmp_path / "model/manifest.json", tmp_path / "grid.json"]
    found = rules.records(map(str, made))
    assert [Path(path).name for path in found] == ["a.tif.run.json", "model.run.json"]


def test_a_run_record_tells_what_was_done_and_not_by_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["search", "--catalog", str(ROOT / "sample"), "--items", "items", "--grid", "grid.json"]
    assert main([*words, "--selection", "selection.json"]) == 0
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
    words = ["search", "--catalog", str(ROOT / "sample"), "--items", "items", "--grid", "grid.json"]
    assert main([*words, "--selection", "selection.json", "--datetime", "1999-01-01"]) == 3
    record = json.loads(Path("items.run.json").read_text())
    assert (record["status"], record["outputs"]) == ("failed", [])
    assert "no scene matches" in record["error"]
    assert not Path("items").exists()
