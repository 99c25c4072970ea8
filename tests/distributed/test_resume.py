"""Exact resume: disturbed at random, in a save or in a validation, a training ends with the bytes of a calm one."""

import subprocess
import sys
from pathlib import Path

import pytest
from trainings import Data, prepare

from eopipe.checkpoints.checkpoint import steps

HERE = Path(__file__).parent


def forks(job: Path, seed: int, events: int, moment: str = "any") -> list[str]:
    command = [sys.executable, str(HERE / "forks.py"), str(job), str(seed), str(events), moment]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout.splitlines()


def last(job: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in steps(job.parent)[-1].iterdir()}


@pytest.mark.exhaustive
def test_t05_t07_a_training_killed_or_stopped_in_its_saves_loses_no_checkpoint_and_no_bit(
    data: Data, tmp_path: Path
) -> None:
    settings = {"architecture": "faulty_models:Heavy", "epochs": 1, "batch": 32}
    once, often = (prepare(data, tmp_path / name, **settings) for name in ("once", "often"))
    forks(once, 0, 0)
    # Each of seven kills and signals comes while a file of a checkpoint is half written.
    events = forks(often, 3, 7, "save")
    assert [line.split()[0] for line in events].count("kill") >= 5
    assert last(often) == last(once)


@pytest.mark.exhaustive
def test_t04_a_signal_in_a_long_validation_is_noticed_between_its_batches_and_nothing_changes(
    data: Data, tmp_path: Path
) -> None:
    settings = {"architecture": "faulty_models:SlowJudge", "epochs": 2, "batch": 16}
    once, often = (prepare(data, tmp_path / name, **settings) for name in ("once", "often"))
    forks(once, 0, 0)
    events = [line.split() for line in forks(often, 4, 3, "validation")]
    # The state is that of the last step before the validation, which is repeated.
    assert [(event, codes) for event, _, *codes in events[:3]] == [(e, ["75", "75"]) for e in ("TERM", "USR1", "INT")]
    assert len({step for _, step, *_ in events[:3]}) == 1
    assert last(often) == last(once)


@pytest.mark.exhaustive
def test_trainings_disturbed_at_random_moments_end_with_the_same_bytes(data: Data, tmp_path: Path) -> None:
    once, *others = (prepare(data, tmp_path / name) for name in ("once", "often", "again"))
    forks(once, 0, 0)
    for seed, often in enumerate(others, start=1):
        events = forks(often, seed, 7)
        assert len(events) == 8
        assert last(often) == last(once)
