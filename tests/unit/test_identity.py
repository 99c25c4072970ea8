"""The identity of a training: what differs from a stored one is named."""

import json
from pathlib import Path

import pytest

from eopipe.checkpoints.checkpoint import differences, other_states, refuse_other
from eopipe.errors import BadInputError

IDENTITY = {"settings": {"seed": 0, "augment": ["symmetries"]}, "tensors": {"a": [3, 2]}}


def test_the_same_training_is_let_in_also_after_a_trip_through_json() -> None:
    refuse_other(Path("state"), {"settings": {"augment": ("symmetries",)}}, {"settings": {"augment": ["symmetries"]}})


def test_what_is_only_on_one_side_is_a_difference() -> None:
    rows = list(differences(IDENTITY, {"settings": {"seed": 0, "augment": ["symmetries"], "clip": 1.0}}))
    assert rows == ["settings.clip is None here and 1.0 there", "tensors is {'a': [3, 2]} here and None there"]


def test_many_differences_are_counted_after_the_first_five() -> None:
    with pytest.raises(BadInputError, match=r"a0 is 0 here and 1 there; .*a4 is 0 here and 1 there and 3 more; use"):
        refuse_other(Path("state"), {f"a{n}": 0 for n in range(8)}, {f"a{n}": 1 for n in range(8)})


def test_other_states_in_the_folder_are_listed_with_their_differences(tmp_path: Path) -> None:
    for name, seed in (("mine", 0), ("other", 1)):
        (tmp_path / name).mkdir()
        identity = IDENTITY | {"settings": {"seed": seed, "augment": ["symmetries"]}}
        (tmp_path / name / "identity.json").write_text(json.dumps(identity))
    rows = list(other_states(tmp_path, tmp_path / "mine", IDENTITY))
    assert rows == [(tmp_path / "other", "settings.seed is 0 here and 1 there")]
