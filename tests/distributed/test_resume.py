"""Exact resume: disturbed at twenty-four random moments, a training ends with the bytes of an undisturbed one."""

import subprocess
import sys
from pathlib import Path

import pytest
from trainings import Data, prepare

from eopipe.checkpoints.checkpoint import steps

HERE = Path(__file__).parent


def forks(job: Path, seed: int, events: int) -> list[str]:
    words = [sys.executable, str(HERE / "forks.py"), str(job), str(seed), str(events)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def last(job: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in steps(job.parent)[-1].iterdir()}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_training_disturbed_at_twelve_random_moments_ends_with_the_same_bytes(
    data: Data, tmp_path: Path, seed: int
) -> None:
    once, often = (prepare(data, tmp_path / name) for name in ("once", "often"))
    forks(once, 0, 0)
    told = forks(often, seed, 12)
    assert len(told) == 13
    assert last(often) == last(once)
