"""Who computes what: parts of a batch, virtual shards, random streams, and what of it decides the weights."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eopipe.errors import NoSpaceError
from eopipe.training.parallel import MemoryFit, even_sizes, partition, stream_seed
from eopipe.training.step import LossScale
from eopipe.training_job import Settings

PLAIN = Settings(width=8, depth=2, epochs=10, batch=16, learning_rate=1e-3, warmup=0.1, augment=("none",))
ALIKE = replace(PLAIN, deterministic=True)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 50), st.integers(1, 6), st.booleans(), st.integers(1, 6))
def test_all_workers_together_take_each_sample_once(count: int, size: int, deterministic: bool, shards: int) -> None:
    changed = replace(PLAIN, deterministic=deterministic, shards=shards)
    parts = [part for rank in range(size) for part in partition(np.arange(count), changed, rank, size)]
    assert sorted(np.concatenate([np.arange(0), *parts])) == list(range(count))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 50), st.integers(1, 6), st.integers(1, 6))
def test_shards_are_the_same_for_any_world_and_can_be_cut_from_what_is_loaded(
    count: int, size: int, shards: int
) -> None:
    changed, alone = replace(ALIKE, shards=shards), partition(np.arange(count), replace(ALIKE, shards=shards), 0, 1)
    for rank in range(min(size, shards)):
        parts = partition(np.arange(count), changed, rank, size)
        assert [list(part) for part in parts] == [list(part) for part in alone[rank::size]]
        assert even_sizes(sum(map(len, parts)), len(parts)) == [len(part) for part in parts]


def test_processes_decide_the_weights_in_plain_mode_only() -> None:
    assert replace(ALIKE, processes=4).deciding() == ALIKE.deciding()
    assert replace(PLAIN, processes=4).deciding() != PLAIN.deciding()
    assert replace(ALIKE, shards=8).deciding() != ALIKE.deciding()


def test_steps_and_shards_have_random_streams_of_their_own() -> None:
    assert len({stream_seed(0, step, stream) for step in range(30) for stream in range(4)}) == 120


def test_memory_is_saved_by_more_passes_then_by_recomputing_then_not_at_all() -> None:
    fit, fits = MemoryFit(), []
    for _ in range(4):
        fit = fit.reduced(PLAIN, 6)
        fits.append((fit.micro_batches, fit.recompute))
    assert fits == [(2, False), (4, False), (6, False), (6, True)]
    with pytest.raises(NoSpaceError, match="a single chip does not fit"):
        fit.reduced(PLAIN, 6)


def test_a_loss_scale_halves_on_overflow_doubles_after_calm_and_gives_up_below_one() -> None:
    scale = LossScale(4.0)
    assert [scale.overflows(float("inf")) for _ in range(3)] == [True, True, False]
    scale = LossScale(4.0, stable_steps=1999)
    assert not scale.overflows(1.0)
    assert (scale.value, scale.stable_steps) == (8.0, 0)
