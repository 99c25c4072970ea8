"""What makes a training the same training: its data, its settings, its model and the code's revision."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError
from eopipe.publish import read_json

MOST_TOLD = 5


def refuse_other(path: Path, mine: dict[str, Any], its: dict[str, Any]) -> None:
    """Raise BadInputError, with what differs, when a state belongs to another training."""
    found = list(differences(mine, its))
    if found:
        more = f" and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
        raise BadInputError(
            f"{path} is the state of another training: {'; '.join(found[:MOST_TOLD])}{more}; "
            "use the inputs and settings that it began with, or remove it to start afresh"
        )


def differences(mine: Any, its: Any, name: str = "") -> Iterator[str]:
    """The leaves of two JSON values that are not the same, as `settings.seed is 1 here and 0 there`."""
    if isinstance(mine, dict) and isinstance(its, dict):
        for key in sorted(mine.keys() | its.keys()):
            yield from differences(mine.get(key), its.get(key), f"{name}.{key}".lstrip("."))
    elif _plain(mine) != _plain(its):
        yield f"{name} is {mine} here and {its} there"


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def other_states(room: Path, state: Path, mine: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """The states in a room that are not this one, each with what differs."""
    for path in sorted(room.glob("*/identity.json")):
        if path.parent != state:
            yield path.parent, "; ".join(islice(differences(mine, read_json(path)), MOST_TOLD))
