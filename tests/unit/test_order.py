"""The order of samples: each once per epoch, the same in every process, and as well mixed as it reports."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eopipe.arrays import IntArray
from eopipe.loader.order import SampleOrder, Shuffle, block_numbers, steps_per_epoch, symmetry_of

shuffles = st.builds(Shuffle, st.sampled_from(["chips", "blocks"]), st.integers(1, 9), st.sampled_from([16, 64, 1024]))


def scattered(count: int, scenes: int = 3, edge: int = 256, seed: int = 0) -> IntArray:
    generator = np.random.default_rng(seed)
    return np.stack([generator.integers(scenes, size=count), *generator.integers(edge, size=(2, count))], 1)


def lattice(edge: int, step: int) -> IntArray:
    positions = np.arange(0, edge, step)
    return np.stack([g.reshape(-1) for g in np.meshgrid([0], positions, positions, indexing="ij")], 1)


@given(shuffles, st.integers(0, 2**32), st.integers(0, 1000), st.integers(0, 300))
def test_an_epoch_takes_every_sample_once(shuffle: Shuffle, seed: int, epoch: int, count: int) -> None:
    order = SampleOrder(scattered(count), seed, shuffle)
    assert sorted(order.epoch(epoch)) == list(range(count))


@given(shuffles, st.integers(0, 99), st.integers(0, 99), st.integers(1, 200), st.integers(1, 64), st.integers(1, 5))
def test_the_workers_together_take_the_batch_whatever_their_number(
    shuffle: Shuffle, seed: int, epoch: int, count: int, batch: int, world: int
) -> None:
    batch = min(batch, count)
    order, numbers = SampleOrder(scattered(count), seed, shuffle), []
    for step in range(steps_per_epoch(count, batch)):
        whole = order.step(epoch, step, batch)
        parts = [whole[rank::world] for rank in range(world)]
        assert len(whole) == batch
        assert sorted(np.concatenate(parts)) == sorted(whole)
        numbers += whole.tolist()
    assert len(numbers) == len(set(numbers))


@given(shuffles, st.integers(0, 9), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_the_order_of_an_epoch_does_not_depend_on_the_epochs_before(
    shuffle: Shuffle, seed: int, epochs: list[int]
) -> None:
    used = SampleOrder(scattered(60), seed, shuffle)
    for epoch in epochs:
        np.testing.assert_array_equal(used.epoch(epoch), SampleOrder(scattered(60), seed, shuffle).epoch(epoch))


@pytest.mark.parametrize("mode", ["chips", "blocks"])
def test_epochs_and_seeds_have_orders_of_their_own(mode: str) -> None:
    shuffle = Shuffle(mode, 4, 64)
    orders = {tuple(SampleOrder(scattered(50), seed, shuffle).epoch(epoch)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_the_order_of_chips_is_the_one_that_models_were_trained_with() -> None:
    stream = np.random.Generator(np.random.Philox(counter=[0, 0, 0, 3], key=7))
    np.testing.assert_array_equal(SampleOrder(scattered(40), 7).epoch(3), stream.permutation(40))


def test_a_sample_lies_in_the_block_of_its_corner() -> None:
    samples = np.array([[0, 0, 0], [0, 63, 63], [0, 64, 0], [1, 0, 0], [0, 0, 64]])
    block = block_numbers(samples, 64)
    assert block[0] == block[1]
    assert sorted(block[1:]) == [0, 1, 2, 3]


@given(st.integers(1, 8), st.integers(0, 50))
def test_no_more_blocks_are_live_than_the_window_says_and_each_is_read_once(window: int, seed: int) -> None:
    order = SampleOrder(lattice(512, 16), seed, Shuffle("blocks", window, 128))
    blocks = order.block_of[order.epoch(0)]
    first = {block: int(np.flatnonzero(blocks == block)[0]) for block in set(blocks.tolist())}
    last = {block: int(np.flatnonzero(blocks == block)[-1]) for block in first}
    live_blocks = [sum(first[b] <= position <= last[b] for b in first) for position in range(len(blocks))]
    assert max(live_blocks) == min(window, 16)


def test_the_workers_of_a_world_that_divides_the_window_share_no_block_that_is_live() -> None:
    # So no block is read by two of them: 16 blocks of 64 chips in 4 lanes, and 2 workers.
    order = SampleOrder(lattice(512, 16), 0, Shuffle("blocks", 4, 128))
    blocks = order.block_of[order.epoch(0)]
    assert not set(blocks[0::2].tolist()) & set(blocks[1::2].tolist())


def sharing(order: SampleOrder, batch: int) -> float:
    """How often two chips of a batch are in one block."""
    shares = []
    for epoch in range(20):
        blocks = order.block_of[order.epoch(epoch)].reshape(-1, batch)
        shares += [np.mean([a == b for i, a in enumerate(row) for b in row[:i]]) for row in blocks]
    return float(np.mean(shares))


def test_two_chips_of_a_batch_share_a_block_as_often_as_the_docstring_says() -> None:
    # 64 blocks of 16 chips: 1 / 64 of the pairs in a permutation; of a batch of 32 from 8 blocks, 8 * 6 of 496 pairs.
    samples = lattice(1024, 32)
    assert sharing(SampleOrder(samples, 1, Shuffle("chips", 8, 128)), 32) == pytest.approx(1 / 64, rel=0.15)
    assert sharing(SampleOrder(samples, 1, Shuffle("blocks", 8, 128)), 32) == pytest.approx(8 * 6 / 496, rel=0.05)
    assert sharing(SampleOrder(samples, 1, Shuffle("blocks", 32, 128)), 32) == 0


def test_the_mean_over_a_batch_varies_as_much_as_the_design_effect_says() -> None:
    # Chips of a block are equal (r = 1), so 32 chips of 8 blocks are worth 8: 1 + (32 / 8 - 1) = 4 times the variance.
    samples, generator = lattice(4096, 32), np.random.default_rng(0)

    def spread(shuffle: Shuffle) -> float:
        variances = []
        for seed in range(12):
            order = SampleOrder(samples, seed, shuffle)
            value = generator.normal(size=int(order.block_of.max()) + 1)[block_numbers(samples, 128)]
            variances.append(value[order.epoch(0)].reshape(-1, 32).mean(1).var())
        return float(np.mean(variances))

    ratio = spread(Shuffle("blocks", 8, 128)) / spread(Shuffle("chips", 8, 128))
    assert ratio == pytest.approx(4, rel=0.2)


def test_augmentation_uses_all_eight_ways_and_depends_on_the_epoch() -> None:
    symmetries = [[symmetry_of(0, epoch, sample) for sample in range(200)] for epoch in range(2)]
    assert set(symmetries[0]) == set(range(8))
    assert symmetries[0] != symmetries[1]
    assert symmetries[0] == [symmetry_of(0, 0, sample) for sample in range(200)], "asked again it is the same"
