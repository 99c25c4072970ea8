"""Sharded checkpoints: joined rows are the whole tensor, and missing rows are named."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Timer

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from eopipe.checkpoints.checkpoint import (
    LocalTensors,
    Progress,
    ShardIndex,
    TensorShard,
    collect_shards,
    join_shards,
    restore,
    save,
    shard_index,
    stage_shards,
    steps,
)
from eopipe.errors import IntegrityError
from eopipe.launch.failures import classify
from eopipe.publish import write_manifest


def cut(whole: Tensor, cuts: list[int]) -> list[TensorShard]:
    """The rows between cuts, as workers hold them."""
    ends = [0, *sorted(min(c, len(whole)) for c in cuts), len(whole)]
    return [TensorShard(whole[a:b], a, tuple(whole.shape)) for a, b in pairwise(ends) if a < b]


def file_content(tensors: LocalTensors) -> tuple[ShardIndex, dict[str, Tensor]]:
    """Header and tensors of a file of pieces."""
    return shard_index(tensors), {k: v.rows if isinstance(v, TensorShard) else v for k, v in tensors.items()}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.lists(st.integers(0, 20), max_size=6), st.randoms(use_true_random=False))
def test_rows_cut_anywhere_and_read_in_any_order_are_the_whole(rows: int, cuts: list[int], random: Random) -> None:
    whole = torch.arange(rows * 3).reshape(rows, 3)
    files = [file_content({"a": piece}) for piece in cut(whole, cuts)]
    random.shuffle(files)
    assert torch.equal(join_shards([*files, file_content({"b": torch.tensor(4)})])["a"], whole)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 20), st.lists(st.integers(1, 19), min_size=1, max_size=6), st.data())
def test_without_any_one_of_the_pieces_there_is_no_whole(rows: int, cuts: list[int], data: st.DataObject) -> None:
    pieces = cut(torch.zeros(rows, 2), [c % rows or 1 for c in cuts])
    missing = data.draw(st.integers(0, len(pieces) - 1))
    with pytest.raises(IntegrityError, match="rows of a are missing"):
        join_shards([file_content({"a": piece}) for number, piece in enumerate(pieces) if number != missing])


def test_rows_that_come_twice_are_no_whole() -> None:
    pieces = cut(torch.zeros(4, 2), [2])
    with pytest.raises(IntegrityError, match="rows of a are missing"):
        join_shards([file_content({"a": piece}) for piece in (*pieces, pieces[0])])


def of_worker(rank: int, step: int) -> dict[str, LocalTensors]:
    """The part of a worker of two: a model with one sharded weight of 3 rows and one replicated weight."""
    tensors: LocalTensors = {"a": cut(torch.full((3, 2), float(step)), [2])[rank]}
    return {"model": tensors | ({"b": torch.tensor(step)} if rank == 0 else {})}


def keep(folder: Path, exchange: Path, step: int, may_wait: Callable[[], bool]) -> Path:
    """Save as the first worker of two does."""

    def collect(draft: Path) -> None:
        collect_shards(exchange, step, [1], draft, may_wait)

    return save(folder, Progress(step), of_worker(0, step), keep=2, collect=collect)


def test_the_first_worker_waits_for_the_rows_of_the_other_and_the_whole_is_read(tmp_path: Path) -> None:
    exchange = tmp_path / "exchange"
    Timer(0.3, stage_shards, (exchange, 1, Progress(4), of_worker(1, 4))).start()
    path = keep(tmp_path, exchange, 4, lambda: True)
    assert sorted(file.name for file in path.glob("*.safetensors")) == ["model.1.safetensors", "model.safetensors"]
    assert not list(exchange.iterdir())
    restored = restore(tmp_path)
    assert restored is not None
    assert torch.equal(restored[1]["model"]["a"], torch.full((3, 2), 4.0))
    assert restored[1]["model"]["b"] == 4


def test_rows_that_never_come_end_the_save_and_leave_the_checkpoint_before(tmp_path: Path) -> None:
    exchange, waits = tmp_path / "exchange", iter([True, True, False])
    stage_shards(exchange, 1, Progress(1), of_worker(1, 1))
    keep(tmp_path, exchange, 1, lambda: True)
    with pytest.raises(TimeoutError, match="worker 1 did not write its part of step 2") as raised:
        keep(tmp_path, exchange, 2, lambda: next(waits))
    assert classify(raised.value, tmp_path).kind == "hung"
    assert not list(tmp_path.glob(".step-*"))
    assert [path.name for path in steps(tmp_path)] == ["step-000000001"]


@pytest.mark.parametrize("harm", ["missing", "of another step"])
def test_a_checkpoint_without_the_rows_of_a_worker_is_passed_over(tmp_path: Path, harm: str) -> None:
    exchange = tmp_path / "exchange"
    for step in (1, 2):
        stage_shards(exchange, 1, Progress(step), of_worker(1, step))
        path = keep(tmp_path, exchange, step, lambda: True)
    piece = path / "model.1.safetensors"
    piece.unlink() if harm == "missing" else shutil.copy(tmp_path / "step-000000001" / piece.name, piece)
    # A fresh manifest hides it, so that only the content of the files shows it.
    write_manifest(path)
    restored = restore(tmp_path)
    assert restored is not None
    assert restored[0].step == 1
