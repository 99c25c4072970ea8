"""A training that reads copies on the node's own disk."""

from pathlib import Path

import pytest
from trainings import Training, payload


@pytest.mark.exhaustive
def test_a_training_from_copies_has_the_same_weights_and_leaves_none(
    training: Training, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    completed = training.run("--scratch", "$NODE_DISK", NODE_DISK=str(disk))
    assert completed.returncode == 0, completed.stderr
    assert "event=copies host=" in completed.stderr
    assert payload(training.model) == undisturbed
    assert list(disk.iterdir()) == []
