"""Any two options of how a step is computed go together, or are refused in one sentence."""

import shutil
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from test_strategies import TOLERANCE, golden
from worker_of_worlds import PLAIN
from worlds import Runs, launch, way

from eopipe.training_job import Settings

STEPS = 3
# Half precision is another computation.
ROUGH = 5e-3
OPTIONS: dict[str, dict[str, Any]] = {
    "deterministic": way(deterministic=True),
    "fsdp": way(strategy="fsdp"),
    "accumulated": way(accumulate=2),
    "bf16": way(precision="bf16"),
    "fp16": way(precision="fp16"),
    "channels-last": way(channels_last=True),
    "compiled": way(compile=True),
    "recomputed": way() | {"recompute": True},
    "averaged": way(ema=0.9),
    "clipped": way(clip=0.05),
}
REFUSED = {
    frozenset({"deterministic", "fsdp"}): "train.deterministic sums whole gradients; it needs train.strategy ddp",
    frozenset(
        {"deterministic", "accumulated"}
    ): "train.deterministic processes a batch shard by shard; raise train.shards instead",
}
PAIRS = [pair for pair in combinations(OPTIONS, 2) if pair != ("bf16", "fp16")]
ALL = ("fsdp", "accumulated", "bf16", "channels-last", "compiled", "recomputed", "averaged", "clipped")


def together(*names: str) -> dict[str, Any]:
    """One training with all these options."""
    settings = {k: v for name in names for k, v in OPTIONS[name]["settings"].items()}
    return {"settings": settings, "recompute": "recomputed" in names, "steps": STEPS}


# They share the launches.
IN_ONE_SLICE = pytest.mark.exhaustive(by="option pairs")


@cache
def trained() -> Runs:
    """All pairs that are not refused, one after the other: in two workers where weights are sharded, else in one."""
    ways = {pair: together(*pair) for pair in PAIRS if frozenset(pair) not in REFUSED}
    sharded = {"+".join(pair): plan for pair, plan in ways.items() if "fsdp" in pair}
    whole = {"+".join(pair): plan for pair, plan in ways.items() if "fsdp" not in pair}
    with TemporaryDirectory() as folder:
        alone = launch(1, whole | {"clipped": together("clipped")}, Path(folder))
        return alone | launch(2, sharded | {"all": together(*ALL)}, Path(folder))


@IN_ONE_SLICE
@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_two_options_go_together_or_are_refused(pair: tuple[str, str]) -> None:
    conflicts = Settings(**PLAIN | together(*pair)["settings"]).conflicts()
    if why := REFUSED.get(frozenset(pair)):
        assert [sentence.startswith(why) for sentence in conflicts] == [True]
        return
    assert conflicts == []
    expected = trained()["clipped"]["losses"] if "clipped" in pair else golden(STEPS)
    tolerance = ROUGH if {"bf16", "fp16"} & set(pair) else TOLERANCE
    assert trained()["+".join(pair)]["losses"] == pytest.approx(expected, abs=tolerance)


@IN_ONE_SLICE
def test_all_that_can_go_together_does() -> None:
    run = trained()
    assert run["all"]["losses"] == pytest.approx(run["clipped"]["losses"], abs=ROUGH)


@pytest.mark.exhaustive
def test_with_a_compiler_or_without_the_losses_are_those_of_the_model_as_it_is(tmp_path: Path) -> None:
    # With activation checkpointing, which the compiler has to take apart.
    runs = launch(1, {"compiled": together("compiled", "recomputed")}, tmp_path, {})
    assert runs["compiled"]["losses"] == pytest.approx(golden(STEPS), abs=TOLERANCE)
    fell_back = "event=compile_failed" in (tmp_path / "1/log").read_text()
    assert fell_back == (shutil.which("c++") is None)
