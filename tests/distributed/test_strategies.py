"""All strategies learn the same: losses of DDP, FSDP2, accumulation and one process, and the golden curve."""

import json

import pytest
from worlds import GOLDEN, IN_ONE_SLICE, SIZES, trained

pytestmark = IN_ONE_SLICE

EXACT = ("plain", "fsdp", "accumulated", "fsdp-accumulated", "recomputed", "channels-last", "hungry", "deterministic")
EXACT += ("fsdp-hungry", "averaged", "fsdp-averaged")
# Sums in another order differ by 1e-7 of their value; AdamW lets that grow over 20 steps.
TOLERANCE = 2e-5


def golden(steps: int = 20) -> list[float]:
    losses: list[float] = json.loads(GOLDEN.read_text())["losses"]
    return losses[:steps]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", EXACT)
def test_every_strategy_follows_the_golden_curve(size: int, name: str) -> None:
    losses = trained()[size][name]["losses"]
    assert losses == pytest.approx(golden(len(losses)), abs=TOLERANCE)


def test_the_golden_curve_falls_far_enough_to_tell_strategies_apart() -> None:
    assert max(golden()) - min(golden()) > 1000 * TOLERANCE


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_half_precision_follows_it_roughly_but_is_another_computation(size: int, name: str) -> None:
    losses = trained()[size][name]["losses"]
    assert losses == pytest.approx(golden(8), abs=5e-3)
    assert losses != pytest.approx(golden(8), abs=TOLERANCE)


@pytest.mark.parametrize("name", ["fsdp-rest", "plain-rest"])
def test_the_state_of_two_fsdp_workers_goes_on_in_one_with_or_without_fsdp(name: str) -> None:
    assert trained()[1][name]["losses"] == pytest.approx(golden()[10:], abs=TOLERANCE)


@pytest.mark.parametrize("size", SIZES)
def test_the_average_of_the_weights_is_the_same_in_ddp_and_fsdp(size: int) -> None:
    single, whole, parts = (
        trained()[n][name]["averages"] for n, name in ((1, "averaged"), (size, "averaged"), (size, "fsdp-averaged"))
    )
    assert whole == pytest.approx(single, rel=TOLERANCE, abs=TOLERANCE)
    assert parts == pytest.approx(single, rel=TOLERANCE, abs=TOLERANCE)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["hungry", "fsdp-hungry"])
def test_out_of_memory_leads_to_more_passes_over_the_same_batch(size: int, name: str) -> None:
    assert trained()[size][name]["passes"] == 8 // size
    assert "event=out_of_memory" in trained()[size]["log"]["text"]


@pytest.mark.parametrize("size", [1, 2])
def test_without_a_compiler_the_model_runs_as_it_is_and_says_so(size: int) -> None:
    run = trained()[size]
    assert run["uncompiled"]["losses"] == run["plain"]["losses"][:3]
    assert "event=compile_failed" in run["log"]["text"]


@pytest.mark.parametrize("size", SIZES)
def test_the_norm_of_the_gradient_is_that_of_the_global_mean(size: int) -> None:
    first = trained()[1]["plain"]["grad_norms"][0]
    assert trained()[size]["plain"]["grad_norms"][0] == pytest.approx(first, rel=1e-4)
    assert trained()[size]["fsdp"]["grad_norms"][0] == pytest.approx(first, rel=1e-4)
    assert trained()[size]["fp16"]["grad_norms"][0] == pytest.approx(first, rel=2e-2)


def test_clipping_changes_the_training() -> None:
    run = trained()[1]
    assert min(run["plain"]["grad_norms"]) > 0.05
    assert run["clipped"]["digest"] != run["plain"]["digest"]
